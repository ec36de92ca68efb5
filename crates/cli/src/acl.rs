//! `ariel acl`: the access lists of directories, through a mount of them.
//!
//! A list is an extended attribute of its directory, so that the kernel says who asks and the
//! server decides.

mod people;

use crate::args::{AclArgs, AclClearArgs, AclCommand, AclCopyArgs, AclGetArgs, AclSetArgs, rights};
use crate::failure::Failure;
use crate::show;
use access::{Entry, List, Rights};
use anyhow::{Context, anyhow, bail};
use people::People;
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::ACCESS_LIST;

/// Most bytes of a list.
const LIST_BYTES: usize = 1 + 8 * access::ENTRIES_MAX;

pub(crate) fn acl(args: &AclArgs) -> Result<ExitCode, Failure> {
    let (what, done) = match &args.command {
        AclCommand::Get(args) => ("acl get", get(args)),
        AclCommand::Set(args) => ("acl set", set(args)),
        AclCommand::Copy(args) => ("acl copy", copy(args)),
        AclCommand::Clear(args) => ("acl clear", clear(args)),
    };
    done.map_err(|error| Failure::of(what, format_args!("{error:#}")))?;
    Ok(ExitCode::SUCCESS)
}

fn name() -> String {
    String::from_utf8_lossy(ACCESS_LIST).into_owned()
}

/// The list of a directory; `None`: it has none.
fn read(dir: &Path) -> anyhow::Result<Option<List>> {
    let mut value = [0; LIST_BYTES];
    match getxattr(dir, name(), &mut value) {
        Ok(len) => {
            let list = List::decode(&value[..len]);
            let list = list.context("the list is of another version of Ariel: update this one")?;
            Ok(Some(list))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(explained(dir, error)),
    }
}

fn write(dir: &Path, list: &List) -> anyhow::Result<()> {
    setxattr(dir, name(), &list.encode(), XattrFlags::empty())
        .map_err(|error| explained(dir, error))
}

/// An error of the kernel, with what cures it.
fn explained(dir: &Path, error: Errno) -> anyhow::Error {
    let shown = dir.display();
    match error {
        Errno::OPNOTSUPP => anyhow!("{shown} is in no mount of Ariel: lists are kept there alone"),
        Errno::NOTDIR => {
            anyhow!("{shown} is no directory: a list belongs to the directory of a file")
        }
        Errno::PERM => anyhow!(
            "you may not change the list of {shown}: its owner may, and whoever has the right `a`; \
             the first list of a directory with files of others is root's to give"
        ),
        Errno::ACCESS => anyhow!("you may not see the list of {shown}: that takes the right `l`"),
        other => anyhow!("{shown}: {other}"),
    }
}

/// These directories, and all below where that is wanted; symbolic links are not followed.
fn directories(roots: &[PathBuf], recursive: bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = roots.to_vec();
    let mut next = 0;
    while recursive && next < found.len() {
        let dir = found[next].clone();
        let failed = || dir.display().to_string();
        for entry in std::fs::read_dir(&dir).with_context(failed)? {
            let entry = entry.with_context(failed)?;
            if entry.file_type().with_context(failed)?.is_dir() {
                found.push(entry.path());
            }
        }
        next += 1;
    }
    Ok(found)
}

fn get(args: &AclGetArgs) -> anyhow::Result<()> {
    let people = People::of(&args.paths[0]);
    let mut told = Vec::new();
    for path in directories(&args.paths, args.recursive)? {
        let found = path.symlink_metadata();
        let found = found.with_context(|| path.display().to_string())?;
        let whole = std::path::absolute(&path)?;
        let dir = match whole.parent() {
            Some(parent) if !found.is_dir() => parent.to_owned(),
            _ => path.clone(),
        };
        let list = read(&dir)?;
        if args.json {
            told.push(as_json(&people, (&path, &dir), list.as_ref()));
        } else {
            let text = as_text(&people, (&path, found.is_dir()), list.as_ref());
            show::print(&text);
        }
    }
    if args.json {
        show::print(&format!("{:#}", Value::Array(told)));
    }
    Ok(())
}

fn as_text(people: &People, (path, is_dir): (&Path, bool), list: Option<&List>) -> String {
    let path = path.display();
    let Some(list) = list else {
        return format!("{path} has no access list: its mode and POSIX list decide");
    };
    let mut text = match is_dir {
        true => format!("{path}:"),
        false => format!("{path}, by the list of its directory:"),
    };
    if list.entries().next().is_none() {
        text.push_str("\n  (nobody but root has a right)");
    }
    for entry in list.entries() {
        let sign = if entry.negative { "not " } else { "" };
        let who = people.name_of(entry.who);
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {sign}{who} {}", entry.rights.letters());
    }
    text
}

fn as_json(people: &People, (path, dir): (&Path, &Path), list: Option<&List>) -> Value {
    let one = |entry: &Entry| {
        json!({
            "who": people.name_of(entry.who),
            "rights": entry.rights.letters(),
            "negative": entry.negative,
        })
    };
    let entries = list.map(|list| list.entries().map(one).collect::<Vec<_>>());
    json!({ "path": path.to_string_lossy(), "list_of": dir.to_string_lossy(), "entries": entries })
}

fn set(args: &AclSetArgs) -> anyhow::Result<()> {
    let people = People::of(&args.dir);
    let (pairs, rest) = args.entries.as_chunks::<2>();
    if !rest.is_empty() {
        bail!(
            "rights are missing behind {:?}: say WHO RIGHTS, in pairs",
            rest[0]
        );
    }
    let mut entries = Vec::new();
    for [who, text] in pairs {
        entries.push(Entry {
            negative: args.negative,
            who: people.who(who)?,
            rights: rights(text).map_err(anyhow::Error::msg)?,
        });
    }
    for dir in directories(std::slice::from_ref(&args.dir), args.recursive)? {
        let before = match args.only {
            true => List::default(),
            false => read(&dir)?.unwrap_or_default(),
        };
        let mut list = before;
        for entry in &entries {
            list = list.with(*entry).with_context(|| too_much(entry))?;
        }
        write(&dir, &list)?;
    }
    Ok(())
}

fn too_much(entry: &Entry) -> String {
    match entry.negative && entry.rights != Rights::NONE {
        true => "rights are not taken from a group of machines: take them from users".to_owned(),
        false => format!("a list has {} entries at most", access::ENTRIES_MAX),
    }
}

fn copy(args: &AclCopyArgs) -> anyhow::Result<()> {
    let list = read(&args.from)?;
    let from = args.from.display();
    let list = list.with_context(|| format!("{from} has no list: `ariel acl set` makes one"))?;
    for dir in directories(&args.to, args.recursive)? {
        write(&dir, &list)?;
    }
    Ok(())
}

fn clear(args: &AclClearArgs) -> anyhow::Result<()> {
    // The deepest come first: a list may be what lets its caller come to them.
    for dir in directories(&args.dirs, args.recursive)?.iter().rev() {
        match removexattr(dir, name()) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(explained(dir, error)),
        }
    }
    Ok(())
}
