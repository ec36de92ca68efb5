//! Messages about blocks that clients keep for each other: versions 22 to 24 of the protocol.

use super::{elsewhere, fid};
use wire::{
    Elsewhere, Handed, Last, Leaving, Lenders, Op, Outcome, Request, Spare, ToClient, ToServer,
    limits,
};

/// Those that version 22 of the protocol has added.
pub fn kept_to_server() -> Vec<ToServer> {
    let leaving = |chances| Leaving {
        fid: fid(9),
        version: 1 << 33,
        first: 511,
        count: limits::LENT_BLOCKS,
        idle_ms: 86_400_000,
        chances,
    };
    let spare = Spare {
        free: 1 << 20,
        idle_ms: 60_000,
    };
    let blocks = vec![leaving(None), leaving(Some(1))];
    vec![
        ToServer::Leaving { blocks, spare },
        ToServer::Leaving {
            blocks: Vec::new(),
            spare: Spare::default(),
        },
    ]
}

/// The same of a server.
pub fn kept_to_client() -> Vec<ToClient> {
    let handed = Handed {
        from: elsewhere(),
        idle_ms: 120_000,
        chances: 1,
    };
    vec![
        ToClient::Share {
            copies_weigh: 32,
            others_weigh: 1024,
        },
        ToClient::Take(handed),
    ]
}

/// Those of a server that version 23 has added.
pub fn last_to_client() -> Vec<ToClient> {
    let last = |first| Last {
        fid: fid(9),
        version: 1 << 33,
        first,
        count: limits::LENT_BLOCKS,
    };
    vec![ToClient::Last(vec![last(0), last(1 << 20)])]
}

/// A request of version 24: for bytes that only a kernel is to keep.
pub fn passing_to_server() -> Vec<ToServer> {
    let read = Op::Read {
        fid: fid(9),
        offset: 1 << 20,
        len: 1 << 18,
    };
    let request = Request {
        keeps: true,
        lenders: Lenders::Passing,
        ..Request::new(7, read)
    };
    vec![ToServer::Request(request)]
}

/// Its answer: the file is read again.
pub fn passing_to_client() -> Vec<ToClient> {
    let reply = Outcome::Elsewhere(Elsewhere::nobody(fid(9))).into();
    vec![ToClient::Reply {
        id: 7,
        reply,
        clock: 1 << 40,
        renews: true,
        stable: 300,
    }]
}
