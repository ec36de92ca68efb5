//! Encoded messages come back as they were: every kind of message, generated values in them, and
//! the encodings in `vectors`, a file for each version, which programs have written.

use crate::support;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Write};
use std::path::Path;
use wire::*;

#[test]
fn every_kind_of_message_comes_back() {
    for message in support::to_server() {
        assert_eq!(decode::<ToServer>(&encode(&message)).as_ref(), Ok(&message));
    }
    for message in support::to_client() {
        assert_eq!(decode::<ToClient>(&encode(&message)).as_ref(), Ok(&message));
    }
}

fn any_fid() -> impl Strategy<Value = Fid> {
    (any::<u32>(), any::<u64>(), any::<u32>()).prop_map(|(volume, vnode, uniq)| Fid {
        volume,
        vnode,
        uniq,
    })
}

fn any_name() -> impl Strategy<Value = Name> {
    proptest::collection::vec(any::<u8>(), 1..=limits::NAME_BYTES)
        .prop_filter_map("not a name", |bytes| Name::new(&bytes).ok())
}

fn any_hold() -> impl Strategy<Value = Hold> {
    (any::<bool>(), any::<bool>(), any::<u64>()).prop_map(|(open, write, stamp)| Hold {
        open,
        write,
        stamp,
    })
}

fn any_right() -> impl Strategy<Value = Right> {
    prop_oneof![
        Just(Right::None),
        Just(Right::Transient),
        Just(Right::Shared),
        Just(Right::Exclusive)
    ]
}

fn any_attr() -> impl Strategy<Value = Attr> {
    let small = (
        0..0o10000_u16,
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
    );
    let large = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (small, large, any::<u64>(), any::<u64>()).prop_map(|(small, large, ctime, version)| Attr {
        kind: Kind::Character,
        mode: small.0,
        uid: small.1,
        gid: small.2,
        nlink: small.3,
        size: large.0,
        used_bytes: large.1,
        rdev: small.4,
        atime: large.2,
        mtime: large.3,
        ctime,
        btime: ctime ^ version,
        version,
    })
}

fn any_op() -> impl Strategy<Value = Op> {
    let len = 0..=limits::BULK_BYTES;
    let offset = 0..limits::FILE_BYTES / 2;
    let mode = prop_oneof![
        Just(WriteMode::At),
        Just(WriteMode::Append),
        Just(WriteMode::Lazy),
        any::<[u64; 3]>().prop_map(|[size, mtime, ctime]| WriteMode::Back { size, mtime, ctime }),
    ];
    prop_oneof![
        (any_fid(), any_name()).prop_map(|(dir, name)| Op::Lookup { dir, name }),
        (any_fid(), offset.clone(), len.clone()).prop_map(|(fid, offset, len)| Op::Read {
            fid,
            offset,
            len
        }),
        (any_fid(), offset, len, mode).prop_map(|(fid, offset, len, mode)| Op::Write {
            fid,
            offset,
            len,
            mode
        }),
        (
            any_fid(),
            any_name(),
            any_fid(),
            any_name(),
            any::<bool>(),
            any::<bool>()
        )
            .prop_map(|(from, name, to, new, no_replace, exchange)| {
                Op::Rename {
                    from,
                    name,
                    to,
                    new,
                    no_replace,
                    exchange,
                }
            }),
        (any_fid(), any::<bool>(), any::<bool>()).prop_map(|(fid, read, write)| Op::Open {
            fid,
            access: Access { read, write }
        }),
    ]
}

proptest! {
    #[test]
    fn generated_requests_come_back(
        id in 1..u64::MAX,
        acked in any::<u64>(),
        op in any_op(),
        groups in proptest::option::of(proptest::collection::vec(any::<u32>(), 0..40)),
        hold in any_hold(),
        (keeps, ahead, clock) in any::<(bool, u32, u64)>(),
        (at, vnode, position, unseen) in any::<(u64, u64, u64, bool)>(),
        before in 0..u64::MAX,
    ) {
        let caller = Caller { uid: 1, gid: 2, groups };
        let after = before.min(id - 1);
        let vnode = u64::from(matches!(op, Op::Make { .. })) * vnode.max(1);
        let names = vnode != 0 || matches!(op, Op::Rename { .. } | Op::Link { .. });
        let position = u64::from(names) * (position % limits::POSITIONS);
        let chosen = Chosen { vnode, position };
        let delegated = op.may_be_delegated().then_some(Delegated {
            at, chosen, unseen, named: [None; 2],
        });
        let request = Request {
            id, acked, op, caller, hold, keeps, ahead, clock, delegated, after,
            again: None,
            lenders: wire::Lenders::None,
        };
        let message = ToServer::Request(request);
        prop_assert_eq!(decode::<ToServer>(&encode(&message)), Ok(message));
    }

    #[test]
    fn generated_answers_to_recalls_come_back(
        fid in any_fid(),
        (epoch, upto) in (any::<u64>(), any::<u64>()),
        right in any_right(),
        hold in any_hold(),
        attr in proptest::option::of(any_attr()),
    ) {
        let message = ToServer::Returned(Returned { fid, epoch, right, upto, hold, attr });
        prop_assert_eq!(decode::<ToServer>(&encode(&message)), Ok(message));
    }

    #[test]
    fn generated_replies_come_back(
        id in any::<u64>(),
        (fid, attr, dir) in (any_fid(), any_attr(), any_attr()),
        grants in proptest::collection::vec(
            (any_fid(), any_right(), any::<u64>(), any::<bool>()),
            0..5,
        ),
        (heard, clock, record, stable) in any::<(u64, u64, u64, u64)>(),
    ) {
        let one = |(fid, right, epoch, bare)| Grant { fid, right, epoch, bare };
        let grants = grants.into_iter().map(one).collect();
        let outcome = Outcome::Entry(Entry { fid, attr, dir });
        let logged = Some(Logged { record, at: clock });
        let reply = Reply { outcome, grants, heard, logged, aside: None };
        let renews = id % 2 == 0;
        let message = ToClient::Reply { id, reply, clock, renews, stable };
        prop_assert_eq!(decode::<ToClient>(&encode(&message)), Ok(message));
    }

    #[test]
    fn generated_recalls_of_names_come_back(
        fid in any_fid(),
        epoch in any::<u64>(),
        names in proptest::collection::vec(any_name(), 0..4),
    ) {
        let message = ToClient::Recall(Recall { fid, epoch, what: What::Names(names) });
        prop_assert_eq!(decode::<ToClient>(&encode(&message)), Ok(message));
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

/// Written only when the file is missing: the encodings in it were sent by programs that exist, and
/// a change of it is a change of the protocol, which needs another `VERSION` and a file of its own.
fn write_vectors(path: &Path, version: u32, (clients, servers): (&[ToServer], &[ToClient])) {
    let mut text = format!(
        "# Encodings of what version {version} of the protocol added: who sends it, bytes in \
         hexadecimal. Never edited: a\n\
         # change here breaks programs that run. `round_trip.rs` says what each must decode to.\n",
    );
    for message in clients {
        writeln!(text, "client {}", hex(&encode(message))).unwrap();
    }
    for message in servers {
        writeln!(text, "server {}", hex(&encode(message))).unwrap();
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn old_encodings_decode_to_the_same() {
    let of_20 = support::first_to_client();
    assert_old_encodings(20, &support::first_to_server(), &of_20);
    assert_old_encodings(21, &support::added_to_server(), &[]);
    let of_22 = support::kept_to_client();
    assert_old_encodings(22, &support::kept_to_server(), &of_22);
    assert_old_encodings(23, &[], &support::last_to_client());
    let of_24 = support::passing_to_client();
    assert_old_encodings(24, &support::passing_to_server(), &of_24);
    assert_old_encodings(25, &[], &support::stalled_to_client());
}

fn assert_old_encodings(version: u32, clients: &[ToServer], servers: &[ToClient]) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/vectors/messages-{version}.txt"));
    if !path.exists() && std::env::var_os("UPDATE").is_some() {
        write_vectors(&path, version, (clients, servers));
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut clients, mut servers) = (clients.iter(), servers.iter());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(' ').unwrap() {
            ("client", bytes) => assert_is(clients.next(), line, bytes),
            ("server", bytes) => assert_is(servers.next(), line, bytes),
            (other, _) => panic!("`{other}` is no sender"),
        }
    }
    assert!(
        clients.next().is_none() && servers.next().is_none(),
        "a sample of version {version} has no line yet"
    );
}

fn assert_is<M>(sample: Option<&M>, line: &str, bytes: &str)
where
    M: Bounded + Serialize + DeserializeOwned + PartialEq + Debug,
{
    let sample = sample.expect("a sample for each line");
    assert_eq!(decode::<M>(&unhex(bytes)).as_ref(), Ok(sample), "{line}");
    assert_eq!(hex(&encode(sample)), bytes, "{sample:?}");
}

#[test]
fn the_operations_of_a_version_are_those_that_say_so() {
    let since = |message: &ToServer| match message {
        ToServer::Request(request) => request.op.since(),
        _ => 20,
    };
    assert!(support::first_to_server().iter().all(|m| since(m) == 20));
    assert!(support::added_to_server().iter().all(|m| since(m) == 21));
    assert_eq!((VERSION_OLDEST, VERSION), (20, 25));
}
