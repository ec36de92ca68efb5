//! `ariel cat`: files to standard output.

use super::{Session, is_over};
use crate::args::CatArgs;
use crate::failure::Failure;
use files::Error;
use std::io::{self, Write};
use std::process::ExitCode;

const PART_BYTES: usize = 1 << 20;

pub(crate) fn cat(args: &CatArgs) -> Result<ExitCode, Failure> {
    let mut session = Session::new("cat", &args.tree);
    let mut stdout = io::stdout().lock();
    let mut buffer = vec![0; PART_BYTES];
    for place in &args.places {
        let tree = session.tree(place)?;
        let Some(file) = session.try_at(place, || tree.open(&place.path)) else {
            continue;
        };
        let mut offset = 0;
        loop {
            let part = session.try_at(place, || -> Result<usize, Error> {
                file.read_at(&mut buffer, offset)
            });
            let Some(count) = part.filter(|count| *count > 0) else {
                break;
            };
            offset += count as u64;
            if is_over(stdout.write_all(&buffer[..count]))? {
                drop((file, tree));
                return session.end();
            }
        }
    }
    is_over(stdout.flush())?;
    session.end()
}
