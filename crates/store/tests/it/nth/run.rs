//! One run of a scenario on a disk that may fail: every answer on the way is right or names a
//! failure that there was.

use super::scenario::Step;
use super::truth::{State, Truth, apply};
use crate::world::*;
use ariel_store::{
    Fault, Keep, MemoryDisk, Options, Store, StoreError, fsck_memory, fsck_memory_with_engine,
};
use wire::*;

/// Which engine keeps the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A map in the disk.
    Map,
    /// redb on the same disk as the log.
    Redb,
}

impl Engine {
    pub fn open(self, disk: &MemoryDisk, options: &Options) -> Result<Store, StoreError> {
        match self {
            Self::Map if disk.files().is_empty() => Store::create_in_memory(disk, options),
            Self::Map => Store::open_in_memory(disk, options),
            Self::Redb => Store::on_memory_with_engine(disk, options),
        }
    }

    pub fn fsck(self, disk: &MemoryDisk) -> Result<ariel_store::Report, StoreError> {
        match self {
            Self::Map => fsck_memory(disk),
            Self::Redb => fsck_memory_with_engine(disk),
        }
    }
}

/// The description of a failure.
pub type Wrong = String;

/// How much the store promised to keep: lengths of the list of accepted steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promised {
    /// Over the end of the process.
    pub written: usize,
    /// Over the end of the machine.
    pub synced: usize,
}

/// A run.
pub struct Run<'a> {
    pub truth: &'a Truth<'a>,
    pub engine: Engine,
    pub options: Options,
    pub disk: MemoryDisk,
    pub store: Option<Store>,
    /// A healthy store, which gives the right answers.
    twin: Store,
    /// Numbers of the steps that were accepted.
    pub accepted: Vec<usize>,
    pub promised: Promised,
    pub sync_failed: bool,
    boot: u64,
    /// The planted fault, if there is one.
    fault: Option<Fault>,
    /// Ends at the first failure, as at the end of the machine.
    dies: bool,
    /// Something on the disk is damaged: it may be refused as that.
    pub damaged: bool,
}

/// An outcome, but for how much room files occupy.
fn without_room(outcome: &Outcome) -> Outcome {
    let mut outcome = outcome.clone();
    let attrs: Vec<&mut Attr> = match &mut outcome {
        Outcome::Attr(attr) => vec![attr],
        Outcome::Entry(entry) => vec![&mut entry.attr, &mut entry.dir],
        Outcome::Dir { entries, .. } => entries.iter_mut().flat_map(|e| &mut e.attr).collect(),
        _ => Vec::new(),
    };
    attrs.into_iter().for_each(|attr| attr.used_bytes = 0);
    outcome
}

/// The store cannot go on: the run ends.
pub struct Ended;

impl<'a> Run<'a> {
    /// Does what was done before, on a disk that works.
    pub fn new(truth: &'a Truth<'a>, engine: Engine, options: &Options) -> Result<Self, Wrong> {
        let mut run = Self {
            truth,
            engine,
            options: options.clone(),
            disk: MemoryDisk::new(),
            store: None,
            twin: truth.twin(&[]),
            accepted: Vec::new(),
            promised: Promised::default(),
            sync_failed: false,
            boot: 0,
            fault: None,
            dies: false,
            damaged: false,
        };
        if let Some(before) = &truth.scenario.before {
            let _ = run.open()?;
            for number in 0..before.len() {
                let _ = run.step(number)?;
            }
            run.store = None;
            run.disk.crash(truth.scenario.end);
            run.promised.written = run.least(truth.scenario.end);
        }
        Ok(run)
    }

    fn least(&self, keep: Keep) -> usize {
        match keep {
            Keep::Written => self.promised.written,
            _ => self.promised.synced,
        }
    }

    /// Opening, and the steps of the scenario, while something fails.
    pub fn go(&mut self, fault: Option<Fault>) -> Result<(), Wrong> {
        self.fault = fault;
        self.dies = fault == Some(Fault::Die);
        let before = self.truth.scenario.before.as_ref().map_or(0, Vec::len);
        if before == 0 && self.store.is_none() {
            self.promised = Promised::default();
        }
        if self.open_and_compare(self.truth.scenario.end)?.is_err() {
            return Ok(());
        }
        for number in before..before + self.truth.scenario.steps.len() {
            if self.step(number)?.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Is this error one that this failure may cause, and does it say what failed?
    fn named(&self, error: &StoreError) -> Result<(), Wrong> {
        let text = error.to_string();
        let known = match error {
            StoreError::Io { doing, .. } => doing.contains(' ') && self.fault.is_some(),
            StoreError::NoSpace => self.fault == Some(Fault::Full),
            StoreError::SyncFailed => self.sync_failed,
            _ => false,
        };
        let known = known && text.len() > 20;
        known.then_some(()).ok_or(format!("wrong error: {text}"))
    }

    fn refused(&self, refusal: Refusal) -> Result<(), Wrong> {
        let right = match refusal {
            Refusal::Disk => self.fault.is_some(),
            Refusal::NoSpace => self.fault == Some(Fault::Full),
            Refusal::Damaged => self.damaged,
            _ => false,
        };
        right
            .then_some(())
            .ok_or(format!("refused with {refusal:?}"))
    }

    /// Opens the store; again after a failure, which need not last.
    pub fn open(&mut self) -> Result<Result<(), Ended>, Wrong> {
        for _ in 0..2 {
            match self.engine.open(&self.disk, &self.options) {
                Ok(mut store) => {
                    let boot = store.boot();
                    if boot <= self.boot {
                        return Err(format!("opening {boot} follows opening {}", self.boot));
                    }
                    self.boot = boot;
                    self.sync_failed = false;
                    self.store = Some(store);
                    return Ok(Ok(()));
                }
                Err(error) => self.named(&error)?,
            }
            if self.dies {
                break;
            }
        }
        Ok(Err(Ended))
    }

    /// Opens what was left, and goes on from the prefix that it is.
    fn open_and_compare(&mut self, keep: Keep) -> Result<Result<(), Ended>, Wrong> {
        if self.open()?.is_err() {
            return Ok(Err(Ended));
        }
        // Looking must not be disturbed, and is not what is being tried here.
        let copy = self.disk.copy();
        let options = &self.options;
        let mut store = self
            .engine
            .open(&copy, options)
            .map_err(|e| e.to_string())?;
        let state = State::of(&mut store, self.truth.scenario);
        let least = self.least(keep);
        let prefix = self.truth.prefix(&state, &self.accepted, least);
        let prefix = prefix.ok_or(format!("opened: not a prefix of at least {least}"))?;
        self.accepted.truncate(prefix);
        self.promised = Promised {
            written: prefix,
            synced: prefix,
        };
        self.twin = self.truth.twin(&self.accepted);
        Ok(Ok(()))
    }

    fn done(&mut self, result: Result<(), StoreError>) -> Result<Result<(), Ended>, Wrong> {
        if let Err(error) = result {
            self.named(&error)?;
            return Ok(if self.dies { Err(Ended) } else { Ok(()) });
        }
        Ok(Ok(()))
    }

    fn step(&mut self, number: usize) -> Result<Result<(), Ended>, Wrong> {
        let step = self.truth.step(number);
        match step {
            Step::Do(..) | Step::OpenSession(_) | Step::CloseSession(_) => self.change(number),
            Step::WriteOut => {
                let result = self.write_out();
                self.done(result)
            }
            Step::Sync => {
                let result = self.sync();
                self.done(result)
            }
            Step::Checkpoint => {
                let result = self.live().checkpoint();
                self.note_sync_failure(&result);
                if result.is_ok() {
                    self.promise();
                }
                self.done(result)
            }
            Step::Look => self.look().map(Ok),
            Step::Close => self.close(),
            Step::Fsck => self.fsck(),
        }
    }

    pub fn live(&mut self) -> &mut Store {
        self.store.as_mut().expect("opened")
    }

    fn promise(&mut self) {
        self.promised = Promised {
            written: self.accepted.len(),
            synced: self.accepted.len(),
        };
    }

    fn write_out(&mut self) -> Result<(), StoreError> {
        self.live().write_out()?;
        self.promised.written = self.accepted.len();
        Ok(())
    }

    fn note_sync_failure(&mut self, result: &Result<(), StoreError>) {
        // It is known by what follows: everything is refused.
        let failed = self.live().sync_handle().sync().is_err();
        self.sync_failed |= result.is_err() && failed;
    }

    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.write_out()?;
        let result = self.live().sync_handle().sync();
        match &result {
            Ok(()) => self.promised.synced = self.promised.written,
            Err(_) => self.sync_failed = true,
        }
        result
    }

    fn change(&mut self, number: usize) -> Result<Result<(), Ended>, Wrong> {
        let step = self.truth.step(number);
        let outcome = apply(self.live(), step);
        if let Some(Outcome::Refused(refusal @ (Refusal::Disk | Refusal::NoSpace))) = outcome {
            self.refused(refusal)?;
            return Ok(if self.dies { Err(Ended) } else { Ok(()) });
        }
        if let (Some(Outcome::Refused(refusal)), None) = (&outcome, self.fault) {
            return Err(format!("step {number} is refused anyway: {refusal:?}"));
        }
        let right = apply(&mut self.twin, step);
        if outcome != right {
            return Err(format!("step {number}: {outcome:?}, and not {right:?}"));
        }
        self.accepted.push(number);
        Ok(Ok(()))
    }

    /// Every answer is the twin's, or that the disk failed.
    fn same(&self, got: &Outcome, right: &Outcome) -> Result<(), Wrong> {
        match got {
            Outcome::Refused(refusal) if got != right => self.refused(*refusal),
            _ if got == right => Ok(()),
            // Damaged bytes do not move into the index, so a file may occupy more than it would.
            _ if self.damaged && without_room(got) == without_room(right) => Ok(()),
            _ => Err(format!("seen: {got:?}, and not {right:?}")),
        }
    }

    fn ask(&mut self, op: &Op) -> Result<(), Wrong> {
        let got = run(self.live(), op);
        let right = run(&mut self.twin, op);
        self.same(&got, &right)
    }

    pub fn look(&mut self) -> Result<(), Wrong> {
        let state = self.truth.state(&self.accepted);
        self.ask(&Op::Lookup {
            dir: root(),
            name: name("nobody has this name"),
        })?;
        for (path, seen) in &state.objects {
            let fid = seen.fid;
            self.ask(&Op::GetAttr { fid })?;
            self.ask(&Op::ListXattr { fid })?;
            match seen.attr.kind {
                Kind::Directory => self.ask(&Op::ReadDir {
                    dir: fid,
                    after: 0,
                    max: 9,
                })?,
                Kind::Symlink => self.ask(&Op::ReadLink { fid })?,
                _ => self.read(fid)?,
            }
            if let Some(text) = path.strip_prefix('/').filter(|text| !text.contains('/')) {
                let (dir, name) = (root(), name(text));
                let known = self.live().lookup(dir, &name);
                if known.is_ok_and(|found| found != Some(fid)) {
                    return Err(format!("{path} is not found"));
                }
                self.ask(&Op::Lookup { dir, name })?;
            }
            if self.live().attr(fid).is_ok_and(|attr| attr.is_none()) {
                return Err(format!("{path} has no attributes"));
            }
        }
        let space = run(self.live(), &Op::StatFs);
        if let Outcome::Refused(refusal) = space {
            self.refused(refusal)?;
        }
        Ok(())
    }

    fn read(&mut self, fid: Fid) -> Result<(), Wrong> {
        let (mut got, mut right) = (Vec::new(), Vec::new());
        for offset in (0..).step_by(30_000).take(3) {
            let outcome = self.live().read(fid, offset, 30_000, &mut got);
            let expected = self.twin.read(fid, offset, 30_000, &mut right);
            self.same(&outcome, &expected)?;
            if outcome == expected && got != right {
                return Err(format!("{fid} reads otherwise from {offset} on"));
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<Result<(), Ended>, Wrong> {
        let store = self.store.take().expect("opened");
        match store.close() {
            Ok(()) => self.promise(),
            Err(error) => {
                // Whether it was a sync does not matter any more.
                self.sync_failed = true;
                self.named(&error)?;
            }
        }
        if self.dies && self.disk.hits() > 0 {
            return Ok(Err(Ended));
        }
        self.open_and_compare(Keep::Written)
    }

    fn fsck(&mut self) -> Result<Result<(), Ended>, Wrong> {
        let result = self.write_out();
        if self.done(result)?.is_err() {
            return Ok(Err(Ended));
        }
        self.store = None;
        match self.engine.fsck(&self.disk) {
            Ok(report) if report.is_clean() => {}
            // It may have been unable to read something; then it says so.
            Ok(report) if self.fault.is_some() && self.disk.hits() > 0 => {
                for damage in report.damages {
                    let text = damage.to_string();
                    if !text.contains("told to fail") && !text.contains("Previous I/O") {
                        return Err(format!("fsck invents damage: {text}"));
                    }
                }
            }
            Ok(report) => return Err(report.to_string()),
            Err(error) => self.named(&error)?,
        }
        if self.dies && self.disk.hits() > 0 {
            return Ok(Err(Ended));
        }
        self.open_and_compare(Keep::Written)
    }
}
