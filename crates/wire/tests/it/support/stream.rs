//! Samples of the parts of volumes' streams.

use super::{attr, name};
use wire::*;

pub fn identity(number: u32) -> Identity {
    Identity {
        partition: u64::MAX - 5,
        number,
        made: 1 << 60,
    }
}

pub fn stream_head() -> StreamHead {
    StreamHead {
        volume: identity(1),
        snapshot: identity(7),
        name: name("monday"),
        since: Some(identity(5)),
        objects: 1 << 40,
        bytes: 1 << 50,
    }
}

pub fn provenance() -> Provenance {
    Provenance {
        identity: identity(3),
        copy_of: Some(identity(4)),
        receiving: Some(Receiving {
            head: stream_head(),
            chunks: 9,
            after: Blob(vec![9; 40]),
            undoing: true,
        }),
    }
}

/// One piece of each kind, and bytes.
pub fn stream_chunk() -> StreamChunk {
    let child = Child {
        name: name("x"),
        vnode: limits::STREAM_VNODES - 1,
        uniq: 1,
        kind: Kind::Symlink,
    };
    StreamChunk {
        pieces: vec![
            StreamPiece::Object {
                vnode: 1,
                uniq: 1,
                attr: attr(),
                parent: 0,
                home: u64::MAX,
                next_position: 9,
                inline: 5,
            },
            StreamPiece::Gone { vnode: 5 },
            StreamPiece::Place {
                dir: 1,
                position: (1 << 40) - 1,
                child: Some(child),
            },
            StreamPiece::Xattr {
                vnode: 2,
                name: b"user.a".to_vec(),
                value: Some(Blob(vec![5; 100])),
            },
            StreamPiece::Target {
                vnode: 3,
                target: Blob(b"there".to_vec()),
            },
            StreamPiece::Bytes {
                vnode: 2,
                offset: 1 << 49,
                len: 300,
                inline: true,
            },
            StreamPiece::Hole {
                vnode: 2,
                from: 0,
                to: limits::FILE_BYTES,
            },
        ],
        bytes: Blob(vec![6; 300]),
    }
}
