//! 2,000 records appended by four processes' worth of writers on two mounts at once: none lost,
//! none damaged, each writer's in its order.

use crate::harness::Pair;
use crate::harness::record::{LEN, Record};
use std::fs::{self, File};
use std::io::Write;
use std::sync::Barrier;

const WRITERS: u32 = 4;
const EACH: u32 = 500;

fn append_all(pair: &Pair, writer: u32, reopen: bool, start: &Barrier) {
    let mount = if writer.is_multiple_of(2) {
        &pair.a
    } else {
        &pair.b
    };
    let open = || {
        File::options()
            .append(true)
            .create(true)
            .open(mount.join("log"))
            .unwrap()
    };
    start.wait();
    let mut file = open();
    for counter in 0..EACH {
        let bytes = Record { writer, counter }.encode();
        // One write(2) each: O_APPEND promises nothing about two.
        assert_eq!(
            file.write(&bytes).unwrap(),
            LEN,
            "writer {writer}, record {counter}"
        );
        if reopen {
            file = open();
        }
    }
}

fn judge(bytes: &[u8]) {
    let expected = (WRITERS * EACH) as usize * LEN;
    assert_eq!(bytes.len(), expected, "bytes in the file");
    let mut next = [0; WRITERS as usize];
    for (index, chunk) in bytes.chunks(LEN).enumerate() {
        let record = Record::decode(chunk);
        let record = record.unwrap_or_else(|| panic!("record {index} is damaged: {chunk:?}"));
        let next = &mut next[record.writer as usize];
        assert_eq!(
            record.counter, *next,
            "record {index}: not writer {}'s next",
            record.writer
        );
        *next += 1;
    }
    assert_eq!(next, [EACH; WRITERS as usize]);
}

fn appending(name: &str, reopen: bool) {
    let Some(pair) = Pair::start(name) else {
        return;
    };
    let start = Barrier::new(WRITERS as usize);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (pair, start) = (&pair, &start);
            scope.spawn(move || append_all(pair, writer, reopen, start));
        }
    });
    judge(&fs::read(pair.a.join("log")).unwrap());
    judge(&fs::read(pair.b.join("log")).unwrap());
}

#[test]
fn concurrent_appends_from_both_mounts_lose_nothing() {
    appending("append", false);
}

#[test]
fn concurrent_appends_that_open_anew_each_time_lose_nothing() {
    appending("append-reopen", true);
}
