//! Bytes from outside: whatever they are, decoding returns, allocates nothing on the
//! strength of a claim, and lets nothing through that breaks a bound.

use crate::body;
use crate::support::{self, Random};
use wire::*;

#[test]
fn random_bytes_never_panic() {
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let len = random.below(200);
        let bytes = random.bytes(len);
        body::run(&bytes);
    }
}

fn encodings() -> Vec<Vec<u8>> {
    let clients = support::to_server()
        .into_iter()
        .map(|message| encode(&message));
    clients
        .chain(
            support::to_client()
                .into_iter()
                .map(|message| encode(&message)),
        )
        .collect()
}

#[test]
fn mutated_messages_never_panic() {
    let encodings = encodings();
    for seed in 0..40_000 {
        let mut random = Random(seed);
        let mut bytes = encodings[random.below(encodings.len())].clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
                1 if !bytes.is_empty() => bytes[at] = 0xff,
                2 => bytes.truncate(at),
                _ => bytes.insert(at, random.number() as u8),
            }
        }
        body::run(&bytes);
    }
}

#[test]
fn every_cut_message_is_refused() {
    for bytes in encodings() {
        for len in 0..bytes.len() {
            let cut = &bytes[..len];
            // A cut message may be another, shorter one, but never the same one.
            if let Ok(message) = decode::<ToServer>(cut) {
                assert_ne!(encode(&message), bytes);
            }
            if let Ok(message) = decode::<ToClient>(cut) {
                assert_ne!(encode(&message), bytes);
            }
        }
    }
}

#[test]
fn what_follows_a_message_is_refused() {
    for message in support::to_server() {
        let mut bytes = encode(&message);
        bytes.push(0);
        assert_eq!(
            decode::<ToServer>(&bytes),
            Err(DecodeError::Trailing),
            "{message:?}"
        );
    }
}

#[test]
fn messages_over_a_bound_are_refused() {
    let fid = support::fid(9);
    let over = [
        Op::Read {
            fid,
            offset: 0,
            len: limits::BULK_BYTES + 1,
        },
        Op::Read {
            fid,
            offset: limits::FILE_BYTES,
            len: 1,
        },
        Op::Read {
            fid,
            offset: u64::MAX,
            len: 1,
        },
        Op::Write {
            fid,
            offset: 0,
            len: u32::MAX,
            mode: WriteMode::At,
        },
        Op::ReadDir {
            dir: fid,
            after: 0,
            max: limits::DIR_ENTRIES as u32 + 1,
        },
        Op::SetAttr {
            fid,
            set: Set {
                size: Some(u64::MAX),
                ..Set::default()
            },
        },
        Op::GetXattr {
            fid,
            name: vec![b'x'; limits::NAME_BYTES + 1],
        },
        Op::SetXattr {
            fid,
            name: b"user.x".to_vec(),
            value: vec![0; limits::XATTR_VALUE_BYTES + 1],
            mode: XattrMode::Any,
        },
        Op::Make {
            dir: fid,
            name: support::name("l"),
            make: Make::Symlink(vec![b'x'; limits::TARGET_BYTES + 1]),
            mode: 0o777,
            open: None,
        },
    ];
    for op in over {
        let message = request(op, 1, Caller::default());
        assert_eq!(
            decode::<ToServer>(&encode(&message)),
            Err(DecodeError::Bounds),
            "{message:?}"
        );
    }
}

#[test]
fn greetings_and_requests_over_a_bound_are_refused() {
    let crowd = Caller {
        groups: Some(vec![1; limits::GROUPS + 1]),
        ..Caller::default()
    };
    for message in [
        request(Op::StatFs, 0, Caller::default()),
        request(Op::StatFs, 1, crowd),
        ToServer::Hello {
            version: VERSION,
            session: 0,
            name: vec![],
            volume: Vec::new(),
        },
        ToServer::Hello {
            version: VERSION,
            session: 1,
            name: vec![0; limits::TARGET_BYTES + 1],
            volume: Vec::new(),
        },
        ToServer::Hello {
            version: VERSION,
            session: 1,
            name: vec![],
            volume: vec![0; limits::NAME_BYTES + 1],
        },
    ] {
        assert_eq!(
            decode::<ToServer>(&encode(&message)),
            Err(DecodeError::Bounds),
            "{message:?}"
        );
    }
    let long = vec![0; limits::BODY_BYTES + 1];
    assert_eq!(decode::<ToClient>(&long), Err(DecodeError::Bounds));
}

#[test]
fn numbers_of_changes_that_cannot_be_reckoned_with_are_refused() {
    let (watch, fid, most) = (1, Fid::root(1), limits::CHANGES);
    let says = |next| {
        let recursive = true;
        let watches = ToServer::Watch {
            watch,
            fid,
            recursive,
            next,
        };
        [watches, ToServer::Took { watch, next }]
    };
    let told = |first| ToClient::Watched {
        watch,
        first,
        missed: true,
        changes: vec![],
        end: None,
    };
    for message in says(most / 2) {
        assert_eq!(decode::<ToServer>(&encode(&message)), Ok(message));
    }
    assert_eq!(decode::<ToClient>(&encode(&told(most))), Ok(told(most)));
    for message in says(most / 2 + 1).into_iter().chain(says(u64::MAX)) {
        let decoded = decode::<ToServer>(&encode(&message));
        assert_eq!(decoded, Err(DecodeError::Bounds), "{message:?}");
    }
    for first in [most + 1, u64::MAX] {
        let decoded = decode::<ToClient>(&encode(&told(first)));
        assert_eq!(decoded, Err(DecodeError::Bounds), "{first}");
    }
}

fn request(op: Op, id: RequestId, caller: Caller) -> ToServer {
    ToServer::Request(Request {
        caller,
        ..Request::new(id, op)
    })
}

/// Ranges that end before they begin, and part of a whole.
#[test]
fn locks_of_no_range_are_refused() {
    let lock = |owner, first, last| Lock {
        owner,
        mode: LockMode::Shared,
        first,
        last,
        pid: 1,
    };
    let wrong = [
        lock(LockOwner::Bytes(1), 2, 1),
        lock(LockOwner::Whole(1), 1, u64::MAX),
        lock(LockOwner::Whole(1), 0, 9),
    ];
    for lock in wrong {
        let (fid, wait) = (Fid::root(1), LockWait::Never);
        let Lock {
            owner, first, last, ..
        } = lock;
        let asked = [
            Op::Lock { fid, lock, wait },
            Op::TestLock { fid, lock },
            Op::Unlock {
                fid,
                owner,
                first,
                last,
            },
            Op::GiveLocks {
                fid,
                upto: 1,
                decided: 1,
                held: Some(vec![lock]),
            },
        ];
        let asked = asked.map(|op| request(op, 1, Caller::default()));
        let said = ToServer::Reassert {
            term: 1,
            part: (0, 1),
            again: 0,
            holdings: vec![],
            unseen: vec![],
            locks: vec![HeldLock { fid, lock }],
        };
        for message in asked.iter().chain([&said]) {
            let decoded = decode::<ToServer>(&encode(message));
            assert_eq!(decoded, Err(DecodeError::Bounds), "{message:?}");
        }
    }
}

#[test]
fn names_that_are_no_names_are_refused() {
    let good = encode(&request(
        Op::Unlink {
            dir: support::fid(1),
            name: support::name("ab"),
        },
        1,
        Caller::default(),
    ));
    let at = good
        .windows(3)
        .position(|part| part == [2, b'a', b'b'])
        .unwrap();
    for bad in [*b"..", *b"a/", *b"\0b"] {
        let mut bytes = good.clone();
        bytes[at + 1..at + 3].copy_from_slice(&bad);
        assert_eq!(
            decode::<ToServer>(&bytes),
            Err(DecodeError::Malformed),
            "{bad:?}"
        );
    }
}

/// The length before `text` in an encoding is replaced by one that claims 2^60 elements. Memory for
/// so many could not be had: the test would die of asking for it.
fn claiming(bytes: &[u8], text: &[u8]) -> Vec<u8> {
    let claim = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
    let mut prefix = vec![text.len() as u8];
    prefix.extend(text);
    let at = bytes
        .windows(prefix.len())
        .position(|part| part == prefix)
        .unwrap();
    [&bytes[..at], &claim[..], &bytes[at + 1..]].concat()
}

#[test]
fn a_claimed_length_is_not_allocated() {
    let fid = support::fid(9);
    let value = b"value".to_vec();
    let xattr = Op::SetXattr {
        fid,
        name: b"user.x".to_vec(),
        value,
        mode: XattrMode::Any,
    };
    let hello = ToServer::Hello {
        version: VERSION,
        session: 1,
        name: b"host".to_vec(),
        volume: Vec::new(),
    };
    let named = request(
        Op::Unlink {
            dir: fid,
            name: support::name("gone"),
        },
        1,
        Caller::default(),
    );
    let crowd = Caller {
        groups: Some(vec![3, 5, 7]),
        ..Caller::default()
    };
    let cases = [
        claiming(&encode(&request(xattr, 1, Caller::default())), b"value"),
        claiming(&encode(&hello), b"host"),
        claiming(&encode(&named), b"gone"),
        claiming(&encode(&request(Op::StatFs, 1, crowd)), &[3, 5, 7]),
    ];
    for bytes in cases {
        assert_eq!(decode::<ToServer>(&bytes), Err(DecodeError::Malformed));
    }
    // Lists of structures: the count stands right behind the kind of the message.
    let reassert = ToServer::Reassert {
        term: 1,
        part: (0, 1),
        again: 0,
        holdings: vec![],
        unseen: vec![],
        locks: vec![],
    };
    let mut bytes = encode(&reassert);
    let at = bytes.len() - 3;
    bytes.splice(
        at..=at,
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    );
    assert_eq!(decode::<ToServer>(&bytes), Err(DecodeError::Malformed));
}

/// Only changes are asked for again, and not as what has been answered before it was sent.
#[test]
fn what_is_no_change_is_not_asked_for_again() {
    let again = |op: Op, after, delegated| {
        let ToServer::Request(mut request) = request(op, 9, Caller::default()) else {
            unreachable!("it was made as a request");
        };
        request.again = Some(Box::new(Again {
            place: Place::default(),
            index: 0,
            at: 1,
            chosen: Chosen::default(),
            named: [None; 2],
        }));
        (request.after, request.delegated) = (after, delegated);
        decode::<ToServer>(&encode(&ToServer::Request(request))).is_ok()
    };
    let unlink = || Op::Unlink {
        dir: Fid::root(1),
        name: Name::new(b"n").unwrap(),
    };
    let delegated = Delegated {
        at: 1,
        chosen: Chosen::default(),
        unseen: false,
        named: [None; 2],
    };
    assert!(again(unlink(), 0, None));
    assert!(!again(unlink(), 8, None));
    assert!(!again(unlink(), 0, Some(delegated)));
    assert!(!again(Op::StatFs, 0, None));
}
