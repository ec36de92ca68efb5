//! Messages about blocks that clients keep for each other: versions 22 and 23 of the protocol.

use super::{elsewhere, fid};
use wire::{Handed, Last, Leaving, Spare, ToClient, ToServer, limits};

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
