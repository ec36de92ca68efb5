//! After a run: the store goes on, or refuses clearly until it is opened again; and whatever ends
//! the process or the machine, what was promised is there, and stays.

use super::run::{Engine, Run, Wrong};
use super::scenario::Step;
use super::truth::{State, Truth, apply};
use crate::world::*;
use ariel_store::{Failure, Fault, Keep, MemoryDisk, Options, StoreError, Verb};
use std::panic::{AssertUnwindSafe, catch_unwind};
use wire::*;

/// One thing to try: a scenario in which one call goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub engine: Engine,
    pub failure: Failure,
    /// The changes that the end of the machine leaves then.
    pub keep: Keep,
}

/// Tries a point. `Ok(false)`: the call was never made.
pub fn attempt(truth: &Truth<'_>, point: Point, options: &Options) -> Result<bool, Wrong> {
    let tried = catch_unwind(AssertUnwindSafe(|| try_it(truth, point, options)));
    tried.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("?")))
    })
}

fn try_it(truth: &Truth<'_>, point: Point, options: &Options) -> Result<bool, Wrong> {
    let mut run = Run::new(truth, point.engine, options)?;
    run.disk.fail(point.failure);
    run.go(Some(point.failure.fault))?;
    let hit = run.disk.hits() > 0;
    run.disk.heal();
    let left = run.disk.copy();
    if point.failure.fault != Fault::Die {
        goes_on(&mut run)?;
        ends(&run, &left, Keep::Written)?;
    }
    run.store = None;
    ends(&run, &left, point.keep)?;
    Ok(hit)
}

/// The disk works again: the store shows what it must, and takes more, unless a sync had failed.
fn goes_on(run: &mut Run<'_>) -> Result<(), Wrong> {
    if run.store.is_none() && run.open()?.is_err() {
        return Err("it does not open although the disk works again".to_owned());
    }
    let (truth, scenario) = (run.truth, run.truth.scenario);
    let state = State::of(run.live(), scenario);
    if truth
        .prefix(&state, &run.accepted, run.promised.written)
        .is_none()
    {
        return Err("the live store shows something else".to_owned());
    }
    let report = run.live().check();
    if !report.is_clean() {
        return Err(format!("the live store is damaged: {report}"));
    }
    let probe = Step::Do(
        make_op(root(), "probe", Make::File, 0o644),
        Vec::new(),
        None,
    );
    let outcome = apply(run.live(), &probe);
    if run.sync_failed {
        let refused = outcome == Some(Outcome::Refused(Refusal::Disk));
        let again = run.live().sync_handle().sync().is_err();
        return match refused && again {
            true => Ok(()),
            false => Err(format!("a sync failed, and it goes on: {outcome:?}")),
        };
    }
    if !matches!(outcome, Some(Outcome::Entry(_))) {
        return Err(format!("it does not go on: {outcome:?}"));
    }
    run.live().checkpoint().map_err(|e| e.to_string())
}

/// The process or the machine ends, and the disk as it is left is opened.
fn ends(run: &Run<'_>, left: &MemoryDisk, keep: Keep) -> Result<(), Wrong> {
    let disk = left.copy();
    disk.crash(keep);
    let wrong = |text: String| format!("after {keep:?}: {text}");
    let least = match keep {
        Keep::Written => run.promised.written,
        _ => run.promised.synced,
    };
    let created = run.promised.written > 0 || run.truth.scenario.before.is_some();
    if created {
        let report = run.engine.fsck(&disk).map_err(|e| wrong(e.to_string()))?;
        if !report.is_clean() {
            return Err(wrong(format!("fsck: {report}")));
        }
    }
    let open = |disk: &MemoryDisk| {
        let opened = run.engine.open(disk, &run.options);
        opened.map_err(|e| wrong(e.to_string()))
    };
    let scenario = run.truth.scenario;
    let mut store = open(&disk)?;
    let state = State::of(&mut store, scenario);
    if run.truth.prefix(&state, &run.accepted, least).is_none() {
        return Err(wrong(format!("not a prefix of at least {least}")));
    }
    let report = store.check();
    if !report.is_clean() {
        return Err(wrong(format!("opened: {report}")));
    }
    drop(store);
    // Somebody may have seen it: it must stay.
    disk.crash(Keep::Synced);
    let again = State::of(&mut open(&disk)?, scenario);
    match again == state {
        true => Ok(()),
        false => Err(wrong("what was opened is lost with the machine".to_owned())),
    }
}

/// After a whole scenario a byte of the log rots: opening says so, or everything that is shown
/// is as it was. `Ok(false)`: there is no such byte.
pub fn rot(truth: &Truth<'_>, at: u64, options: &Options) -> Result<bool, Wrong> {
    let tried = catch_unwind(AssertUnwindSafe(|| try_rot(truth, at, options)));
    tried.unwrap_or_else(|_| Err("panic".to_owned()))
}

fn try_rot(truth: &Truth<'_>, mut at: u64, options: &Options) -> Result<bool, Wrong> {
    let mut run = Run::new(truth, Engine::Map, options)?;
    run.go(None)?;
    run.sync().map_err(|e| e.to_string())?;
    // A damaged last record cannot be told from a torn end: let it be one that shows nothing.
    run.live().open_session(99, 7);
    run.sync().map_err(|e| e.to_string())?;
    run.store = None;
    run.disk.crash(Keep::Synced);
    for (file, len) in run.disk.files() {
        if at < len {
            run.damaged = run.disk.flip(&file, at);
            break;
        }
        at -= len;
    }
    match run.engine.open(&run.disk, &run.options) {
        Ok(store) => run.store = Some(store),
        Err(StoreError::Damaged(_)) => return Ok(run.damaged),
        Err(error) => return Err(error.to_string()),
    }
    run.look()?;
    Ok(run.damaged)
}

/// How often each verb is used by a scenario.
pub fn uses(truth: &Truth<'_>, engine: Engine) -> Result<Vec<(Option<Verb>, u64)>, Wrong> {
    let mut run = Run::new(truth, engine, &truth.scenario.options)?;
    let count = |disk: &MemoryDisk| {
        let verbs = Verb::ALL.map(|verb| (Some(verb), disk.calls_of(verb)));
        let mut counts = verbs.to_vec();
        counts.push((None, disk.calls()));
        counts
    };
    let before = count(&run.disk);
    run.go(None)?;
    let mut counts = count(&run.disk);
    for ((_, count), (_, before)) in counts.iter_mut().zip(before) {
        *count -= before;
    }
    Ok(counts)
}
