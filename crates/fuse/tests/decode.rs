//! Decoding: every form of request comes out as it went in, and no bytes at all make it panic or
//! hand out what was not there.
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_fuse::abi::{self, *};
use ariel_fuse::request::Dialect;
use ariel_fuse::{Operation, ParseError, Request};
use proptest::prelude::*;
use zerocopy::{Immutable, IntoBytes};

/// A request with these arguments behind its head.
fn message(opcode: Opcode, arguments: &[&[u8]]) -> Vec<u8> {
    let body = arguments.concat();
    let head = InHeader {
        len: (size_of::<InHeader>() + body.len()) as u32,
        opcode: opcode.0,
        unique: 77,
        nodeid: 5,
        uid: 1000,
        gid: 100,
        pid: 4242,
        total_extlen: 0,
        padding: 0,
    };
    [head.as_bytes(), &body].concat()
}

fn bytes<T: IntoBytes + Immutable>(value: &T) -> &[u8] {
    value.as_bytes()
}

fn write_in() -> WriteIn {
    WriteIn {
        fh: 3,
        offset: 9,
        size: 4,
        write_flags: WRITE_CACHE | WRITE_KILL_SUIDGID | WRITE_LOCKOWNER,
        lock_owner: 8,
        flags: 2,
        padding: 0,
    }
}

/// One well-formed request of every kind.
fn examples() -> Vec<Vec<u8>> {
    let write = write_in();
    let create = CreateIn {
        flags: 0o102,
        mode: 0o100_644,
        umask: 0o22,
        open_flags: 1,
    };
    let setxattr = SetxattrIn {
        size: 3,
        flags: 1,
        setxattr_flags: 1,
        padding: 0,
    };
    let ioctl = IoctlIn {
        in_size: 2,
        ..IoctlIn::default()
    };
    let forgets = [
        ForgetOne {
            nodeid: 6,
            nlookup: 1,
        },
        ForgetOne {
            nodeid: 7,
            nlookup: 2,
        },
    ];
    let batch = BatchForgetIn {
        count: 2,
        padding: 0,
    };
    let mut all = vec![
        message(Opcode::LOOKUP, &[b"name\0"]),
        message(Opcode::FORGET, &[bytes(&ForgetIn { nlookup: 3 })]),
        message(Opcode::BATCH_FORGET, &[bytes(&batch), bytes(&forgets)]),
        message(Opcode::SYMLINK, &[b"link\0", b"to/there\0"]),
        message(Opcode::MKNOD, &[bytes(&MknodIn::default()), b"n\0"]),
        message(Opcode::MKDIR, &[bytes(&MkdirIn::default()), b"d\0"]),
        message(Opcode::UNLINK, &[b"u\0"]),
        message(Opcode::RMDIR, &[b"r\0"]),
        message(Opcode::RENAME, &[bytes(&RenameIn { newdir: 9 }), b"a\0b\0"]),
        message(
            Opcode::RENAME2,
            &[
                bytes(&Rename2In {
                    newdir: 9,
                    flags: 2,
                    padding: 0,
                }),
                b"a\0b\0",
            ],
        ),
        message(Opcode::LINK, &[bytes(&LinkIn { oldnodeid: 4 }), b"l\0"]),
        message(Opcode::WRITE, &[bytes(&write), b"data"]),
        message(Opcode::SETXATTR, &[bytes(&setxattr), b"user.a\0", b"val"]),
        message(
            Opcode::GETXATTR,
            &[bytes(&GetxattrIn::default()), b"user.a\0"],
        ),
        message(Opcode::REMOVEXATTR, &[b"user.a\0"]),
        message(Opcode::CREATE, &[bytes(&create), b"c\0"]),
        message(Opcode::TMPFILE, &[bytes(&create), b"/\0"]),
        message(Opcode::IOCTL, &[bytes(&ioctl), b"in"]),
    ];
    all.extend(fixed_examples());
    all
}

/// Those whose arguments are one structure, or nothing.
fn fixed_examples() -> Vec<Vec<u8>> {
    let mut all: Vec<_> = [
        Opcode::READLINK,
        Opcode::STATFS,
        Opcode::DESTROY,
        Opcode(9999),
    ]
    .map(|opcode| message(opcode, &[]))
    .into();
    for opcode in [Opcode::OPEN, Opcode::OPENDIR] {
        all.push(message(
            opcode,
            &[bytes(&OpenIn {
                flags: 1,
                open_flags: 1,
            })],
        ));
    }
    for opcode in [Opcode::READ, Opcode::READDIR, Opcode::READDIRPLUS] {
        all.push(message(opcode, &[bytes(&ReadIn::default())]));
    }
    for opcode in [Opcode::RELEASE, Opcode::RELEASEDIR] {
        all.push(message(opcode, &[bytes(&ReleaseIn::default())]));
    }
    for opcode in [Opcode::FSYNC, Opcode::FSYNCDIR] {
        all.push(message(opcode, &[bytes(&FsyncIn::default())]));
    }
    for opcode in [Opcode::GETLK, Opcode::SETLK, Opcode::SETLKW] {
        all.push(message(opcode, &[bytes(&LkIn::default())]));
    }
    for opcode in [Opcode::COPY_FILE_RANGE, Opcode::COPY_FILE_RANGE_64] {
        all.push(message(opcode, &[bytes(&CopyFileRangeIn::default())]));
    }
    all.extend([
        message(Opcode::INIT, &[bytes(&InitCompatIn::default())]),
        message(Opcode::INIT, &[bytes(&InitIn::default())]),
        message(Opcode::GETATTR, &[bytes(&GetattrIn::default())]),
        message(Opcode::SETATTR, &[bytes(&SetattrIn::default())]),
        message(Opcode::LISTXATTR, &[bytes(&GetxattrIn::default())]),
        message(Opcode::FLUSH, &[bytes(&FlushIn::default())]),
        message(Opcode::ACCESS, &[bytes(&AccessIn::default())]),
        message(Opcode::INTERRUPT, &[bytes(&InterruptIn { unique: 76 })]),
        message(Opcode::LSEEK, &[bytes(&LseekIn::default())]),
        message(Opcode::FALLOCATE, &[bytes(&FallocateIn::default())]),
        message(Opcode::SYNCFS, &[bytes(&SyncfsIn::default())]),
        message(Opcode::STATX, &[bytes(&StatxIn::default())]),
        message(Opcode::POLL, &[bytes(&PollIn::default())]),
        message(Opcode::BMAP, &[bytes(&BmapIn::default())]),
    ]);
    all
}

#[test]
fn every_kind_of_request_is_understood() {
    let mut seen: Vec<u32> = examples()
        .iter()
        .map(|example| {
            let request = Request::parse(example).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((request.header.unique, request.header.nodeid), (77, 5));
            assert_eq!((request.header.uid, request.header.gid), (1000, 100));
            let known = request.header.opcode.0 != 9999;
            assert_eq!(matches!(request.operation, Operation::Unknown(_)), !known);
            request.header.opcode.0
        })
        .collect();
    seen.sort_unstable();
    let missing: Vec<_> = Opcode::ALL
        .iter()
        .filter(|op| seen.binary_search(&op.0).is_err())
        .collect();
    // Replies to notifications and direct access are never asked for.
    let unused = [
        &Opcode::NOTIFY_REPLY,
        &Opcode::SETUPMAPPING,
        &Opcode::REMOVEMAPPING,
    ];
    assert_eq!(missing, unused);
}

fn parsed(bytes: &[u8]) -> Operation<'_> {
    Request::parse(bytes).unwrap().operation
}

#[test]
fn arguments_come_out_as_they_went_in() {
    let write = message(Opcode::WRITE, &[bytes(&write_in()), b"data"]);
    let Operation::Write(write) = parsed(&write) else {
        panic!()
    };
    assert_eq!((write.fh, write.offset, write.data), (3, 9, &b"data"[..]));
    assert!(write.from_cache && write.kill_suidgid);
    assert_eq!(write.lock_owner, Some(8));

    let forget = examples().remove(2);
    let Operation::BatchForget(forgets) = parsed(&forget) else {
        panic!()
    };
    assert_eq!(forgets.iter().collect::<Vec<_>>(), [(6, 1), (7, 2)]);
    let forget = examples().remove(1);
    let Operation::Forget(forgets) = parsed(&forget) else {
        panic!()
    };
    assert_eq!(forgets.iter().collect::<Vec<_>>(), [(5, 3)]);

    let rename = examples().remove(9);
    let Operation::Rename(rename) = parsed(&rename) else {
        panic!()
    };
    assert_eq!((rename.name, rename.new_name), (&b"a"[..], &b"b"[..]));
    assert_eq!((rename.new_parent, rename.flags), (9, 2));

    let symlink = examples().remove(3);
    let expected = Operation::Symlink {
        name: b"link",
        target: b"to/there",
    };
    assert_eq!(parsed(&symlink), expected);

    let setxattr = examples().remove(12);
    let Operation::Setxattr(setxattr) = parsed(&setxattr) else {
        panic!()
    };
    assert_eq!(
        (setxattr.name, setxattr.value),
        (&b"user.a"[..], &b"val"[..])
    );
    assert!(setxattr.acl_kill_sgid && setxattr.flags == 1);
}

#[test]
fn the_short_form_of_setxattr_is_read_where_agreed() {
    let short = SetxattrCompatIn { size: 3, flags: 2 };
    let old = message(Opcode::SETXATTR, &[bytes(&short), b"user.abcdef\0", b"val"]);
    let request = Request::parse_in(
        &old,
        Dialect {
            setxattr_ext: false,
        },
    )
    .unwrap();
    let Operation::Setxattr(setxattr) = request.operation else {
        panic!()
    };
    assert_eq!(
        (setxattr.name, setxattr.value),
        (&b"user.abcdef"[..], &b"val"[..])
    );
    assert_eq!((setxattr.flags, setxattr.acl_kill_sgid), (2, false));
}

#[test]
fn extensions_are_not_taken_for_arguments() {
    let mut bytes = message(Opcode::WRITE, &[bytes(&write_in()), b"data", b"12345678"]);
    bytes[36] = 1; // total_extlen: one unit of 8 bytes
    let Operation::Write(write) = parsed(&bytes) else {
        panic!()
    };
    assert_eq!(write.data, b"data");
    bytes[36] = 200;
    assert!(matches!(
        Request::parse(&bytes),
        Err(ParseError::Short { .. })
    ));
}

#[test]
fn what_waits_for_an_answer_is_said_where_it_is_known() {
    assert_eq!(Request::parse(&[1; 39]).unwrap_err().awaits_reply(), None);
    let nameless = message(Opcode::LOOKUP, &[b"\0"]);
    assert_eq!(
        Request::parse(&nameless).unwrap_err().awaits_reply(),
        Some(77)
    );
    let endless = message(Opcode::UNLINK, &[b"abc"]);
    assert!(matches!(
        Request::parse(&endless),
        Err(ParseError::Name { .. })
    ));
    let forget = message(Opcode::FORGET, &[b"1234"]);
    assert_eq!(Request::parse(&forget).unwrap_err().awaits_reply(), None);
    let longer = [message(Opcode::STATFS, &[]), vec![0]].concat();
    assert!(matches!(
        Request::parse(&longer),
        Err(ParseError::Length { .. })
    ));
    let batch = BatchForgetIn {
        count: u32::MAX,
        padding: 0,
    };
    let many = message(Opcode::BATCH_FORGET, &[bytes(&batch)]);
    assert!(matches!(
        Request::parse(&many),
        Err(ParseError::Short { .. })
    ));
}

/// Decodes, and reads everything that was handed out.
fn exhaust(bytes: &[u8], dialect: Dialect) {
    let Ok(request) = Request::parse_in(bytes, dialect) else {
        return;
    };
    let whole = bytes.as_ptr_range();
    let inside = |part: &[u8]| {
        let part = part.as_ptr_range();
        assert!(whole.start <= part.start && part.end <= whole.end);
    };
    let name = |name: &[u8]| {
        assert!(!name.is_empty() && !name.contains(&0));
        inside(name);
    };
    match request.operation {
        Operation::Lookup { name: n } | Operation::Unlink { name: n } => name(n),
        Operation::Forget(forgets) | Operation::BatchForget(forgets) => {
            assert!(forgets.iter().count() <= bytes.len());
        }
        Operation::Symlink { name: n, target } => [n, target].into_iter().for_each(name),
        Operation::Rename(rename) => [rename.name, rename.new_name].into_iter().for_each(name),
        Operation::Write(write) => inside(write.data),
        Operation::Setxattr(setxattr) => {
            name(setxattr.name);
            inside(setxattr.value);
        }
        Operation::Create(create) | Operation::Tmpfile(create) => name(create.name),
        Operation::Ioctl(_, input) => inside(input),
        other => drop(format!("{other:?}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7_45),
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_bytes_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        opcode in 0u32..60,
        plausible in any::<bool>(),
        setxattr_ext in any::<bool>(),
    ) {
        if plausible && bytes.len() >= 40 {
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
            bytes[36..38].copy_from_slice(&[0, 0]);
        }
        exhaust(&bytes, Dialect { setxattr_ext });
    }

    #[test]
    fn mutated_requests_never_panic(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        shorten in 0u8..3,
        setxattr_ext in any::<bool>(),
    ) {
        let all = examples();
        let mut bytes = all[which.index(all.len())].clone();
        if shorten > 0 {
            bytes.truncate(cut.index(bytes.len()) + 1);
        }
        if shorten > 1 && bytes.len() >= 4 {
            // The head agrees with the cut, so that the arguments are what is short.
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
        }
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exhaust(&bytes, Dialect { setxattr_ext });
    }
}

#[test]
fn directory_entries_are_packed_as_the_kernel_reads_them() {
    use ariel_fuse::DirectoryBuffer;
    use ariel_fuse::directory::Entry;
    let entry = |name| Entry {
        ino: 4,
        next: 1,
        mode: 0o040_755,
        name,
    };
    let mut plain = DirectoryBuffer::new(64);
    assert!(plain.push(entry(b"a")) && plain.push(entry(b"12345678")));
    assert!(!plain.push(entry(b"b")), "64 bytes are full");
    assert_eq!(plain.as_bytes().len(), 64);
    assert_eq!(&plain.as_bytes()[16..25], &[1, 0, 0, 0, 4, 0, 0, 0, b'a']);
    assert_eq!(&plain.as_bytes()[25..32], &[0; 7]);
    assert_eq!(&plain.as_bytes()[56..64], b"12345678");
    let mut plus = DirectoryBuffer::new(160);
    assert!(plus.push_plus(entry(b"abc"), &abi::EntryOut::default()));
    assert!(!plus.push_plus(entry(b"d"), &abi::EntryOut::default()));
    assert_eq!(plus.as_bytes().len(), 160);
    assert_eq!(&plus.as_bytes()[152..156], b"abc\0");
}
