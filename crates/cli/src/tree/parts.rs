//! Parts of streams on their way: what commands that send, receive and release have in common.
//!
//! Guarantees: while one part is worked on the next one is fetched, and no more, so the memory that
//! it takes does not depend on the volume; nothing is sent twice after a server lost its power but
//! what came last.

use files::Tree;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use wire::{Blob, Dump, Name, Refusal, VolumeInfo, VolumeOp};

/// Parts that are fetched before they are worked on.
const AHEAD: usize = 1;
/// The server's disk has what came when so many bytes more have come: nothing before that has to be
/// sent again if its power fails.
const STABLE_BYTES: u64 = 32 << 20;
/// The server removes what was given up in the background: how often it is asked whether it has.
const POLLS: u32 = 1200;
const POLL: Duration = Duration::from_millis(100);

/// A snapshot, and the one since which it is sent.
pub(super) type Range<'a> = (&'a Name, Option<&'a Name>);

/// Fetches all parts behind the first one, and works on each in turn.
pub(super) fn each_part<E>(
    tree: &Tree,
    range: Range<'_>,
    first: Dump,
    told: impl Fn(Refusal) -> E,
    mut work: impl FnMut(Dump) -> Result<(), E>,
) -> Result<(), E> {
    thread::scope(|scope| {
        let (sender, fetched) = mpsc::sync_channel(AHEAD);
        let mut after: Option<Blob> = first.next.clone();
        scope.spawn(move || {
            while let Some(from) = after.take() {
                let dump = tree.dump(range, Some(from), false);
                after = dump.as_ref().ok().and_then(|dump| dump.next.clone());
                if sender.send(dump).is_err() {
                    return;
                }
            }
        });
        work(first)?;
        for dump in fetched {
            work(dump.map_err(&told)?)?;
        }
        Ok(())
    })
}

/// Does it as soon as what was given up before is removed.
pub(super) fn when_free(tree: &Tree, op: &VolumeOp) -> Result<Option<VolumeInfo>, Refusal> {
    for _ in 0..POLLS {
        match tree.try_volume(op.clone()) {
            // The server sends no event when its sweep is over: this polls for two minutes.
            Err(Refusal::Busy) => thread::sleep(POLL),
            other => return other,
        }
    }
    Err(Refusal::Busy)
}

/// Bytes that a server was sent since its disk had all.
#[derive(Default)]
pub(super) struct Unstable(u64);

impl Unstable {
    /// So many more: from time to time the server's disk has all.
    pub(super) fn sent(&mut self, tree: &Tree, bytes: u64) -> files::Result<()> {
        self.0 += bytes;
        if self.0 < STABLE_BYTES {
            return Ok(());
        }
        self.0 = 0;
        tree.sync("/")
    }
}
