//! `ariel volume send`: a snapshot, or what changed since another one, as a stream.
//!
//! Guarantees: when it ends with 0 the whole stream has been written.

use super::connect::connect_to;
use super::lists::SenderGroups;
use super::names::size_text;
use super::parts::{Range, each_part};
use super::progress::Progress;
use super::volume::{end, say};
use crate::args::SendArgs;
use crate::failure::{Failure, NOT_RUN};
use files::Tree;
use std::io::{self, BufWriter, IsTerminal};
use std::process::ExitCode;
use stream::{Part, Resume, Token, Writer};
use wire::{
    Name, Refusal, SNAPSHOT_MARK, StreamHead, StreamPiece, snapshot_name, split_volume_name,
};

pub(crate) fn send(args: &SendArgs) -> Result<ExitCode, Failure> {
    if !args.dry_run && io::stdout().is_terminal() {
        return Err(Failure::new(
            NOT_RUN,
            "volume send: a stream is not for a terminal: write it to a pipe or a file, or ask \
             with --dry-run how long it is",
        ));
    }
    let since = args.since.as_ref().map(|since| full(&args.name, since));
    let since = since.transpose()?;
    let range = (&args.name, since.as_ref());
    let tree = connect_to(&args.at.trust, &args.at.server, &args.name)?;
    match args.dry_run {
        true => plan(&tree, range)?,
        false => write(&tree, range, args)?,
    }
    end(tree)?;
    Ok(ExitCode::SUCCESS)
}

/// The whole name of a snapshot of the same volume.
fn full(of: &Name, since: &Name) -> Result<Name, Failure> {
    if since.as_bytes().contains(&SNAPSHOT_MARK) {
        return Ok(since.clone());
    }
    let (volume, _) = split_volume_name(of);
    let name = snapshot_name(volume, since.as_bytes());
    name.map_err(|_| Failure::of(&since.to_string(), "the name is too long"))
}

/// The error for a refusal, with advice.
fn told((of, since): Range<'_>, refusal: Refusal) -> Failure {
    let since = since.map_or_else(String::new, Name::to_string);
    let text = match refusal {
        Refusal::NotFound => "there is no such snapshot: see `ariel volume list`".to_owned(),
        Refusal::Invalid => "not a snapshot, or the token is not of it".to_owned(),
        Refusal::NotPermitted => "only root may send all that a volume has".to_owned(),
        Refusal::Stale => format!(
            "{since} is not there: send since a snapshot that is, or all of it, without --since"
        ),
        Refusal::CrossVolume => {
            format!("{since} is not an older snapshot of the same volume: see `ariel volume show`")
        }
        Refusal::NotSupported => format!(
            "what changed since {since} was not noted by the older program that made it: send it \
             whole once, and since later snapshots from then on"
        ),
        Refusal::Damaged => {
            "the stored bytes are damaged: the server's log says of which file, and `ariel fsck` \
             what else is"
                .to_owned()
        }
        other => format!("the server refuses it: {other:?}"),
    };
    Failure::of(&of.to_string(), text)
}

/// Tells how much would be sent.
fn plan(tree: &Tree, range: Range<'_>) -> Result<(), Failure> {
    let (mut objects, mut gone, mut bytes) = (0u64, 0u64, 0u64);
    let mut after = None;
    loop {
        let dump = tree.dump(range, after, true);
        let dump = dump.map_err(|refusal| told(range, refusal))?;
        for piece in &dump.chunk.pieces {
            match piece {
                StreamPiece::Object { .. } => objects += 1,
                StreamPiece::Gone { .. } => gone += 1,
                StreamPiece::Bytes { len, .. } => bytes += u64::from(*len),
                _ => {}
            }
        }
        after = dump.next;
        if after.is_none() {
            break;
        }
    }
    say(&format!(
        "objects:   {objects}\nremoved:   {gone}\nbytes:     {bytes} ({})\n",
        size_text(bytes)
    ))
}

/// Is the token of what is to be sent?
fn fits(token: &Token, head: &StreamHead) -> bool {
    (token.snapshot, token.since) == (head.snapshot, head.since)
}

fn write(tree: &Tree, range: Range<'_>, args: &SendArgs) -> Result<(), Failure> {
    let token = args.resume.as_ref();
    // All that is left of a stream may be its end.
    let only_end = token.is_some_and(|token| token.parts > 0 && token.after.0.is_empty());
    let after = token.map(|token| token.after.clone());
    let after = after.filter(|after| !after.0.is_empty());
    let first = tree.dump(range, after, only_end);
    let first = first.map_err(|refusal| told(range, refusal))?;
    let head = first.head.clone();
    if token.is_some_and(|token| !fits(token, &head)) {
        return Err(Failure::of(
            &args.name.to_string(),
            "the token is of another snapshot, or since another one: give the names that were \
             given before, or send from the beginning",
        ));
    }
    let from = token.map(|token| Resume {
        parts: token.parts,
        chain: token.chain,
    });
    let written = |error: io::Error| Failure::of("standard output", error);
    let out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let mut writer = Writer::new(out, &head, from, args.compress).map_err(written)?;
    let progress = Progress::new(args.quiet);
    if head.since.is_none() {
        progress.found(head.bytes);
    }
    if !only_end {
        let mut groups = SenderGroups::new(&args.at);
        let refused = |refusal| told(range, refusal);
        each_part(tree, range, first, refused, |mut dump| {
            let bytes = dump.chunk.bytes.0.len() as u64;
            let part = Part {
                after: dump.next.unwrap_or_default(),
                groups: groups.named_in(&mut dump.chunk)?,
                chunk: dump.chunk,
            };
            writer.part(&part).map_err(written)?;
            progress.moved(bytes);
            Ok(())
        })?;
    }
    writer.end().map_err(written)?;
    progress.end();
    Ok(())
}
