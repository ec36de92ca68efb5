//! The directories of further stores, below the server's data directory: `stores/NUMBER` is a
//! store, named by the number of its first volume; `stores/NUMBER.coming` the copy of one that is
//! on its way; `stores/NUMBER.whole` says in which turn a store was closed elsewhere whose copy is
//! whole, until it is served here; `stores/NUMBER.replica` says that a store is for a replica;
//! `stores/NUMBER.gone` is one that is being removed; `stores/last`
//! the number of the last store that was made.
//!
//! Guarantees: a copy becomes a store with everything synced, or not at all; a number is never
//! given twice, if one caller at a time asks for one.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The ends of the names of a copy that is on its way, and of one that is of no use any more.
const COMING: &str = ".coming";
const GONE: &str = ".gone";
/// The end of the name of the note that a store is for a replica, with the volume's number in it.
const REPLICA: &str = ".replica";

/// The directories.
pub(super) struct Places(PathBuf);

fn failed(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Writes a small file, on stable storage, in place of the one that was there.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_parent(path)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn removed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

impl Places {
    pub(super) fn new(data: &Path) -> Places {
        Places(data.join("stores"))
    }

    /// The server's data directory, on whose disk all of them are.
    pub(super) fn data(&self) -> &Path {
        self.0.parent().unwrap_or(&self.0)
    }

    fn make(&self) -> Result<(), String> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0);
        made.map_err(|error| failed(&self.0, &error))
    }

    /// The stores that are here when the server begins, by the numbers of their first volumes.
    /// Copies that were on their way, or were set aside, go.
    pub(super) fn begin(&self) -> Result<Vec<u32>, String> {
        let mut found = Vec::new();
        for name in self.names()? {
            found.extend(name.parse::<u32>().ok());
            if [COMING, GONE].iter().any(|end| name.ends_with(end)) {
                self.remove_aside(&self.0.join(&name))?;
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The names of all that is here.
    fn names(&self) -> Result<Vec<String>, String> {
        let all = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            all => all.map_err(|error| failed(&self.0, &error))?,
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let names = all.map(|entry| entry.map(name).map_err(|error| failed(&self.0, &error)));
        names.collect()
    }

    fn replica(&self, first_volume: u32) -> PathBuf {
        self.0.join(format!("{first_volume}{REPLICA}"))
    }

    /// The stores for replicas that are here, or were about to be made or removed.
    pub(super) fn replicas(&self) -> Result<Vec<u32>, String> {
        let names = self.names()?;
        let numbers = names.iter().filter_map(|name| name.strip_suffix(REPLICA));
        Ok(numbers.filter_map(|number| number.parse().ok()).collect())
    }

    /// Is a store for a replica?
    pub(super) fn is_replica(&self, first_volume: u32) -> bool {
        self.replica(first_volume).exists()
    }

    /// A store, which may not be there yet, is for the replica of a volume.
    pub(super) fn is_for_replica(&self, first_volume: u32, volume: u32) -> Result<(), String> {
        self.make()?;
        let path = self.replica(first_volume);
        write(&path, &volume.to_string()).map_err(|error| failed(&path, &error))
    }

    /// Nothing is here of the store any more.
    pub(super) fn is_no_replica(&self, first_volume: u32) -> Result<(), String> {
        let path = self.replica(first_volume);
        let done = removed(fs::remove_file(&path)).and_then(|()| sync_parent(&path));
        done.map_err(|error| failed(&path, &error))
    }

    pub(super) fn store(&self, first_volume: u32) -> PathBuf {
        self.0.join(first_volume.to_string())
    }

    /// The copy of a store that is on its way.
    pub(super) fn coming(&self, first_volume: u32) -> Result<PathBuf, String> {
        self.make()?;
        Ok(self.0.join(format!("{first_volume}{COMING}")))
    }

    fn whole(&self, first_volume: u32) -> PathBuf {
        self.0.join(format!("{first_volume}.whole"))
    }

    /// The turn in which a store was closed elsewhere whose copy here is whole.
    pub(super) fn whole_of(&self, first_volume: u32) -> Option<u64> {
        let text = fs::read_to_string(self.whole(first_volume)).ok()?;
        text.trim().parse().ok()
    }

    /// The copy of a store is whole, of what was closed in this turn, and synced.
    pub(super) fn has_come(&self, first_volume: u32, turn: u64) -> Result<(), String> {
        let (whole, dir) = (self.whole(first_volume), self.store(first_volume));
        let coming = self.coming(first_volume)?;
        let noted = write(&whole, &turn.to_string());
        noted.map_err(|error| failed(&whole, &error))?;
        let renamed = fs::rename(&coming, &dir).and_then(|()| sync_parent(&dir));
        renamed.map_err(|error| failed(&dir, &error))
    }

    /// A store is served here.
    pub(super) fn is_served(&self, first_volume: u32) {
        let whole = self.whole(first_volume);
        if let Err(error) = removed(fs::remove_file(&whole)) {
            tracing::warn!(path = %whole.display(), %error, "cannot be removed");
        }
    }

    /// Takes a store, or a copy, that is of no use here out of its place; where it is then.
    pub(super) fn set_aside(&self, first_volume: u32) -> Result<PathBuf, String> {
        let dir = self.store(first_volume);
        let mut aside = self.0.join(format!("{first_volume}{GONE}"));
        for more in 1.. {
            if !aside.exists() {
                break;
            }
            aside = self.0.join(format!("{first_volume}-{more}{GONE}"));
        }
        let renamed = removed(fs::rename(&dir, &aside)).and_then(|()| sync_parent(&dir));
        renamed.map_err(|error| failed(&dir, &error))?;
        self.is_served(first_volume);
        Ok(aside)
    }

    /// Removes what was set aside.
    pub(super) fn remove_aside(&self, aside: &Path) -> Result<(), String> {
        removed(fs::remove_dir_all(aside)).map_err(|error| failed(aside, &error))
    }

    /// A copy that was left when a store moved away is where the next one begins.
    pub(super) fn begin_with_left(&self, first_volume: u32) -> Result<(), String> {
        let (dir, coming) = (self.store(first_volume), self.coming(first_volume)?);
        self.is_served(first_volume);
        if !dir.exists() {
            return Ok(());
        }
        self.stop_coming(first_volume)?;
        fs::rename(&dir, &coming).map_err(|error| failed(&coming, &error))
    }

    /// Removes a copy that is on its way.
    pub(super) fn stop_coming(&self, first_volume: u32) -> Result<(), String> {
        let dir = self.coming(first_volume)?;
        removed(fs::remove_dir_all(&dir)).map_err(|error| failed(&dir, &error))
    }

    /// The number of one more store.
    pub(super) fn next_number(&self) -> Result<u32, String> {
        self.make()?;
        let path = self.0.join("last");
        let last = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            text => {
                let text = text.map_err(|error| failed(&path, &error))?;
                let number = text.trim().parse::<u32>();
                number.map_err(|_| {
                    format!(
                        "{} is no number: write the highest number of a store that this server has \
                         ever made into it",
                        path.display()
                    )
                })?
            }
        };
        write(&path, &(last + 1).to_string()).map_err(|error| failed(&path, &error))?;
        Ok(last + 1)
    }
}
