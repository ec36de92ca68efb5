//! `ariel stat`: what an object is.

use super::names::{Owners, kind_text, mode_text, time_text};
use super::{Session, is_over};
use crate::args::{Remote, StatArgs};
use crate::failure::Failure;
use files::{Error, Metadata, Tree};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;
use wire::Kind;

const TIME: &str = "%Y-%m-%d %H:%M:%S.%N %z";

pub(crate) fn stat(args: &StatArgs) -> Result<ExitCode, Failure> {
    let mut session = Session::new("stat", &args.tree);
    let owners = Owners::read();
    for place in &args.places {
        let tree = session.tree(place)?;
        let text = session.try_at(place, || {
            if args.file_system {
                return of_file_system(&tree, place, args.json);
            }
            let found = match args.dereference {
                true => tree.metadata(&place.path)?,
                false => tree.symlink_metadata(&place.path)?,
            };
            let target = match found.kind() {
                Kind::Symlink => Some(tree.read_link(&place.path)?),
                _ => None,
            };
            let target = target.map(|target| target.display().to_string());
            Ok(match args.json {
                true => json_of(&place.to_string(), &found, target.as_deref()).to_string(),
                false => text_of(place, &found, target, &owners),
            })
        });
        if let Some(text) = text
            && is_over(writeln!(io::stdout(), "{text}"))?
        {
            break;
        }
    }
    session.end()
}

fn text_of(place: &Remote, found: &Metadata, target: Option<String>, owners: &Owners) -> String {
    let arrow = target.map_or_else(String::new, |target| format!(" -> {target}"));
    let kind = kind_text(found.kind(), found.is_empty());
    let (mode, letters) = (found.mode(), mode_text(found.kind(), found.mode()));
    let (user, group) = (owners.user(found.uid()), owners.group(found.gid()));
    format!(
        "  File: {place}{arrow}\n  Size: {:<15} Blocks: {:<10} {kind}\nInode: {:<15} Links: {}\n\
         Access: ({mode:04o}/{letters})  Uid: ({:5}/{user:>8})   Gid: ({:5}/{group:>8})\n\
         Access: {}\nModify: {}\nChange: {}\n Birth: {}",
        found.len(),
        found.blocks(),
        found.ino(),
        found.nlink(),
        found.uid(),
        found.gid(),
        time_text(found.atime(), TIME),
        time_text(found.mtime(), TIME),
        time_text(found.ctime(), TIME),
        time_text(found.btime(), TIME),
    )
}

/// An object as JSON: also for `ls --json`.
pub(super) fn json_of(path: &str, found: &Metadata, target: Option<&str>) -> Value {
    let time = |(seconds, nanoseconds): (i64, u32)| format!("{seconds}.{nanoseconds:09}");
    json!({
        "path": path,
        "kind": kind_text(found.kind(), false),
        "inode": found.ino(),
        "mode": format!("{:04o}", found.mode()),
        "links": found.nlink(),
        "uid": found.uid(),
        "gid": found.gid(),
        "size": found.len(),
        "blocks": found.blocks(),
        "atime": time(found.atime()),
        "mtime": time(found.mtime()),
        "ctime": time(found.ctime()),
        "btime": time(found.btime()),
        "target": target,
    })
}

fn of_file_system(tree: &Tree, place: &Remote, json: bool) -> Result<String, Error> {
    let numbers = tree.statistics(&place.path)?;
    Ok(match json {
        true => json!({
            "path": place.to_string(),
            "total_bytes": numbers.total_bytes,
            "free_bytes": numbers.free_bytes,
            "files": numbers.files,
            "free_files": numbers.free_files,
        })
        .to_string(),
        false => format!(
            "  File: {place}\n Bytes: {} in all, {} free\nInodes: {} used, {} free",
            numbers.total_bytes, numbers.free_bytes, numbers.files, numbers.free_files
        ),
    })
}
