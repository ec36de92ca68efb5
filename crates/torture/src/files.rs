//! The operations, by system calls. Everything is named relative to one directory's descriptor:
//! where a mount has died and left an empty directory in its place, nothing of the run is found
//! there, and no answer comes from the wrong file system.

use crate::history::{Action, Object, Run};
use crate::names::directories;
use crate::plan::{Abilities, Plan, REGISTERS_LENGTH, SLOTS, XATTR};
use crate::record::{LOG_RECORD, WORD, decode, decode_log, encode, of_seconds, seconds};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, XattrFlags};
use rustix::fs::{fgetxattr, fsetxattr, fstat, fsync, ftruncate, futimens, linkat, mkdirat};
use rustix::fs::{openat, renameat_with, seek, statat, symlinkat, unlinkat, utimensat};
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

/// The work to try.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    /// This action; outcomes in it are not looked at.
    Do(Action),
    /// The listing of a directory.
    List,
}

/// How an operation goes about it.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// Through a descriptor that stays open.
    pub(crate) long: bool,
    /// Some number, to choose between equal system calls.
    pub(crate) choice: u64,
    /// The abilities of the tree.
    pub(crate) can: Abilities,
}

/// The hands of one worker.
pub(crate) struct Files {
    pub(crate) base: OwnedFd,
    open: HashMap<(String, bool), Rc<OwnedFd>>,
    pub(crate) sync: bool,
    /// A name in the run's directory that nobody else uses.
    pub(crate) own: String,
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
            own: format!("own-{}", plan.process),
        })
    }

    /// Makes the run's directory and what is in it. Tells what the tree can do.
    pub(crate) fn set_up(plan: &Plan) -> Result<Abilities, Errno> {
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
        for file in 0..plan.attribute_files() {
            let made = files.make(&format!("a{file}"))?;
            futimens(&made, &times(0))?;
            fsync(&made)?;
        }
        for group in 0..plan.groups() {
            for dir in directories(group) {
                mkdirat(&files.base, dir, Mode::from_raw_mode(0o755))?;
            }
        }
        let can = files.abilities()?;
        fsync(&files.base)?;
        Ok(can)
    }

    /// Tries what not every file system can.
    fn abilities(&self) -> Result<Abilities, Errno> {
        let (base, flags) = (&self.base, RenameFlags::EXCHANGE);
        let tried = self.make("tried")?;
        let links = linkat(base, "tried", base, "tried-link", AtFlags::empty()).is_ok();
        let symlinks = symlinkat("tried", base, "tried-symlink").is_ok();
        let exchange = links && renameat_with(base, "tried", base, "tried-link", flags).is_ok();
        let xattrs = fsetxattr(&tried, XATTR, b"0", XattrFlags::empty()).is_ok();
        for name in ["tried", "tried-link", "tried-symlink"] {
            let _ = unlinkat(base, name, AtFlags::empty());
        }
        Ok(Abilities {
            symlinks,
            links,
            exchange,
            xattrs,
        })
    }

    pub(crate) fn make(&self, name: &str) -> Result<OwnedFd, Errno> {
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
            // A log that stays because of a crash is removed with everything else.
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

    pub(crate) fn durable(&self, file: &OwnedFd) -> Result<(), Errno> {
        if self.sync { fsync(file) } else { Ok(()) }
    }

    /// Tries something; returns the outcome, as one action or several at the same time.
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
            (Object::Time { file }, Want::Do(action)) => self.time(file, action, way)?,
            (Object::Xattr { file }, Want::Do(action)) => self.xattr(file, action, way)?,
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

    fn time(&mut self, file: u32, action: &Action, way: Way) -> Result<Action, Trouble> {
        let name = format!("a{file}");
        let by_name = way.choice.is_multiple_of(2);
        if let Action::Write(value) = action {
            let Some(seconds) = seconds(*value) else {
                return Err(Trouble::Wrong(format!("{action}: no time")));
            };
            let fd = self.file(name.clone(), true, way)?;
            if by_name {
                utimensat(&self.base, name, &times(seconds), AtFlags::empty())?;
            } else {
                futimens(&*fd, &times(seconds))?;
            }
            self.durable(&fd)?;
            return Ok(action.clone());
        }
        let stat = if by_name {
            statat(&self.base, name, AtFlags::empty())?
        } else {
            fstat(&*self.file(name, false, way)?)?
        };
        match of_seconds(stat.st_mtime) {
            Some(value) => Ok(read_one(value)),
            None => Err(Trouble::Wrong(format!(
                "time of change is {}, which nobody set",
                stat.st_mtime
            ))),
        }
    }

    fn xattr(&mut self, file: u32, action: &Action, way: Way) -> Result<Action, Trouble> {
        let fd = self.file(format!("a{file}"), matches!(action, Action::Write(_)), way)?;
        if let Action::Write(value) = action {
            let text = value.to_string();
            fsetxattr(&*fd, XATTR, text.as_bytes(), XattrFlags::empty())?;
            self.durable(&fd)?;
            return Ok(action.clone());
        }
        let mut bytes = [0; 32];
        let length = match fgetxattr(&*fd, XATTR, &mut bytes[..]) {
            Err(Errno::NODATA) => return Ok(read_one(0)),
            length => length?,
        };
        let text = String::from_utf8_lossy(&bytes[..length]);
        match text.parse() {
            Ok(value) => Ok(read_one(value)),
            Err(_) => Err(Trouble::Wrong(format!(
                "attribute is {text:?}, which nobody set"
            ))),
        }
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
}

/// Did it happen, or was it refused for the one reason that a model knows?
pub(crate) fn happened(result: Result<(), Errno>, refusal: Errno) -> Result<bool, Errno> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error == refusal => Ok(false),
        Err(error) => Err(error),
    }
}

fn times(seconds: i64) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

fn read_one(value: u64) -> Action {
    Action::Read(vec![Run { words: 1, value }])
}
