//! `ariel get`: copies files and directories of a tree to this machine.

use super::copy::{Failed, Pool, copy_bytes};
use super::progress::Progress;
use super::{Complaints, Session, below};
use crate::args::{GetArgs, Remote};
use crate::failure::{Failure, NOT_RUN};
use files::{Metadata, Tree};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use wire::Kind;

/// The state that all files of a command share.
#[derive(Clone)]
struct Get {
    tree: Arc<Tree>,
    complaints: Complaints,
    progress: Arc<Progress>,
    preserve: bool,
    no_clobber: bool,
    verbose: bool,
}

pub(crate) fn get(args: &GetArgs) -> Result<ExitCode, Failure> {
    let mut session = Session::new("get", &args.tree);
    let to = &args.destination;
    let into = to.is_dir();
    if !into && args.sources.len() > 1 {
        let to = to.display();
        let text = format!("get: {to}: it is no directory, and there are several sources");
        return Err(Failure::new(NOT_RUN, text));
    }
    let pool = Pool::new(args.transfer.jobs);
    let progress = Arc::new(Progress::new(args.transfer.quiet));
    let mut dirs = Vec::new();
    for from in &args.sources {
        let get = Get {
            tree: session.tree(from)?,
            complaints: session.complaints(),
            progress: Arc::clone(&progress),
            preserve: args.transfer.preserve,
            no_clobber: args.transfer.no_clobber,
            verbose: args.transfer.verbose,
        };
        let place = match (into, from.path.file_name()) {
            (true, Some(name)) => to.join(name),
            _ => to.clone(),
        };
        get.enter(
            &pool,
            (from, &place),
            (args.transfer.recursive, true),
            &mut dirs,
        );
    }
    let whole = pool.end();
    // A new entry changes its directory's times, so the times of directories are set last, those of
    // the inner ones first.
    for (get, from, place, found) in dirs.into_iter().rev() {
        get.finish(&from, &place, &found);
    }
    progress.end();
    if !whole {
        let text = "a thread of the copy crashed: not everything was copied";
        session.complaints().say(to.display(), text);
    }
    session.end()
}

type Dirs = Vec<(Get, Remote, PathBuf, Metadata)>;

impl Get {
    /// Copies the object at a path. This thread makes directories, the pool copies files.
    fn enter(
        &self,
        pool: &Pool,
        (from, to): (&Remote, &Path),
        (recursive, top): (bool, bool),
        dirs: &mut Dirs,
    ) {
        // As cp(1): a link that is named is followed, unless directories are copied.
        let found = match top && !recursive {
            true => self.tree.metadata(&from.path),
            false => self.tree.symlink_metadata(&from.path),
        };
        let Some(found) = self.complaints.of(from, found) else {
            return;
        };
        if !found.is_dir() {
            self.progress.found(found.len());
            let (get, from, to) = (self.clone(), from.clone(), to.to_owned());
            return pool.give(move || get.one(&from, &to, &found));
        }
        if !recursive {
            let text = "it is a directory: -r copies it with all that is in it";
            return self.complaints.say(from, text);
        }
        let made = match fs::create_dir(to) {
            Err(_) if to.is_dir() => Ok(()),
            made => made,
        };
        if self.complaints.of_local(to, made).is_none() {
            return;
        }
        self.tell(from, to);
        let Some(entries) = self.complaints.of(from, self.tree.read_dir(&from.path)) else {
            return;
        };
        dirs.push((self.clone(), from.clone(), to.to_owned(), found));
        for entry in entries {
            let Some(entry) = self.complaints.of(from, entry) else {
                return;
            };
            let name = entry.file_name();
            let inner = (below(from, name), to.join(name));
            self.enter(pool, (&inner.0, &inner.1), (recursive, false), dirs);
        }
    }

    fn tell(&self, from: &Remote, to: &Path) {
        if self.verbose {
            self.progress
                .beside(|| println!("'{from}' -> '{}'", to.display()));
        }
    }

    /// Copies an object that is no directory.
    fn one(&self, from: &Remote, to: &Path, found: &Metadata) {
        if self.no_clobber && fs::symlink_metadata(to).is_ok() {
            return;
        }
        let done = match found.kind() {
            Kind::File => self.file(from, to, found),
            Kind::Symlink => self.link(from, to),
            Kind::Socket | Kind::Directory | Kind::Mount => {
                let text = "it is a socket: nobody could connect to a copy of it";
                return self.complaints.say(from, text);
            }
            kind => self.device(to, kind, found),
        };
        if done.is_some() {
            self.tell(from, to);
            self.finish(from, to, found);
        }
        self.progress.finished();
    }

    fn file(&self, from: &Remote, to: &Path, found: &Metadata) -> Option<()> {
        let input = self.complaints.of(from, self.tree.open(&from.path))?;
        let mut options = File::options();
        options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(found.mode() & 0o777);
        let output = self.complaints.of_local(to, options.open(to))?;
        match copy_bytes(&input, &output, &self.progress) {
            Ok(()) => Some(()),
            Err(Failed::Input(why)) => {
                self.complaints.say(from, why);
                None
            }
            Err(Failed::Output(why)) => {
                self.complaints.say(to.display(), why);
                None
            }
        }
    }

    fn link(&self, from: &Remote, to: &Path) -> Option<()> {
        let target = self.complaints.of(from, self.tree.read_link(&from.path))?;
        let make = || std::os::unix::fs::symlink(&target, to);
        self.replace(to, make)
    }

    fn device(&self, to: &Path, kind: Kind, found: &Metadata) -> Option<()> {
        let kind = match kind {
            Kind::Character => FileType::CharacterDevice,
            Kind::Block => FileType::BlockDevice,
            _ => FileType::Fifo,
        };
        let mode = Mode::from_raw_mode(found.mode() & 0o777);
        let rdev = u64::from(found.rdev());
        let make = || Ok(rustix::fs::mknodat(CWD, to, kind, mode, rdev)?);
        self.replace(to, make)
    }

    /// Makes an object that cannot be written over, in the place of the old one.
    fn replace(&self, to: &Path, make: impl Fn() -> io::Result<()>) -> Option<()> {
        let made = match make() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(to).and_then(|()| make())
            }
            made => made,
        };
        self.complaints.of_local(to, made)
    }

    /// Gives a copy the attributes of the original.
    fn finish(&self, from: &Remote, to: &Path, found: &Metadata) {
        if !self.preserve {
            return;
        }
        let link = found.kind() == Kind::Symlink;
        if rustix::process::geteuid().is_root() {
            let (uid, gid) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let set = rustix::fs::chownat(CWD, to, Some(uid), Some(gid), flags);
            self.complaints.of_local(to, set.map_err(io::Error::from));
        }
        if !link {
            self.xattrs(from, to);
            let mode = fs::Permissions::from_mode(found.mode());
            self.complaints.of_local(to, fs::set_permissions(to, mode));
        }
        let time = |(tv_sec, nanoseconds): (i64, u32)| Timespec {
            tv_sec,
            tv_nsec: i64::from(nanoseconds),
        };
        let times = Timestamps {
            last_access: time(found.atime()),
            last_modification: time(found.mtime()),
        };
        let set = rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW);
        self.complaints.of_local(to, set.map_err(io::Error::from));
    }

    /// Copies the extended attributes that a user can set.
    fn xattrs(&self, from: &Remote, to: &Path) {
        let names = self.complaints.of(from, self.tree.list_xattrs(&from.path));
        let kept = |name: &Vec<u8>| {
            name.starts_with(b"user.") || name.as_slice() == b"system.posix_acl_access"
        };
        for name in names.into_iter().flatten().filter(kept) {
            let value = self.tree.xattr(&from.path, &name);
            let Some(Some(value)) = self.complaints.of(from, value) else {
                continue;
            };
            let set = rustix::fs::lsetxattr(to, name.as_slice(), &value, XattrFlags::empty());
            self.complaints.of_local(to, set.map_err(io::Error::from));
        }
    }
}
