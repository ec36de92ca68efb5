//! How entries of a listing are sorted and printed.

use super::names::{Owners, mode_text, size_text, time_text};
use super::stat::json_of;
use crate::args::{LsArgs, Remote};
use files::Metadata;
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use wire::Kind;

const TIME: &str = "%Y-%m-%d %H:%M";
/// Columns of names are so far apart.
const GAP: usize = 2;
const USUAL_WIDTH: usize = 80;

/// An entry.
pub(super) struct Row {
    pub(super) name: OsString,
    pub(super) place: Remote,
    pub(super) found: Metadata,
    pub(super) target: Option<PathBuf>,
}

impl Row {
    pub(super) fn kind(&self) -> Kind {
        self.found.kind()
    }
}

/// How rows are printed.
pub(super) struct Rows<'a> {
    args: &'a LsArgs,
    owners: Owners,
    /// The width of the terminal; `None`: there is none.
    width: Option<usize>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(args: &'a LsArgs) -> Self {
        let stdout = io::stdout();
        let width = stdout.is_terminal().then(|| {
            let size = rustix::termios::tcgetwinsize(&stdout);
            let columns = size.map_or(0, |size| usize::from(size.ws_col));
            if columns == 0 { USUAL_WIDTH } else { columns }
        });
        Self {
            args,
            owners: Owners::read(),
            width,
        }
    }

    /// In the order that was asked for.
    pub(super) fn sorted(&self, mut rows: Vec<Row>) -> Vec<Row> {
        let by_name = |one: &Row, other: &Row| one.name.cmp(&other.name);
        let order = |one: &Row, other: &Row| -> Ordering {
            let first = if self.args.by_time {
                other.found.mtime().cmp(&one.found.mtime())
            } else if self.args.by_size {
                other.found.len().cmp(&one.found.len())
            } else {
                Ordering::Equal
            };
            first.then_with(|| by_name(one, other))
        };
        rows.sort_by(order);
        if self.args.reverse {
            rows.reverse();
        }
        rows
    }

    /// Prints rows; those of a directory with the number of blocks that they occupy before them.
    pub(super) fn print(
        &self,
        out: &mut impl Write,
        rows: Vec<Row>,
        of_directory: bool,
    ) -> io::Result<()> {
        if self.args.json {
            return rows.iter().try_for_each(|row| {
                let target = row
                    .target
                    .as_ref()
                    .map(|target| target.display().to_string());
                let path = row.place.to_string();
                writeln!(out, "{}", json_of(&path, &row.found, target.as_deref()))
            });
        }
        if self.args.long {
            if of_directory {
                let blocks: u64 = rows.iter().map(|row| row.found.blocks()).sum();
                writeln!(out, "total {}", self.size(blocks * 512, blocks / 2))?;
            }
            return self.print_long(out, &rows);
        }
        let names: Vec<Vec<u8>> = rows.iter().map(|row| self.short(row)).collect();
        match self.width.filter(|_| !self.args.single) {
            Some(width) => print_columns(out, &names, width),
            None => names.iter().try_for_each(|name| line(out, name)),
        }
    }

    fn size(&self, bytes: u64, plain: u64) -> String {
        match self.args.human_readable {
            true => size_text(bytes),
            false => plain.to_string(),
        }
    }

    fn short(&self, row: &Row) -> Vec<u8> {
        let mut text = match self.args.inode {
            true => format!("{} ", row.found.ino()).into_bytes(),
            false => Vec::new(),
        };
        text.extend(self.shown(&row.name));
        text
    }

    /// A name as it is, or, on a terminal, without what would move the cursor.
    fn shown(&self, name: &OsStr) -> Vec<u8> {
        if self.width.is_none() {
            return name.as_bytes().to_vec();
        }
        let text = name.to_string_lossy();
        let plain = |letter: char| if letter.is_control() { '?' } else { letter };
        text.chars().map(plain).collect::<String>().into_bytes()
    }

    fn print_long(&self, out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
        let fields: Vec<[String; 4]> = rows.iter().map(|row| self.fields(row)).collect();
        let width = |at: usize| fields.iter().map(|of| of[at].len()).max().unwrap_or(0);
        let [links, user, group, size] = [width(0), width(1), width(2), width(3)];
        for (row, of) in rows.iter().zip(&fields) {
            let found = &row.found;
            let inode = match self.args.inode {
                true => format!("{} ", found.ino()),
                false => String::new(),
            };
            let mode = mode_text(found.kind(), found.mode());
            let time = time_text(found.mtime(), TIME);
            write!(
                out,
                "{inode}{mode} {:>links$} {:<user$} {:<group$} {:>size$} {time} ",
                of[0], of[1], of[2], of[3]
            )?;
            out.write_all(&self.shown(&row.name))?;
            if let Some(target) = &row.target {
                out.write_all(b" -> ")?;
                out.write_all(&self.shown(target.as_os_str()))?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Names, owner, group and size.
    fn fields(&self, row: &Row) -> [String; 4] {
        let found = &row.found;
        let size = match found.kind() {
            Kind::Character | Kind::Block => {
                let rdev = u64::from(found.rdev());
                format!("{}, {}", rustix::fs::major(rdev), rustix::fs::minor(rdev))
            }
            _ => self.size(found.len(), found.len()),
        };
        [
            found.nlink().to_string(),
            self.owners.user(found.uid()),
            self.owners.group(found.gid()),
            size,
        ]
    }
}

fn line(out: &mut impl Write, name: &[u8]) -> io::Result<()> {
    out.write_all(name)?;
    out.write_all(b"\n")
}

/// Names in columns, from top to bottom, as many columns as fit.
fn print_columns(out: &mut impl Write, names: &[Vec<u8>], width: usize) -> io::Result<()> {
    let lens: Vec<usize> = names
        .iter()
        .map(|name| String::from_utf8_lossy(name).chars().count())
        .collect();
    let widths = |lines: usize| -> Vec<usize> {
        let columns = lens.chunks(lines);
        columns
            .map(|of| of.iter().max().copied().unwrap_or(0))
            .collect()
    };
    let fits =
        |lines: &usize| widths(*lines).iter().map(|of| of + GAP).sum::<usize>() <= width + GAP;
    let lines = (1..=names.len()).find(fits).unwrap_or(names.len());
    if lines == 0 {
        return Ok(());
    }
    let widths = widths(lines);
    for at in 0..lines {
        for (column, of) in widths.iter().enumerate() {
            let Some(name) = names.get(column * lines + at) else {
                continue;
            };
            out.write_all(name)?;
            if (column + 1) * lines + at < names.len() {
                let pad = of + GAP - lens[column * lines + at];
                out.write_all(&vec![b' '; pad])?;
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_stand_in_columns() {
        let names: Vec<Vec<u8>> = ["a", "bb", "ccc", "d", "e"]
            .map(|name| name.into())
            .to_vec();
        let mut out = Vec::new();
        print_columns(&mut out, &names, 9).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a    d\nbb   e\nccc\n");
        let mut out = Vec::new();
        print_columns(&mut out, &[], 9).unwrap();
        assert!(out.is_empty());
    }
}
