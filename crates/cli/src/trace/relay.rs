//! The mount's side of `ariel trace record`: lines of JSON with the accesses to its files.
//!
//! Guarantees: the mount never waits for the reader; accesses that do not fit are left out, and a
//! line says how many. The recording ends with the reader.

use crate::control::{self, Answer};
use client::front::now_ns;
use fuse::front::{Accessed, Listener, Mount, Recorded};
use serde_json::{Value, json};
use std::io::Read;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use trace::Op;

/// Accesses in a line, at most.
const LINE_MAX: usize = 512;

/// Answers the question for the accesses of a mount.
pub(crate) fn relay(mount: &Arc<Mount>) -> Answer {
    let mount = Arc::clone(mount);
    Answer::Lines(Box::new(move |stream| {
        if let Err(error) = run(&mount, stream) {
            tracing::debug!(%error, "the recording program has gone");
        }
    }))
}

fn run(mount: &Arc<Mount>, stream: &Arc<UnixStream>) -> std::io::Result<()> {
    let Some(listener) = mount.record() else {
        let taken = "another program records this mount: end it first";
        return control::say(stream, &control::refusal(taken));
    };
    tracing::info!("a program records what the kernel asks for");
    // The program sends nothing: only its end can be read.
    let hearing = {
        let (ends, stream) = (listener.ends(), Arc::clone(stream));
        let hear = move || {
            while (&*stream).read(&mut [0; 64]).is_ok_and(|len| len > 0) {}
            ends.end();
        };
        thread::Builder::new().name("record".into()).spawn(hear)?
    };
    let written = write(stream, &listener);
    drop(listener);
    tracing::info!("the recording has ended");
    let _ = stream.shutdown(Shutdown::Both);
    // The thread has seen the end of the stream by now.
    let _ = hearing.join();
    written
}

fn write(stream: &UnixStream, listener: &Listener) -> std::io::Result<()> {
    control::say(stream, &json!({ "recording": true, "now_ns": now_ns() }))?;
    while let Some(first) = listener.next() {
        let more = std::iter::from_fn(|| listener.next_at_once());
        let accesses: Vec<Value> = std::iter::once(first)
            .chain(more)
            .take(LINE_MAX)
            .map(|access| line(&access))
            .collect();
        let missed = listener.missed();
        control::say(stream, &json!({ "accesses": accesses, "missed": missed }))?;
    }
    Ok(())
}

/// The operation of the trace's format.
fn op(kind: Accessed) -> Op {
    match kind {
        Accessed::Read => Op::Read,
        Accessed::Write => Op::Write,
        Accessed::Open => Op::Open,
        Accessed::Remove => Op::Delete,
        Accessed::Attributes => Op::Attributes,
    }
}

/// Time, operation, file, first byte, bytes.
fn line(access: &Recorded) -> Value {
    let Recorded { fid, .. } = access;
    json!([
        access.time_ns,
        op(access.kind) as u8,
        [fid.volume, fid.uniq],
        fid.vnode,
        access.offset,
        access.bytes,
    ])
}
