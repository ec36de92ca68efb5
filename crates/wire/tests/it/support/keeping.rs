//! Messages that versions 22 to 25 of the protocol have added: most of them are about blocks that
//! clients keep for each other.

use super::{elsewhere, fid};
use wire::{
    Elsewhere, Fid, Handed, Last, Leaving, Lenders, Op, Outcome, Request, Rights, Spare, ToClient,
    ToServer, Welcome, limits,
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

/// A welcome of version 25, which renews nothing.
pub fn stalled_to_client() -> Vec<ToClient> {
    vec![ToClient::Welcome(Welcome {
        boot: 1 << 40,
        term: 1 << 40,
        root: Fid::root(7),
        resumed: true,
        lease_ns: 0,
        clock: 1 << 60,
        left: vec![],
        rights: Rights::all(),
    })]
}
