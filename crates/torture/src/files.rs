//! The operations, by system calls. Everything is named relative to one directory's descriptor:
//! where a mount has died and left an empty directory in its place, nothing of the run is found
//! there, and no answer comes from the wrong file system.

use crate::history::{Action, Object};
use crate::plan::{NAMES, Plan, REGISTERS_LENGTH, SLOTS};
use crate::record::{LOG_RECORD, WORD, decode, decode_log, encode};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, SeekFrom};
use rustix::fs::{fstat, fsync, ftruncate, mkdirat, openat, readlinkat, renameat, seek, statat};
use rustix::fs::{symlinkat, unlinkat};
use rustix::io::{Errno, pread, pwrite, write};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Most that is read of a log.
const LOG_MOST: usize = LOG_RECORD * 8192;

/// Why an operation has no outcome.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A system call failed in a way that no model knows.
    Sys(Errno),
    /// It succeeded, with an outcome that no file system may have.
    Wrong(String),
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Trouble {
        Trouble::Sys(error)
    }
}

/// What is to be tried.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    /// This action; outcomes in it are not looked at.
    Do(Action),
    /// The listing of a directory.
    List,
}

/// What the names of a group are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They say what they stand for, and are made with it in one step.
    Link,
    File,
    Dir,
}

/// How an operation goes about it.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// Through a descriptor that stays open.
    pub(crate) long: bool,
    /// Some number, to choose between equal system calls.
    pub(crate) choice: u64,
    /// The tree knows symbolic links.
    pub(crate) links: bool,
}

/// The hands of one worker.
pub(crate) struct Files {
    base: OwnedFd,
    open: HashMap<(String, bool), Rc<OwnedFd>>,
    sync: bool,
}

/// The place of a record, for its checksum.
fn place(file: u32, offset: u64) -> u64 {
    ((u64::from(file) + 1) << 32) | (offset / WORD as u64)
}

fn log_place(round: u64, file: u32) -> u64 {
    (1 << 60) | (round << 16) | u64::from(file)
}

impl Files {
    /// Finds the run's directory.
    pub(crate) fn find(plan: &Plan) -> Result<Files, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let base = rustix::fs::open(plan.mount.join(&plan.dir), flags, Mode::empty())?;
        Ok(Files {
            base,
            open: HashMap::new(),
            sync: plan.kills,
        })
    }

    /// Makes the run's directory and what is in it. Tells whether the tree knows symbolic links.
    pub(crate) fn set_up(plan: &Plan) -> Result<bool, Errno> {
        rustix::fs::mkdir(plan.mount.join(&plan.dir), Mode::from_raw_mode(0o755))?;
        let files = Files::find(plan)?;
        for file in 0..plan.files {
            let made = files.make(&format!("r{file}"))?;
            ftruncate(&made, REGISTERS_LENGTH)?;
            fsync(&made)?;
        }
        for file in 0..plan.size_files() {
            fsync(files.make(&format!("s{file}"))?)?;
        }
        for group in 0..plan.groups() {
            mkdirat(&files.base, format!("d{group}"), Mode::from_raw_mode(0o755))?;
        }
        let links = symlinkat("target", &files.base, "link").is_ok();
        fsync(&files.base)?;
        Ok(links)
    }

    fn make(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        openat(&self.base, name, flags, Mode::from_raw_mode(0o644))
    }

    /// Makes the logs of a round; those that are there (of an attempt that failed) are good.
    pub(crate) fn make_logs(&self, plan: &Plan, round: u64) -> Result<(), Errno> {
        for file in 0..plan.logs() {
            match self.make(&format!("l{round}-{file}")) {
                Ok(log) => fsync(log)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        fsync(&self.base)
    }

    /// Removes the logs of a round.
    pub(crate) fn remove_logs(&mut self, plan: &Plan, round: u64) {
        for file in 0..plan.logs() {
            // What stays because of a crash is removed with everything else.
            let _ = unlinkat(&self.base, format!("l{round}-{file}"), AtFlags::empty());
        }
    }

    /// Lets go of the descriptors of past logs.
    pub(crate) fn forget_logs(&mut self) {
        self.open.retain(|(name, _), _| !name.starts_with('l'));
    }

    fn file(&mut self, name: String, writes: bool, way: Way) -> Result<Rc<OwnedFd>, Errno> {
        let key = (name, writes);
        if way.long
            && let Some(file) = self.open.get(&key)
        {
            return Ok(Rc::clone(file));
        }
        let mut flags = if writes { OFlags::RDWR } else { OFlags::RDONLY } | OFlags::CLOEXEC;
        if writes && key.0.starts_with('l') {
            flags |= OFlags::APPEND;
        }
        let file = Rc::new(openat(&self.base, key.0.as_str(), flags, Mode::empty())?);
        if way.long {
            self.open.insert(key, Rc::clone(&file));
        }
        Ok(file)
    }

    /// Closes a descriptor that stays open otherwise.
    pub(crate) fn close_one(&mut self, choice: u64) {
        let mut keys: Vec<&(String, bool)> = self.open.keys().collect();
        keys.sort();
        if !keys.is_empty() {
            let key = keys[(choice % keys.len() as u64) as usize].clone();
            self.open.remove(&key);
        }
    }

    fn durable(&self, file: &OwnedFd) -> Result<(), Errno> {
        if self.sync { fsync(file) } else { Ok(()) }
    }

    /// Tries something; what came out, as one action or several at the same time.
    pub(crate) fn perform(
        &mut self,
        object: Object,
        want: &Want,
        way: Way,
    ) -> Result<Vec<Action>, Trouble> {
        let action = match (object, want) {
            (Object::Names { group }, Want::List) => return Ok(self.list(group)?),
            (Object::Names { group }, Want::Do(action)) => self.name(group, action, way)?,
            (Object::Register { file, slot }, Want::Do(action)) => {
                self.register(file, slot, action, way)?
            }
            (Object::Size { file }, Want::Do(action)) => self.size(file, action, way)?,
            (Object::Log { round, file }, Want::Do(action)) => {
                self.log(round, file, action, way)?
            }
            (_, Want::List) => return Err(Trouble::Wrong("no directory".to_owned())),
        };
        Ok(vec![action])
    }

    fn register(
        &mut self,
        file: u32,
        slot: u32,
        action: &Action,
        way: Way,
    ) -> Result<Action, Trouble> {
        let (offset, length) = SLOTS[slot as usize];
        let writes = matches!(action, Action::Write(_));
        // Reading through a descriptor that could write may go another way than a reader's.
        let writable = writes || way.choice.is_multiple_of(4);
        let fd = self.file(format!("r{file}"), writable, way)?;
        if let Action::Write(value) = action {
            let bytes = encode(*value, place(file, offset), length);
            let written = pwrite(&*fd, &bytes, offset)?;
            if written != length {
                let what = format!("{action}: only {written} of {length} bytes were taken");
                return Err(Trouble::Wrong(what));
            }
            self.durable(&fd)?;
            return Ok(action.clone());
        }
        let mut bytes = vec![0; length];
        let read = pread(&*fd, &mut bytes[..], offset)?;
        if read != length {
            let what = format!("read: only {read} of {length} bytes, in the middle of the file");
            return Err(Trouble::Wrong(what));
        }
        match decode(&bytes, place(file, offset)) {
            Ok(runs) => Ok(Action::Read(runs)),
            Err(what) => Err(Trouble::Wrong(what)),
        }
    }

    fn size(&mut self, file: u32, action: &Action, way: Way) -> Result<Action, Trouble> {
        let name = format!("s{file}");
        match action {
            Action::SetSize(0) if !way.long => {
                let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
                let fd = openat(&self.base, name.as_str(), flags, Mode::empty())?;
                self.durable(&fd)?;
            }
            Action::SetSize(size) => {
                let fd = self.file(name, true, way)?;
                ftruncate(&*fd, *size)?;
                self.durable(&fd)?;
            }
            Action::GrowTo(size) => {
                let fd = self.file(name, true, way)?;
                pwrite(&*fd, b"x", size.saturating_sub(1))?;
                self.durable(&fd)?;
            }
            _ => {
                let size = match way.choice % 3 {
                    0 => statat(&self.base, name.as_str(), AtFlags::empty())?.st_size as u64,
                    1 => fstat(&*self.file(name, false, way)?)?.st_size as u64,
                    _ => {
                        let fd = self.file(name, way.choice.is_multiple_of(2), way)?;
                        seek(&*fd, SeekFrom::End(0))?
                    }
                };
                return Ok(Action::Size(size));
            }
        }
        Ok(action.clone())
    }

    fn log(&mut self, round: u64, file: u32, action: &Action, way: Way) -> Result<Action, Trouble> {
        let (name, place) = (format!("l{round}-{file}"), log_place(round, file));
        match action {
            Action::Append(value) => {
                let fd = self.file(name, true, way)?;
                let written = write(&*fd, &encode(*value, place, LOG_RECORD))?;
                if written != LOG_RECORD {
                    let what = format!("{action}: only {written} of {LOG_RECORD} bytes were taken");
                    return Err(Trouble::Wrong(what));
                }
                self.durable(&fd)?;
                Ok(action.clone())
            }
            Action::LogLength(_) => {
                let size = statat(&self.base, name.as_str(), AtFlags::empty())?.st_size as u64;
                if !size.is_multiple_of(LOG_RECORD as u64) {
                    let what = format!("log has {size} bytes: a record is torn");
                    return Err(Trouble::Wrong(what));
                }
                Ok(Action::LogLength(size / LOG_RECORD as u64))
            }
            _ => {
                let fd = self.file(name, false, way)?;
                let mut bytes = vec![0; LOG_MOST];
                let read = pread(&*fd, &mut bytes[..], 0)?;
                match decode_log(&bytes[..read], place) {
                    Ok(list) => Ok(Action::ReadLog(list)),
                    Err(what) => Err(Trouble::Wrong(what)),
                }
            }
        }
    }

    fn name(&mut self, group: u32, action: &Action, way: Way) -> Result<Action, Trouble> {
        let kind = match group % 3 {
            0 if way.links => Kind::Link,
            2 => Kind::Dir,
            _ => Kind::File,
        };
        let path = |name: u8| format!("d{group}/n{name}");
        let (outcome, done) = match *action {
            Action::Create { name, id, .. } => {
                let done = happened(self.create(&path(name), id, kind), Errno::EXIST)?;
                let id = if kind == Kind::Link { id } else { 1 };
                (Action::Create { name, id, done }, done)
            }
            Action::Remove { name, .. } => {
                let flags = match kind {
                    Kind::Dir => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                let done = happened(unlinkat(&self.base, path(name), flags), Errno::NOENT)?;
                (Action::Remove { name, done }, done)
            }
            Action::Rename { from, to, .. } => {
                let renamed = renameat(&self.base, path(from), &self.base, path(to));
                let done = happened(renamed, Errno::NOENT)?;
                (Action::Rename { from, to, done }, done)
            }
            Action::Look { name, .. } => {
                let found = self.look(&path(name), kind, way)?;
                (Action::Look { name, found }, false)
            }
            _ => return Err(Trouble::Wrong(format!("{action}: not for a directory"))),
        };
        if done && self.sync {
            fsync(self.directory(group)?)?;
        }
        Ok(outcome)
    }

    fn create(&self, path: &str, id: u64, kind: Kind) -> Result<(), Errno> {
        match kind {
            Kind::Link => symlinkat(id.to_string(), &self.base, path),
            Kind::File => self.make(path).map(drop),
            Kind::Dir => mkdirat(&self.base, path, Mode::from_raw_mode(0o755)),
        }
    }

    fn look(&self, path: &str, kind: Kind, way: Way) -> Result<Option<u64>, Trouble> {
        if kind == Kind::Link {
            return match readlinkat(&self.base, path, Vec::new()) {
                Ok(target) => match target.to_str().ok().and_then(|id| id.parse().ok()) {
                    Some(id) => Ok(Some(id)),
                    None => Err(Trouble::Wrong(format!("{path} leads to {target:?}"))),
                },
                Err(Errno::NOENT) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
        let looked = if way.choice.is_multiple_of(2) {
            statat(&self.base, path, AtFlags::SYMLINK_NOFOLLOW).map(drop)
        } else {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            openat(&self.base, path, flags, Mode::empty()).map(drop)
        };
        Ok(happened(looked, Errno::NOENT)?.then_some(1))
    }

    fn directory(&self, group: u32) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.base, format!("d{group}"), flags, Mode::empty())
    }

    fn list(&self, group: u32) -> Result<Vec<Action>, Errno> {
        let mut present = [false; NAMES as usize];
        for entry in Dir::new(self.directory(group)?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            for (n, present) in present.iter_mut().enumerate() {
                *present |= name == format!("n{n}").as_bytes();
            }
        }
        let listed = |(name, present)| Action::Listed { name, present };
        Ok((0..NAMES).zip(present).map(listed).collect())
    }
}

/// Did it happen, or was it refused for the one reason that a model knows?
fn happened(result: Result<(), Errno>, refusal: Errno) -> Result<bool, Errno> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error == refusal => Ok(false),
        Err(error) => Err(error),
    }
}
