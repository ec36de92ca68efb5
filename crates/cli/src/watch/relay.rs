//! The mount's side of `ariel watch`: a line of JSON for each change, to the program that asked for
//! it.
//!
//! Guarantees: the mount never waits for a reader; changes that do not fit are dropped, and the
//! slow reader is told so.

use crate::control::{self, Answer};
use client::front::{News, OnNews};
use fuse::front::Mount;
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::Read;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use wire::{Change, Deed, Fid, Kind, Refusal};

/// Messages that wait for the reader, of at most 64 KiB each as a rule.
const WAITING_MAX: usize = 256;

/// Answers a question of the form `{"inode":1,"recursive":false}`.
pub(crate) fn relay(mount: &Arc<Mount>, question: &Value) -> Answer {
    let inode = question["inode"].as_u64();
    let (Some(inode), Some(recursive)) = (inode, question["recursive"].as_bool()) else {
        return control::refusal("what is to be watched is not said: use the same version").into();
    };
    let mount = Arc::clone(mount);
    Answer::Lines(Box::new(move |stream| {
        if let Err(error) = run(&mount, (inode, recursive), stream) {
            tracing::debug!(%error, "the watching program has gone");
        }
    }))
}

/// The state that the mount and the writing thread share.
#[derive(Default)]
struct Shared {
    /// Something did not fit.
    missed: AtomicBool,
    end: Mutex<Option<Refusal>>,
}

fn run(
    mount: &Arc<Mount>,
    (inode, recursive): (u64, bool),
    stream: &Arc<UnixStream>,
) -> std::io::Result<()> {
    let shared = Arc::new(Shared::default());
    let (send, receive) = mpsc::sync_channel(WAITING_MAX);
    let Some((client, fid)) = mount.object(inode) else {
        return control::say(stream, &ended(Some(Refusal::NoAnswer)));
    };
    let Some(watch) = client.watch(fid, recursive, takes(send, &shared)) else {
        return control::say(stream, &ended(None));
    };
    // The program sends nothing: only its end can be read.
    let hearing = {
        let (client, stream) = (Arc::clone(&client), Arc::clone(stream));
        let hear = move || {
            while (&*stream).read(&mut [0; 64]).is_ok_and(|len| len > 0) {}
            client.unwatch(watch);
        };
        thread::Builder::new().name("watch".into()).spawn(hear)
    };
    let inode_of = |fid| mount.inode(fid);
    let written = hearing
        .is_ok()
        .then(|| write((stream, &inode_of), &receive, &shared));
    client.unwatch(watch);
    let _ = stream.shutdown(Shutdown::Both);
    // It has seen the end of the stream by now.
    let _ = hearing?.join();
    written.unwrap_or(Ok(()))
}

/// Takes what the client tells.
fn takes(send: SyncSender<News>, shared: &Arc<Shared>) -> OnNews {
    let shared = Arc::clone(shared);
    Arc::new(move |mut news: News| {
        if let Some(why) = news.end {
            *shared.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        news.missed |= shared.missed.swap(false, Ordering::AcqRel);
        if let Err(TrySendError::Full(_)) = send.try_send(news) {
            shared.missed.store(true, Ordering::Release);
        }
    })
}

/// Writes what is told until nothing more comes.
fn write(
    (stream, inode_of): (&UnixStream, &dyn Fn(Fid) -> u64),
    news: &Receiver<News>,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut begun = false;
    for news in news {
        let mut lines = Vec::new();
        if !begun && news.end.is_none() {
            lines.push(json!({ "event": "watching" }));
            begun = true;
        }
        // The changes that did not fit were later than this, so this comes early: a program that
        // looks again now sees them.
        if news.missed | shared.missed.swap(false, Ordering::AcqRel) {
            lines.push(json!({ "event": "missed" }));
        }
        let told = news
            .changes
            .iter()
            .map(|change| line(change, inode_of(change.fid)));
        lines.extend(told);
        control::say_all(stream, &lines)?;
    }
    let end = shared.end.lock().unwrap_or_else(PoisonError::into_inner);
    control::say(stream, &ended(*end))
}

/// Nothing more comes.
fn ended(why: Option<Refusal>) -> Value {
    let reason = match why {
        Some(Refusal::Stale) => "what was watched is gone",
        Some(Refusal::TooManyWatches) => {
            return control::refusal(
                "this mount watches as much as it may: end some `ariel watch`, or watch a \
                 directory above with --recursive",
            );
        }
        Some(_) => "the server cannot say what it watches: see its log",
        None => "the mount has ended: mount it again, and look at what has changed since",
    };
    json!({ "event": "ended", "gone": why == Some(Refusal::Stale), "reason": reason })
}

fn line(change: &Change, inode: u64) -> Value {
    let (event, to) = match &change.deed {
        Deed::Made => ("created", None),
        Deed::Removed => ("removed", None),
        Deed::Moved { to } => ("moved", Some(to)),
        Deed::Exchanged { with } => ("exchanged", Some(with)),
        Deed::Written => ("written", None),
        Deed::Attributes => ("attributes", None),
    };
    let mut line = json!({
        "event": event,
        "inode": inode,
        "type": kind(change.kind),
    });
    put(&mut line, "path", change.path.as_deref());
    if let Some(to) = to {
        put(&mut line, "to", to.as_deref());
    }
    line
}

/// A path: names have any bytes, and JSON has not.
fn put(line: &mut Value, key: &str, path: Option<&[u8]>) {
    line[key] = json!(path.map(String::from_utf8_lossy));
    if let Some(path) = path.filter(|path| str::from_utf8(path).is_err()) {
        let hex = path.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string does not fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        line[format!("{key}_hex")] = json!(hex);
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Mount => "mount point",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::Block => "block",
        Kind::Character => "character",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(missed: bool, names: &[&str]) -> News {
        let change = |name: &&str| Change {
            deed: Deed::Made,
            fid: Fid::root(1),
            kind: Kind::File,
            path: Some(name.as_bytes().to_vec()),
        };
        News {
            missed,
            changes: names.iter().map(change).collect(),
            end: None,
        }
    }

    #[test]
    fn of_who_reads_too_slowly_what_does_not_fit_is_missed() {
        let shared = Arc::new(Shared::default());
        let (send, receive) = mpsc::sync_channel(2);
        let tell = takes(send, &shared);
        tell(told(false, &[]));
        tell(told(false, &["a"]));
        tell(told(false, &["dropped"]));
        assert!(receive.recv().unwrap().changes.is_empty());
        tell(told(false, &["b"]));
        assert_eq!(receive.recv().unwrap(), told(false, &["a"]));
        assert_eq!(receive.recv().unwrap(), told(true, &["b"]));
        // Also when nothing comes after it.
        tell(told(false, &["c"]));
        tell(told(false, &["d"]));
        tell(told(false, &["dropped"]));
        drop(tell);
        let (ours, theirs) = UnixStream::pair().unwrap();
        write((&ours, &|fid| fid.vnode), &receive, &shared).unwrap();
        drop(ours);
        let mut text = String::new();
        (&theirs).read_to_string(&mut text).unwrap();
        let events: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let names: Vec<&str> = events.iter().filter_map(|e| e["event"].as_str()).collect();
        assert_eq!(names, ["watching", "missed", "created", "created", "ended"]);
    }

    #[test]
    fn bytes_that_are_no_text_are_told_exactly() {
        let mut line = json!({});
        put(&mut line, "path", Some(b"a\xff"));
        assert_eq!(line, json!({ "path": "a\u{fffd}", "path_hex": "61ff" }));
    }
}
