//! Streams that do not fit: each is refused, and nothing of it is seen.

use crate::stream::{
    begin, change, outside, part, publish, receive, restore, snapshot, stream, target, volume_named,
};
use crate::world::*;
use ariel_store::{MemoryDisk, Options, Store};
use wire::*;

fn pair() -> (Store, Store) {
    let from = Store::create_in_memory(&MemoryDisk::new(), &small()).unwrap();
    let to = Store::create_in_memory(&MemoryDisk::new(), &target()).unwrap();
    (from, to)
}

fn sent(store: &mut Store, text: &str, since: Option<&str>) -> Vec<Dump> {
    snapshot(store, "root", text);
    let since = since.map(|since| format!("root@{since}"));
    stream(store, &format!("root@{text}"), since.as_deref())
}

#[test]
fn changes_are_received_by_who_has_the_very_snapshot() {
    let (mut from, mut to) = pair();
    make(&mut from, root(), "one");
    let a = sent(&mut from, "a", None);
    let b = sent(&mut from, "b", Some("a"));
    let none = begin(&mut to, "copy", &b[0].head, false);
    assert_eq!(none, Err(Refusal::NotFound), "there is no volume");
    receive(&mut to, "copy", &a, false).unwrap();
    assert_eq!(receive(&mut to, "copy", &a, false), Err(Refusal::Exists));
    // Another one of the same name takes its place at the sender.
    let of = name("root@a");
    let gone = change(&mut from, VolumeOp::Delete { of }).unwrap();
    run(&mut from, &Op::Volume(VolumeOp::Purge { volume: gone.id }));
    let _ = sent(&mut from, "a", None);
    let c = sent(&mut from, "c", Some("a"));
    assert_eq!(
        begin(&mut to, "copy", &c[0].head, false),
        Err(Refusal::Stale)
    );
    receive(&mut to, "copy", &b, false).unwrap();
    // The copy refuses the changes of another volume.
    let other = Options {
        identity: 0xbad,
        ..small()
    };
    let mut other = Store::create_in_memory(&MemoryDisk::new(), &other).unwrap();
    let first = sent(&mut other, "a", None);
    let second = sent(&mut other, "b", Some("a"));
    receive(&mut to, "second", &first, false).unwrap();
    let crossed = begin(&mut to, "copy", &second[0].head, false);
    assert_eq!(crossed, Err(Refusal::CrossVolume));
}

#[test]
fn one_snapshot_is_received_at_a_time() {
    let (mut from, mut to) = pair();
    make(&mut from, root(), "one");
    let a = sent(&mut from, "a", None);
    let b = sent(&mut from, "b", None);
    let info = begin(&mut to, "copy", &a[0].head, false).unwrap();
    assert_eq!(
        begin(&mut to, "copy", &b[0].head, false),
        Err(Refusal::Locked)
    );
    // It is not there for anybody.
    assert_eq!(publish(&mut to, info.id), Err(Refusal::Invalid));
    let op = VolumeOp::Delete { of: name("copy") };
    assert_eq!(change(&mut to, op), Err(Refusal::NotFound));
    let op = Op::Volume(VolumeOp::Discard { volume: info.id });
    assert_eq!(run(&mut to, &op), Outcome::Done);
    receive(&mut to, "copy", &b, false).unwrap();
}

#[test]
fn changes_while_a_snapshot_comes_are_noticed_when_it_is_whole() {
    let (mut from, mut to) = pair();
    make(&mut from, root(), "one");
    let a = sent(&mut from, "a", None);
    receive(&mut to, "copy", &a, false).unwrap();
    make(&mut from, root(), "two");
    let b = sent(&mut from, "b", Some("a"));
    let info = begin(&mut to, "copy", &b[0].head, false).unwrap();
    for (number, dump) in b.iter().enumerate() {
        assert_eq!(
            restore(&mut to, info.id, number as u64, dump),
            Outcome::Done
        );
    }
    let copy = volume_named(&mut to, "copy").unwrap();
    make(&mut to, copy.root(), "mine");
    assert_eq!(publish(&mut to, info.id), Err(Refusal::NotEmpty));
    let names = outside(&mut to, copy.id).into_keys().collect::<Vec<_>>();
    assert_eq!(names, ["", "/mine", "/one"]);
    run(&mut to, &Op::Volume(VolumeOp::Discard { volume: info.id }));
    let mut now = 1 << 40;
    while let Some(next) = to.tend(now) {
        now = next;
    }
    receive(&mut to, "copy", &b, true).unwrap();
    let names = outside(&mut to, copy.id).into_keys().collect::<Vec<_>>();
    assert_eq!(names, ["", "/one", "/two"]);
}

#[test]
fn snapshots_of_the_receiver_stay_as_they_are() {
    let (mut from, mut to) = pair();
    let file = make(&mut from, root(), "one");
    write(&mut from, file, 0, &bytes(1, 5000));
    let a = sent(&mut from, "a", None);
    receive(&mut to, "copy", &a, false).unwrap();
    let copy = volume_named(&mut to, "copy").unwrap();
    let mine = to.lookup(copy.root(), &name("one")).unwrap().unwrap();
    write(&mut to, mine, 100, b"mine");
    snapshot(&mut to, "copy", "mine");
    let kept = volume_named(&mut to, "copy@mine").unwrap();
    let before = outside(&mut to, kept.id);
    write(&mut from, file, 0, b"theirs");
    let b = sent(&mut from, "b", Some("a"));
    receive(&mut to, "copy", &b, true).unwrap();
    assert_eq!(outside(&mut to, kept.id), before);
    let sent = volume_named(&mut from, "root@b").unwrap();
    assert_eq!(outside(&mut from, sent.id), outside(&mut to, copy.id));
}

#[test]
fn a_copy_is_sent_on_and_what_is_made_in_it_has_numbers_of_its_own() {
    let (mut from, mut to) = pair();
    make(&mut from, root(), "one");
    let a = sent(&mut from, "a", None);
    receive(&mut to, "copy", &a, false).unwrap();
    let copy = volume_named(&mut to, "copy").unwrap();
    let mine = make(&mut to, copy.root(), "mine");
    write(&mut to, mine, 0, &bytes(3, 3000));
    let parts = stream(&mut to, "copy@a", None);
    snapshot(&mut to, "copy", "b");
    let more = stream(&mut to, "copy@b", Some("copy@a"));
    let (mut third, _) = pair();
    receive(&mut third, "far", &parts, false).unwrap();
    receive(&mut third, "far", &more, false).unwrap();
    let got = volume_named(&mut third, "far").unwrap();
    assert_eq!(outside(&mut to, copy.id), outside(&mut third, got.id));
}

#[test]
fn who_is_not_root_neither_sends_nor_receives() {
    let (mut from, _) = pair();
    snapshot(&mut from, "root", "a");
    let dump = part(&mut from, "root@a", None, None).unwrap();
    let ask = Op::Dump {
        of: name("root@a"),
        since: None,
        after: None,
        plan: true,
    };
    let begins = Op::Volume(VolumeOp::Receive {
        name: name("copy"),
        head: Box::new(dump.head.clone()),
        rollback: false,
    });
    let brings = Op::Restore {
        volume: 2,
        number: 0,
        after: Blob::default(),
        chunk: dump.chunk,
    };
    for op in [ask, begins, brings] {
        let refused = run_as(&mut from, &user(5), &op, &[]);
        assert_eq!(refused, Outcome::Refused(Refusal::NotPermitted), "{op:?}");
    }
    let plain = part(&mut from, "root", None, None);
    assert_eq!(plain.map(|_| ()), Err(Refusal::Invalid), "not a snapshot");
}

#[test]
fn pieces_that_do_not_fit_are_refused_whole() {
    let (mut from, mut to) = pair();
    make(&mut from, root(), "one");
    let a = sent(&mut from, "a", None);
    let info = begin(&mut to, "copy", &a[0].head, false).unwrap();
    let object = a[0].chunk.pieces[0].clone();
    let bytes = StreamPiece::Bytes {
        vnode: 1,
        offset: 0,
        len: 4,
        inline: false,
    };
    let stray = StreamPiece::Gone { vnode: 99 };
    let place = StreamPiece::Place {
        dir: 98,
        position: 1,
        child: None,
    };
    for wrong in [bytes, stray, place] {
        let chunk = StreamChunk {
            pieces: vec![object.clone(), wrong],
            bytes: Blob(vec![1; 4]),
        };
        let (volume, number, after) = (info.id, 0, Blob::default());
        let op = Op::Restore {
            volume,
            number,
            after,
            chunk,
        };
        assert_eq!(run(&mut to, &op), Outcome::Refused(Refusal::Invalid));
    }
    for (number, dump) in a.iter().enumerate() {
        assert_eq!(
            restore(&mut to, info.id, number as u64, dump),
            Outcome::Done
        );
    }
    publish(&mut to, info.id).unwrap();
    assert!(to.check().is_clean());
}
