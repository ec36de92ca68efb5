//! `ariel mv`: moves within one tree.

use super::{Session, below};
use crate::args::{MvArgs, Remote};
use crate::failure::{Failure, NOT_RUN};
use files::{Error, RenameMode, Tree};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn mv(args: &MvArgs) -> Result<ExitCode, Failure> {
    let (to, sources) = match args.places.split_last() {
        Some((to, sources)) if !sources.is_empty() => (to, sources),
        _ => return Err(Failure::new(NOT_RUN, "mv: where to? give a second place")),
    };
    if sources.iter().any(|from| from.server != to.server) {
        let text = "mv: the places are in trees of different servers: copy with `ariel get` and \
                    `ariel put`";
        return Err(Failure::new(NOT_RUN, text));
    }
    let mut session = Session::new("mv", &args.tree);
    let tree = session.tree(to)?;
    let is_dir = tree.metadata(&to.path).is_ok_and(|found| found.is_dir());
    let into = is_dir && !args.no_target_directory && !args.exchange;
    if sources.len() > 1 && !into {
        session.complaints().say(to, "it is no directory");
    } else {
        for from in sources {
            let to = match (into, from.path.file_name()) {
                (true, Some(name)) => below(to, name),
                _ => to.clone(),
            };
            move_one(&session, &tree, (from, &to), args)?;
        }
    }
    drop(tree);
    session.end()
}

fn move_one(
    session: &Session,
    tree: &Tree,
    (from, to): (&Remote, &Remote),
    args: &MvArgs,
) -> Result<(), Failure> {
    let mode = match (args.no_clobber, args.exchange) {
        (true, _) => RenameMode::NoReplace,
        (_, true) => RenameMode::Exchange,
        _ => RenameMode::Replace,
    };
    let moved = session.try_at(from, || match rename(tree, &from.path, &to.path, mode) {
        // As mv(1) says: nothing was done, and that is no failure.
        Err(Error::Refused { errno, .. }) if args.no_clobber && errno.raw_os_error() == 17 => {
            Ok(false)
        }
        renamed => renamed.map(|()| true),
    });
    if args.verbose && moved == Some(true) {
        super::is_over(writeln!(io::stdout(), "renamed '{from}' -> '{to}'"))?;
    }
    Ok(())
}

fn rename(tree: &Tree, from: &Path, to: &Path, mode: RenameMode) -> Result<(), Error> {
    tree.rename(from, to, mode)
}
