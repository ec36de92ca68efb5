//! Positions in listings: kernels and programs go on behind one that they were told earlier, by
//! what the client knows or by what the server says. So a name that is made once, and that nothing
//! else is done to, has one position for as long as it names that object, and no other such name
//! has it.

use super::Case;
use crate::history::Effect;
use crate::wrong::{Wrong, wrong};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Fid, Name};

/// The part of a position above this says which listing it belongs to.
const POSITIONS: u64 = 1 << 40;

pub(super) fn judge(case: &Case<'_>) -> Result<(), Wrong> {
    // A name that a machine or a disk has lost may be made again elsewhere.
    if !case.restored.is_empty() || !case.history.losses.borrow().is_empty() {
        return Ok(());
    }
    let restless = restless(case);
    let mut stands = BTreeMap::new();
    let mut taken = BTreeMap::new();
    for listed in &*case.history.listed.borrow() {
        let position = listed.position % POSITIONS;
        let named = (listed.dir, listed.name.clone(), listed.fid);
        if restless.contains(&(listed.dir, listed.name.clone())) {
            continue;
        }
        let before = *stands.entry(named.clone()).or_insert(position);
        if before != position {
            return Err(wrong!("{listed:?} stood at {before} before"));
        }
        let other = taken
            .entry((listed.dir, position))
            .or_insert_with(|| named.clone());
        if *other != named {
            return Err(wrong!("{listed:?} stands where {other:?} does"));
        }
    }
    Ok(())
}

/// Names that something was done to beside their making.
fn restless(case: &Case<'_>) -> BTreeSet<(Fid, Name)> {
    let mut made = BTreeSet::new();
    let mut restless = BTreeSet::new();
    for change in &*case.history.changes.borrow() {
        match &change.effect {
            Effect::Make { dir, name, .. } | Effect::Link { dir, name, .. } => {
                let name = (*dir, name.clone());
                if !made.insert(name.clone()) {
                    restless.insert(name);
                }
            }
            Effect::Remove { dir, name, .. } => {
                restless.insert((*dir, name.clone()));
            }
            Effect::Rename { from, to, .. } => restless.extend([from.clone(), to.clone()]),
            Effect::Exchange { names } => restless.extend(names.clone()),
            _ => {}
        }
    }
    restless
}
