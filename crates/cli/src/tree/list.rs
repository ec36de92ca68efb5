//! `ariel ls`: lists directories.

use super::long::{Row, Rows};
use super::{Session, below, is_over};
use crate::args::{LsArgs, Remote};
use crate::failure::Failure;
use files::{Error, Metadata, Tree};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;
use wire::Kind;

pub(crate) fn ls(args: &LsArgs) -> Result<ExitCode, Failure> {
    let mut session = Session::new("ls", &args.tree);
    let (mut files, mut dirs) = (Vec::new(), Vec::new());
    for place in &args.places {
        let tree = session.tree(place)?;
        let Some(found) = session.try_at(place, || find(&tree, place, args)) else {
            continue;
        };
        if found.is_dir() && !args.directory {
            dirs.push((tree, place.clone()));
        } else {
            let name = place.path.as_os_str().to_owned();
            let row = row(
                &session,
                &tree,
                (place.clone(), name.as_os_str()),
                found,
                args,
            );
            files.push(row);
        }
    }
    let headed = args.recursive || args.places.len() > 1;
    let printed = print(args, &session, files, (dirs, headed));
    if is_over(printed)? {
        return session.end();
    }
    session.end()
}

/// A symbolic link is followed, unless the link itself is asked for.
fn find(tree: &Tree, place: &Remote, args: &LsArgs) -> Result<Metadata, Error> {
    if args.long || args.directory {
        return tree.symlink_metadata(&place.path);
    }
    let followed = tree.metadata(&place.path);
    followed.or_else(|_| tree.symlink_metadata(&place.path))
}

fn print(
    args: &LsArgs,
    session: &Session,
    files: Vec<Row>,
    (dirs, headed): (Vec<(Arc<Tree>, Remote)>, bool),
) -> io::Result<()> {
    let rows = Rows::new(args);
    let mut out = io::stdout().lock();
    let mut first = files.is_empty();
    rows.print(&mut out, files, false)?;
    let mut left: Vec<_> = dirs.into_iter().rev().collect();
    while let Some((tree, place)) = left.pop() {
        let Some(found) = session.try_at(&place, || entries(session, &tree, &place, args)) else {
            continue;
        };
        if headed && !args.json {
            let gap = if first { "" } else { "\n" };
            writeln!(out, "{gap}{place}:")?;
        }
        first = false;
        let inner = rows.sorted(found);
        if args.recursive {
            let dirs = inner.iter().filter(|row| row.kind() == Kind::Directory);
            let dirs: Vec<Remote> = dirs.map(|row| row.place.clone()).collect();
            left.extend(dirs.into_iter().rev().map(|dir| (Arc::clone(&tree), dir)));
        }
        rows.print(&mut out, inner, true)?;
    }
    out.flush()
}

fn entries(
    session: &Session,
    tree: &Tree,
    place: &Remote,
    args: &LsArgs,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for entry in tree.read_dir(&place.path)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") && !args.all {
            continue;
        }
        let inner = below(place, name);
        let found = entry.metadata();
        let found = found.map_or_else(|| tree.symlink_metadata(&inner.path), Ok);
        let found = match found {
            // It has gone since.
            Err(error) if error.is_not_found() => continue,
            // Its volume is not there: the rest of the directory is.
            Err(error) if entry.kind() == Kind::Mount => {
                session.complaints().say(&inner, error.reason());
                continue;
            }
            found => found?,
        };
        rows.push(row(session, tree, (inner, name.as_os_str()), found, args));
    }
    Ok(rows)
}

fn row(
    session: &Session,
    tree: &Tree,
    (place, name): (Remote, &OsStr),
    found: Metadata,
    args: &LsArgs,
) -> Row {
    let shows = (args.long || args.json) && found.kind() == Kind::Symlink;
    let target = match shows {
        true => session.try_at(&place, || tree.read_link(&place.path)),
        false => None,
    };
    Row {
        name: name.to_owned(),
        place,
        found,
        target,
    }
}
