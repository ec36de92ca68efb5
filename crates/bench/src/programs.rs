//! Real programs: the time that they take, s.

use crate::place::At;
use crate::warm::read_through;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Lines of 50 bytes that are sorted.
const LINES: u64 = 4_000_000;

/// Runs a program that must succeed; its output is not looked at.
pub(crate) fn run(command: &mut Command) -> io::Result<()> {
    finish(command.stdout(Stdio::null())).map(drop)
}

/// Runs a program that must succeed; returns its output.
pub(crate) fn output(command: &mut Command) -> io::Result<String> {
    let said = finish(command.stdout(Stdio::piped()))?;
    String::from_utf8(said).map_err(|_| io::Error::other(format!("{command:?}: says no UTF-8")))
}

/// A program must be there, which is called by others.
pub(crate) fn needed(program: &str) -> io::Result<()> {
    run(Command::new(program).arg("--version"))
}

/// The package of Debian that has a program.
fn package(program: &str) -> &str {
    match program {
        "cc" => "gcc",
        "ls" | "rm" | "sort" => "coreutils",
        "sh" => "dash",
        _ => program,
    }
}

fn finish(command: &mut Command) -> io::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.map_err(|error| {
        // Also told of a directory to run in that is not there.
        let there = command.get_current_dir().is_none_or(Path::is_dir);
        if error.kind() != io::ErrorKind::NotFound || !there {
            return io::Error::new(error.kind(), format!("{command:?}: {error}"));
        }
        let program = command.get_program().to_string_lossy();
        let package = package(&program);
        let cure = format!("{program} is not on this machine: apt-get install {package}");
        io::Error::new(io::ErrorKind::NotFound, cure)
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("it said nothing").to_owned();
    Err(io::Error::other(format!("{command:?}: {last}")))
}

/// `sort` with temporary files on the side that is measured; its input has been read there before.
pub(crate) fn sort(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let (lines, sorted) = (at.dir.join("lines"), at.dir.join("sorted"));
    if !lines.exists() {
        let mut out = BufWriter::new(File::create(&lines)?);
        for n in 0..LINES {
            // Multiplied by an odd number: all different, in no order.
            let word = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            writeln!(out, "{word:016x} a line that is to be sorted {n:08}")?;
        }
        out.flush()?;
    }
    (at.fresh)()?;
    read_through(&lines)?;
    let mut command = Command::new("sort");
    command.env("LC_ALL", "C").args(["-S", "16M", "-T"]);
    command.arg(at.dir).arg("-o").arg(&sorted).arg(&lines);
    let seconds = at.seconds(|| run(&mut command))?;
    fs::remove_file(sorted)?;
    Ok(vec![seconds])
}

/// The phases of the Andrew benchmark (Howard and others, "Scale and performance in a distributed
/// file system", section 2.3): make directories and copy, stat everything, read everything, build.
/// The sources lie on the side that is measured, and have been read there before.
pub(crate) fn andrew(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let Some((project, build)) = at.sizes.project.clone() else {
        let cure = "it needs a C project: --project DIR";
        return Err(io::Error::new(io::ErrorKind::Unsupported, cure));
    };
    let source = at.made("source", |source| copy_tree(&project, source))?;
    (at.fresh)()?;
    for _ in 0..2 {
        walk(&source, &read)?;
    }
    let copy = at.dir.join("project");
    let before = at.uses.map(|uses| uses()).transpose()?;
    let seconds = at.seconds(|| {
        copy_tree(&source, &copy)?;
        walk(&copy, &|path| fs::symlink_metadata(path).map(drop))?;
        walk(&copy, &read)?;
        run(Command::new("sh").arg("-c").arg(&build).current_dir(&copy))
    })?;
    let after = at.uses.map(|uses| uses()).transpose()?;
    fs::remove_dir_all(copy)?;
    let mut figures = vec![seconds];
    if let (Some(before), Some(after)) = (before, after) {
        let busy = after.server_ns.saturating_sub(before.server_ns) as f64 / 1e9;
        figures.push(busy / seconds * 100.0);
    }
    Ok(figures)
}

/// Reads what is a file.
pub(crate) fn read(path: &Path) -> io::Result<()> {
    match path.is_file() {
        true => fs::read(path).map(drop),
        false => Ok(()),
    }
}

/// Does something to everything below a directory.
pub(crate) fn walk(dir: &Path, act: &dyn Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        act(&path)?;
        if entry.file_type()?.is_dir() {
            walk(&path, act)?;
        }
    }
    Ok(())
}

pub(crate) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, to)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_cure() {
        let told = |command: &mut Command| run(command).map_err(|error| error.to_string());
        let missing = told(&mut Command::new("no-such-program"));
        let cure = "no-such-program is not on this machine: apt-get install no-such-program";
        assert_eq!(missing, Err(cure.to_owned()));
        let elsewhere = told(Command::new("ls").current_dir("/nowhere-at-all"));
        assert!(elsewhere.is_err_and(|error| !error.contains("apt-get")));
        assert_eq!(package("cc"), "gcc");
        assert_eq!(needed("ls").map_err(|error| error.to_string()), Ok(()));
    }
}
