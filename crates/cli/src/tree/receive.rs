//! `ariel volume receive`: a volume, or its next snapshot, from a stream.
//!
//! Guarantees: when it ends with 0 the snapshot is there, on the server's disk; otherwise nobody
//! sees any of it. The server keeps the received parts then, and the command says how to go on.

use super::connect::{connect, is_no_replicas_name};
use super::lists::ReceiverGroups;
use super::parts::{Unstable, when_free};
use super::progress::Progress;
use super::volume::{end, say};
use crate::args::ReceiveArgs;
use crate::failure::{Failure, NOT_RUN};
use files::Tree;
use std::io::{self, BufReader, IsTerminal, Read};
use std::process::ExitCode;
use stream::{Mark, Next, Reader, StreamError, Token};
use wire::{Name, Receiving, Refusal, VolumeInfo, VolumeOp};

/// Things that are put back at a time.
const UNDONE: u32 = 2048;

pub(crate) fn receive(args: &ReceiveArgs) -> Result<ExitCode, Failure> {
    is_no_replicas_name(&args.name)?;
    if args.discard {
        return discard(args);
    }
    if io::stdin().is_terminal() {
        return Err(Failure::new(
            NOT_RUN,
            "volume receive: a stream comes from a pipe or a file: `ariel volume send ... |`",
        ));
    }
    let input = BufReader::with_capacity(1 << 20, io::stdin().lock());
    let reader = Reader::new(input).map_err(|error| Failure::of("volume receive", error))?;
    let tree = connect(&args.at.trust, &args.at.server)?;
    let info = begin(&tree, args, &reader)?;
    let of = args.name.to_string();
    let receiving = info.provenance.receiving.clone();
    let receiving = receiving.ok_or_else(|| Failure::of(&of, "the server receives nothing"))?;
    let progress = Progress::new(args.quiet);
    if receiving.head.since.is_none() {
        progress.found(receiving.head.bytes);
    }
    let mut work = Work {
        tree: &tree,
        args,
        volume: info.id,
        receiving,
        unstable: Unstable::default(),
        groups: ReceiverGroups::new(&args.at),
    };
    work.all(reader, &progress)?;
    progress.end();
    work.groups.report();
    let done = tree.try_volume(VolumeOp::Publish { volume: info.id });
    let done = done.map_err(|refusal| work.told_at_end(refusal))?;
    end(tree)?;
    if let Some(info) = done {
        say(&format!("{}\n", info.name))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Begins to receive, or goes on.
fn begin<R: Read>(
    tree: &Tree,
    args: &ReceiveArgs,
    reader: &Reader<R>,
) -> Result<VolumeInfo, Failure> {
    let op = VolumeOp::Receive {
        name: args.name.clone(),
        head: Box::new(reader.head().clone()),
        rollback: args.rollback,
    };
    let nothing = || Failure::of(&args.name.to_string(), "the server receives nothing");
    let told = |refusal| told(&args.name, reader.head().since.is_some(), refusal);
    let mut info = when_free(tree, &op).map_err(told)?.ok_or_else(nothing)?;
    let undoing = |info: &VolumeInfo| {
        let receiving = info.provenance.receiving.as_ref();
        receiving.is_some_and(|receiving| receiving.undoing)
    };
    while undoing(&info) {
        let (volume, things) = (info.id, UNDONE);
        let undone = tree.try_volume(VolumeOp::Undo { volume, things });
        info = undone.map_err(told)?.ok_or_else(nothing)?;
    }
    Ok(info)
}

/// The error for a refusal, with advice.
fn told(name: &Name, changes: bool, refusal: Refusal) -> Failure {
    let text = match refusal {
        Refusal::NotFound => "there is no such volume, and the stream has only what changed since \
            a snapshot: receive that one first, sent without --since"
            .to_owned(),
        Refusal::Exists if changes => {
            "it has a snapshot of this name already: see `ariel volume show`".to_owned()
        }
        Refusal::Exists => "the name is taken: receive under another name, or have only changes \
            sent with --since"
            .to_owned(),
        Refusal::CrossVolume => "it is not a copy of the volume that is sent: receive into the \
            copy, or all of it, sent without --since, under another name"
            .to_owned(),
        Refusal::Stale => "it has not the very snapshot since which the changes are sent: send \
            since one that it has, by `ariel volume show`, or all of it under another name"
            .to_owned(),
        Refusal::NotEmpty => {
            "it was changed since that snapshot: --rollback undoes these changes, \
            and `ariel volume clone` keeps them in another volume before"
                .to_owned()
        }
        Refusal::NotSupported => "what was changed in it was not noted by an older program: \
            receive all of it, sent without --since, under another name"
            .to_owned(),
        Refusal::Locked => "another snapshot of it is half received: go on with that one, by \
            `ariel volume show`, or give it up with `ariel volume receive --discard`"
            .to_owned(),
        Refusal::Busy => "the server is still removing what was given up before: try again in a \
            minute"
            .to_owned(),
        Refusal::NotPermitted => "only root may receive a volume".to_owned(),
        Refusal::NoSpace => "the server's disk is full, or it has as many volumes as it may have: \
            delete and purge some"
            .to_owned(),
        Refusal::Invalid => "the stream has what does not fit what came before: give up what came \
            with `ariel volume receive --discard`, and send it again"
            .to_owned(),
        other => format!("the server refuses it: {other:?}"),
    };
    Failure::of(&name.to_string(), text)
}

/// One snapshot that is received.
struct Work<'a> {
    tree: &'a Tree,
    args: &'a ReceiveArgs,
    volume: u32,
    receiving: Receiving,
    unstable: Unstable,
    groups: ReceiverGroups<'a>,
}

impl Work<'_> {
    /// The error for a stream that was interrupted, with the way to go on.
    fn interrupted(&self, error: &dyn std::fmt::Display) -> Failure {
        let text = match Token::of(&self.receiving) {
            None => format!("{error}. Nothing has come: send it again"),
            Some(token) => format!(
                "{error}. {} parts are kept: send the rest with `ariel volume send ... --resume \
                 {token}`, or give them up with `ariel volume receive --discard`",
                self.receiving.chunks
            ),
        };
        Failure::of(&self.args.name.to_string(), text)
    }

    fn told(&self, refusal: Refusal) -> Failure {
        let changes = self.receiving.head.since.is_some();
        match refusal {
            Refusal::NoSpace => self.interrupted(&"the server's disk is full"),
            Refusal::Disk => self.interrupted(&"the server's disk failed: see the server's log"),
            Refusal::SessionLost | Refusal::NoAnswer => {
                self.interrupted(&"the server cannot be reached any more")
            }
            other => told(&self.args.name, changes, other),
        }
    }

    fn told_at_end(&self, refusal: Refusal) -> Failure {
        let name = &self.args.name;
        match refusal {
            Refusal::Exists => Failure::of(
                &name.to_string(),
                "all has come, and meanwhile the name was taken: rename what has it, and receive \
                 the stream again, which is quick",
            ),
            Refusal::NotEmpty => Failure::of(
                &name.to_string(),
                "all has come, and meanwhile the volume was changed: give up what came with \
                 `ariel volume receive --discard`, and receive it with --rollback",
            ),
            other => self.told(other),
        }
    }

    /// All parts that have not come before.
    fn all<R: Read>(&mut self, mut reader: Reader<R>, progress: &Progress) -> Result<(), Failure> {
        let known = self.receiving.chunks;
        if reader.at().parts > known {
            let behind = format!("the stream begins behind part {}", reader.at().parts);
            return Err(self.interrupted(&behind));
        }
        self.fits(&reader)?;
        loop {
            let next = reader
                .next()
                .map_err(|error: StreamError| self.interrupted(&error))?;
            let Next::Part(part) = next else {
                break;
            };
            let at = reader.at().clone();
            let bytes = part.chunk.bytes.0.len() as u64;
            progress.moved(bytes);
            if at.parts <= known {
                self.fits(&reader)?;
                continue;
            }
            let mut part = part;
            self.groups
                .translate(&mut part)
                .map_err(|error| self.interrupted(&error))?;
            let (chain, after) = (at.chain, part.after);
            let kept = Mark { chain, after }.kept();
            let place = (self.volume, at.parts - 1);
            let done = self.tree.restore(place, kept.clone(), part.chunk);
            done.map_err(|refusal| self.told(refusal))?;
            (self.receiving.chunks, self.receiving.after) = (at.parts, kept);
            let settled = self.unstable.sent(self.tree, bytes);
            settled.map_err(|error| self.interrupted(&error.reason()))?;
        }
        match reader.at().parts < known {
            true => Err(self.interrupted(&"the stream ends before what has come already")),
            false => Ok(()),
        }
    }

    /// Checks that the parts received before are the beginning of this stream.
    fn fits<R: Read>(&self, reader: &Reader<R>) -> Result<(), Failure> {
        let mark = Mark::of(&self.receiving.after);
        let same = mark.is_none_or(|mark| mark.chain == reader.at().chain);
        match reader.at().parts == self.receiving.chunks && !same {
            true => Err(told(&self.args.name, false, Refusal::Invalid)),
            false => Ok(()),
        }
    }
}

/// Gives up what has been received of a snapshot that is not complete.
fn discard(args: &ReceiveArgs) -> Result<ExitCode, Failure> {
    let tree = connect(&args.at.trust, &args.at.server)?;
    let name = args.name.to_string();
    let all = tree.volumes().map_err(|error| Failure::of(&name, error))?;
    let of = |info: &&VolumeInfo| info.name == args.name;
    let mut halves = all.iter().filter(|half| {
        let mut named = all.iter().filter(of);
        half.provenance.receiving.is_some() && named.any(|info| half.snapshot_of == Some(info.id))
    });
    let Some(half) = halves.next() else {
        let text = "nothing is half received for it: see `ariel volume list`";
        return Err(Failure::of(&name, text));
    };
    let done = tree.try_volume(VolumeOp::Discard { volume: half.id });
    done.map_err(|refusal| told(&args.name, false, refusal))?;
    end(tree)?;
    Ok(ExitCode::SUCCESS)
}
