//! `ariel mkdir`: makes directories.

use super::Session;
use crate::args::MkdirArgs;
use crate::failure::Failure;
use files::SetAttributes;
use std::process::ExitCode;

pub(crate) fn mkdir(args: &MkdirArgs) -> Result<ExitCode, Failure> {
    let mut session = Session::new("mkdir", &args.tree);
    for place in &args.places {
        let tree = session.tree(place)?;
        session.try_at(place, || {
            match args.parents {
                true => tree.create_dir_all(&place.path, 0o777)?,
                false => {
                    tree.create_dir(&place.path, 0o777)?;
                }
            }
            // The umask does not count for a mode that was asked for.
            let mode = args.mode;
            let set = SetAttributes {
                mode,
                ..SetAttributes::default()
            };
            mode.map_or(Ok(()), |_| tree.set_attributes(&place.path, &set))
        });
    }
    session.end()
}
