//! Bytes of small files that go with an answer about names, for a client that may cache them and
//! wants them: it will mostly read them next. Nothing comes without a grant of the file in the same
//! answer.

use crate::server::api::Bulk;
use crate::server::rules::Want;
use crate::server::{Server, Step};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::limits::{AHEAD_BYTES, BULK_BYTES};
use wire::{Attr, DirEntry, Fid, Grant, Kind, Op, Outcome, Request, Right, SessionId};

/// The bytes that go beside this answer.
pub(crate) fn bytes_ahead(
    step: &mut Step<'_>,
    (server, session, request): (&Server, SessionId, &Request),
    (outcome, grants): (&mut Outcome, &[Grant]),
) -> Bulk {
    if request.ahead == 0 {
        return 0;
    }
    let most = request.ahead.min(AHEAD_BYTES);
    match (&request.op, outcome) {
        (Op::Lookup { .. }, Outcome::Entry(entry)) => {
            let granted = |grant: &Grant| grant.fid == entry.fid && grant.right >= Right::Shared;
            let reaches = reaches(step, (server, session), entry.fid);
            let wanted = wanted(&entry.attr, most).filter(|_| reaches);
            match wanted.filter(|_| grants.iter().any(granted)) {
                Some(size) => step.disk.read_whole(&[(entry.fid, size)]).1,
                None => 0,
            }
        }
        (Op::ReadDir { .. } | Op::Prefetch { .. }, Outcome::Dir { entries, .. }) => {
            let covers = |grant: &&Grant| grant.right >= Right::Shared;
            let granted = grants.iter().filter(covers).map(|grant| grant.fid);
            listed(step, (entries, most), (server, session), &granted.collect())
        }
        _ => 0,
    }
}

/// Those of the entries of a listing, as many as there is room for.
fn listed(
    step: &mut Step<'_>,
    (entries, most): (&mut [DirEntry], u32),
    of: (&Server, SessionId),
    granted: &BTreeSet<Fid>,
) -> Bulk {
    let mut files: Vec<(Fid, u32)> = Vec::new();
    let mut places = Vec::new();
    let mut room = BULK_BYTES;
    for (at, entry) in entries.iter().enumerate() {
        let reached = entry.attr.as_ref();
        let reached = reached.filter(|_| reaches(step, of, entry.fid));
        let size = reached.and_then(|attr| wanted(attr, most));
        let Some(size) = size.filter(|_| granted.contains(&entry.fid)) else {
            continue;
        };
        if size > room {
            break;
        }
        room -= size;
        places.push(at);
        files.push((entry.fid, size));
    }
    if files.is_empty() {
        return 0;
    }
    let (lens, bulk) = step.disk.read_whole(&files);
    for (at, len) in places.into_iter().zip(lens) {
        entries[at].ahead = len;
    }
    bulk
}

/// Might anybody of the client's machine read the file?
fn reaches(step: &Step<'_>, (server, id): (&Server, SessionId), fid: Fid) -> bool {
    server.in_reach(step.disk, id, (fid, Want::Read)).is_ok()
}

/// How many bytes that is.
fn wanted(attr: &Attr, most: u32) -> Option<u32> {
    let fits = attr.kind == Kind::File && (1..=u64::from(most)).contains(&attr.size);
    fits.then_some(attr.size as u32)
}
