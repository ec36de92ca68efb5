//! `ariel put`: copies local files and directories into a tree.
//!
//! Guarantees: when it ends with 0 the server has everything, and with `--sync` its disk.

use super::copy::{Failed, Pool, copy_bytes};
use super::progress::Progress;
use super::{Complaints, Session, below, reason};
use crate::args::{PutArgs, Remote};
use crate::failure::{Failure, NOT_RUN};
use files::{Device, OpenOptions, SetAttributes, Tree};
use rustix::fs::FileType;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use wire::Kind;

const PART_BYTES: usize = 1 << 20;

/// The state that all files of a command share.
#[derive(Clone)]
struct Put {
    tree: Arc<Tree>,
    complaints: Complaints,
    progress: Arc<Progress>,
    preserve: bool,
    no_clobber: bool,
    verbose: bool,
    sync: bool,
}

pub(crate) fn put(args: &PutArgs) -> Result<ExitCode, Failure> {
    let mut session = Session::new("put", &args.tree);
    let tree = session.tree(&args.destination)?;
    let to = &args.destination;
    let into = tree.metadata(&to.path).is_ok_and(|found| found.is_dir());
    if !into && args.sources.len() > 1 {
        let text = format!("put: {to}: it is no directory, and there are several sources");
        return Err(Failure::new(NOT_RUN, text));
    }
    let put = Put {
        tree,
        complaints: session.complaints(),
        progress: Arc::new(Progress::new(args.transfer.quiet)),
        preserve: args.transfer.preserve,
        no_clobber: args.transfer.no_clobber,
        verbose: args.transfer.verbose,
        sync: args.sync,
    };
    let pool = Pool::new(args.transfer.jobs);
    let mut dirs = Vec::new();
    for source in &args.sources {
        if source.as_os_str() == "-" {
            put.stream(to);
            continue;
        }
        let name = source.canonicalize().ok();
        let name = name.as_deref().and_then(Path::file_name);
        let place = match (into, source.file_name().or(name)) {
            (true, Some(name)) => below(to, name),
            _ => to.clone(),
        };
        put.enter(
            &pool,
            (source, &place),
            (args.transfer.recursive, true),
            &mut dirs,
        );
    }
    let whole = pool.end();
    // A new entry changes its directory's times, so the times of directories are set last, those of
    // the inner ones first.
    for (place, found) in dirs.into_iter().rev() {
        put.finish(&place, &found, None);
    }
    put.progress.wait_for("waiting for the server");
    if put.sync {
        put.complaints.of(to, put.tree.sync(&to.path));
    }
    put.progress.end();
    if !whole {
        put.complaints.say(
            to,
            "a thread of the copy crashed: not everything was copied",
        );
    }
    drop(put);
    session.end()
}

impl Put {
    /// Copies the object at a path. This thread makes directories, the pool copies files.
    fn enter(
        &self,
        pool: &Pool,
        (from, to): (&Path, &Remote),
        (recursive, top): (bool, bool),
        dirs: &mut Vec<(Remote, Metadata)>,
    ) {
        // As cp(1): a link that is named is followed, unless directories are copied.
        let found = match top && !recursive {
            true => fs::metadata(from),
            false => fs::symlink_metadata(from),
        };
        let Some(found) = self.complaints.of_local(from, found) else {
            return;
        };
        if !found.is_dir() {
            self.progress.found(found.len());
            let (put, from, to) = (self.clone(), from.to_owned(), to.clone());
            return pool.give(move || put.one(&from, &to, &found));
        }
        if !recursive {
            let text = "it is a directory: -r copies it with all that is in it";
            return self.complaints.say(from.display(), text);
        }
        if self.make_dir(to).is_none() {
            return;
        }
        self.tell(from, to);
        let Some(entries) = self.complaints.of_local(from, fs::read_dir(from)) else {
            return;
        };
        dirs.push((to.clone(), found));
        for entry in entries {
            let Some(entry) = self.complaints.of_local(from, entry) else {
                return;
            };
            let name = entry.file_name();
            let inner = (from.join(&name), below(to, &name));
            self.enter(pool, (&inner.0, &inner.1), (recursive, false), dirs);
        }
    }

    fn make_dir(&self, to: &Remote) -> Option<()> {
        let made = self.tree.create_dir(&to.path, 0o777);
        if made.is_err()
            && self
                .tree
                .metadata(&to.path)
                .is_ok_and(|found| found.is_dir())
        {
            return Some(());
        }
        self.complaints.of(to, made).map(drop)
    }

    fn tell(&self, from: &Path, to: &Remote) {
        if self.verbose {
            self.progress
                .beside(|| println!("'{}' -> '{to}'", from.display()));
        }
    }

    /// Copies an object that is no directory.
    fn one(&self, from: &Path, to: &Remote, found: &Metadata) {
        if self.no_clobber && self.tree.symlink_metadata(&to.path).is_ok() {
            return;
        }
        let kind = FileType::from_raw_mode(found.mode());
        let done = match kind {
            FileType::RegularFile => self.file(from, to, found),
            FileType::Symlink => self.link(from, to),
            FileType::Fifo => self.device(to, Kind::Fifo, found),
            FileType::CharacterDevice => self.device(to, Kind::Character, found),
            FileType::BlockDevice => self.device(to, Kind::Block, found),
            _ => {
                let text = "it is a socket: nobody could connect to a copy of it";
                return self.complaints.say(from.display(), text);
            }
        };
        if done.is_some() {
            self.tell(from, to);
            self.finish(to, found, Some(from));
        }
        self.progress.finished();
    }

    fn file(&self, from: &Path, to: &Remote, found: &Metadata) -> Option<()> {
        let input = self.complaints.of_local(from, File::open(from))?;
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let options = options.mode(found.mode() & 0o777);
        let output = self.tree.open_with(&to.path, options);
        let output = self.complaints.of(to, output)?;
        match copy_bytes(&input, &output, &self.progress) {
            Ok(()) => {}
            Err(Failed::Input(why)) => {
                self.complaints.say(from.display(), why);
                return None;
            }
            Err(Failed::Output(why)) => {
                self.complaints.say(to, why);
                return None;
            }
        }
        if self.sync {
            self.complaints.of(to, output.sync())?;
        }
        Some(())
    }

    fn link(&self, from: &Path, to: &Remote) -> Option<()> {
        let target = self.complaints.of_local(from, fs::read_link(from))?;
        let make = || self.tree.symlink(&target, &to.path);
        self.replace(to, make)
    }

    fn device(&self, to: &Remote, kind: Kind, found: &Metadata) -> Option<()> {
        let rdev = if kind == Kind::Fifo {
            0
        } else {
            found.rdev() as u32
        };
        let device = Device { kind, rdev };
        let make = || {
            self.tree
                .create_device(&to.path, device, found.mode() & 0o777)
        };
        self.replace(to, make)
    }

    /// Makes an object that cannot be written over, in the place of the old one.
    fn replace(&self, to: &Remote, make: impl Fn() -> files::Result<()>) -> Option<()> {
        let made = match make() {
            Err(error) if error.raw_os_error() == rustix::io::Errno::EXIST.raw_os_error() => {
                self.tree.remove_file(&to.path).and_then(|()| make())
            }
            made => made,
        };
        self.complaints.of(to, made)
    }

    /// Gives a copy the attributes of the original.
    fn finish(&self, to: &Remote, found: &Metadata, from: Option<&Path>) {
        if !self.preserve {
            return;
        }
        let root = rustix::process::geteuid().is_root();
        let link = found.file_type().is_symlink();
        let set = SetAttributes {
            // The owner first: a change of it takes set-id bits away.
            uid: root.then(|| found.uid()),
            gid: root.then(|| found.gid()),
            ..SetAttributes::default()
        };
        if root {
            let set = self.tree.set_symlink_attributes(&to.path, &set);
            self.complaints.of(to, set);
        }
        if let Some(from) = from.filter(|_| !link) {
            self.xattrs(from, to);
        }
        let set = SetAttributes {
            mode: (!link).then(|| found.mode() & 0o7777),
            accessed: found.accessed().ok(),
            modified: found.modified().ok(),
            ..SetAttributes::default()
        };
        let set = self.tree.set_symlink_attributes(&to.path, &set);
        self.complaints.of(to, set);
    }

    /// Copies the extended attributes that a user can set.
    fn xattrs(&self, from: &Path, to: &Remote) {
        for name in local_xattrs(from) {
            let mut value = vec![0; wire::limits::XATTR_VALUE_BYTES];
            let got = rustix::fs::lgetxattr(from, name.as_slice(), &mut value);
            let got = got.map_err(io::Error::from);
            if let Some(len) = self.complaints.of_local(from, got) {
                let set = self.tree.set_xattr(&to.path, &name, &value[..len]);
                self.complaints.of(to, set);
            }
        }
    }

    /// Copies standard input.
    fn stream(&self, to: &Remote) {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let output = self.tree.open_with(&to.path, options);
        let Some(output) = self.complaints.of(to, output) else {
            return;
        };
        let (mut input, mut buffer, mut at) = (io::stdin().lock(), vec![0; PART_BYTES], 0);
        loop {
            let count = match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return self.complaints.say("standard input", reason(&error)),
            };
            let written = output.write_all_at(&buffer[..count], at);
            if self.complaints.of(to, written).is_none() {
                return;
            }
            at += count as u64;
            self.progress.moved(count as u64);
        }
        if self.sync {
            self.complaints.of(to, output.sync());
        }
    }
}

/// The names of a local file's extended attributes, without those that belong to its system.
fn local_xattrs(path: &Path) -> Vec<Vec<u8>> {
    let mut list = vec![0; wire::limits::XATTR_LIST_BYTES];
    let len = rustix::fs::llistxattr(path, &mut list).unwrap_or(0);
    let names = list[..len].split(|byte| *byte == 0);
    let kept = names.filter(|name| name.starts_with(b"user.") || *name == LIST);
    kept.map(<[u8]>::to_vec).collect()
}

/// The access list, which is a mode, too.
const LIST: &[u8] = b"system.posix_acl_access";
