//! `ariel rm`: removes files, and directories with all that is in them.

use super::{Session, below, is_over};
use crate::args::{Remote, RmArgs};
use crate::failure::Failure;
use files::{Error, Tree};
use std::io::{self, Write};
use std::path::{Component, Path};
use std::process::ExitCode;
use wire::Kind;

pub(crate) fn rm(args: &RmArgs) -> Result<ExitCode, Failure> {
    let mut session = Session::new("rm", &args.tree);
    for place in &args.places {
        let tree = session.tree(place)?;
        if is_reserved(&place.path) {
            let text = "refusing to remove the root, '.' or '..'";
            session.complaints().say(place, text);
            continue;
        }
        let found = match tree.symlink_metadata(&place.path) {
            Err(error) if args.force && error.is_not_found() => continue,
            found => found,
        };
        let Some(found) = session.complaints().of(place, found) else {
            continue;
        };
        remove(&session, &tree, (place, found.kind()), args)?;
    }
    session.end()
}

/// Is it no name that could be removed?
fn is_reserved(path: &Path) -> bool {
    !matches!(path.components().next_back(), Some(Component::Normal(_)))
}

fn remove(
    session: &Session,
    tree: &Tree,
    (place, kind): (&Remote, Kind),
    args: &RmArgs,
) -> Result<(), Failure> {
    if kind == Kind::Mount {
        let text = "a mount point: `ariel volume unmount` removes it, and nothing of the volume";
        session.complaints().say(place, text);
        return Ok(());
    }
    let is_dir = kind == Kind::Directory;
    if is_dir && !args.recursive && !args.dir {
        let text = "Is a directory (`-r` removes it with all that is in it, `-d` an empty one)";
        session.complaints().say(place, text);
        return Ok(());
    }
    if is_dir && args.recursive {
        empty(session, tree, place, args)?;
    }
    let gone = session.try_at(place, || {
        let removed = match is_dir {
            true => tree.remove_dir(&place.path),
            false => tree.remove_file(&place.path),
        };
        match removed {
            Err(error) if args.force && error.is_not_found() => Ok(()),
            removed => removed,
        }
    });
    if args.verbose && gone.is_some() {
        is_over(writeln!(io::stdout(), "removed '{place}'"))?;
    }
    Ok(())
}

/// Removes what is in a directory. The names are read first: a listing goes on while names go.
fn empty(session: &Session, tree: &Tree, place: &Remote, args: &RmArgs) -> Result<(), Failure> {
    let entries = session.try_at(place, || {
        let entries = tree.read_dir(&place.path)?;
        entries.collect::<Result<Vec<_>, Error>>()
    });
    for entry in entries.into_iter().flatten() {
        let inner = below(place, entry.file_name());
        remove(session, tree, (&inner, entry.kind()), args)?;
    }
    Ok(())
}
