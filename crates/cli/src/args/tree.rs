//! The command lines of what works on a server's tree without a mount.

use super::TrustArgs;
use net::Addresses;
use std::fmt;
use std::path::{Component, PathBuf};

/// A place in a server's tree: `ADDR:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// The server.
    pub(crate) server: Addresses,
    /// The path, from the root of the tree.
    pub(crate) path: PathBuf,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.server, self.path.display())
    }
}

/// Reads `ADDR:PATH`.
pub(crate) fn remote(text: &str) -> Result<Remote, String> {
    let wrong = || {
        "not a place in a tree: give the server's address, a colon and a path, such as \
         127.0.0.1:7000:/a/b"
            .to_owned()
    };
    // The addresses end at the colon behind the last port.
    let mut end = 0;
    loop {
        let rest = &text[end..];
        let host = match rest.strip_prefix('[') {
            Some(rest) => rest.find(']').ok_or_else(wrong)? + 2,
            None => rest.find(':').ok_or_else(wrong)?,
        };
        let port = rest.get(host + 1..).ok_or_else(wrong)?;
        end += host + 1 + port.find([':', ',']).ok_or_else(wrong)?;
        if text[end..].starts_with(':') {
            break;
        }
        end += 1;
    }
    let server = text[..end].parse().map_err(|_| wrong())?;
    let path = match &text[end + 1..] {
        "" => PathBuf::from("/"),
        path => PathBuf::from(path),
    };
    Ok(Remote { server, path })
}

/// A server, and a directory of its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The server.
    pub(crate) server: Addresses,
    /// The directory; none: the root.
    pub(crate) part: Option<PathBuf>,
}

/// Reads `ADDR` or `ADDR:PATH`.
pub(crate) fn source(text: &str) -> Result<Source, String> {
    let Ok(Remote { server, path }) = remote(text) else {
        let server = super::cell::addresses(text)?;
        return Ok(Source { server, part: None });
    };
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) if path.is_absolute() => names.push(name),
            _ => {
                return Err(format!(
                    "{}: no path from the root of the tree: begin with /, without ..",
                    path.display()
                ));
            }
        }
    }
    let part = names
        .iter()
        .fold(PathBuf::from("/"), |path, name| path.join(name));
    let part = Some(part).filter(|_| !names.is_empty());
    Ok(Source { server, part })
}

/// Which tree a command works on.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// The volume, or VOLUME@SNAPSHOT, whose tree it is [default: root]
    #[arg(long, value_name = "VOLUME", value_parser = super::volume::existing)]
    pub(crate) volume: Option<wire::Name>,
}

#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  ariel ls -l 127.0.0.1:7000:/projects
  ariel ls -R 127.0.0.1:7000:"
)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// Files and directories to list
    #[arg(value_name = "ADDR:PATH", value_parser = remote, required = true)]
    pub(crate) places: Vec<Remote>,
    /// One line each: mode, names, owner, group, size, time and name
    #[arg(short = 'l')]
    pub(crate) long: bool,
    /// Also names that begin with a dot
    #[arg(short = 'a', long, visible_short_alias = 'A')]
    pub(crate) all: bool,
    /// Directories themselves, not what is in them
    #[arg(short = 'd', long)]
    pub(crate) directory: bool,
    /// All that is below, too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// The latest change first
    #[arg(short = 't')]
    pub(crate) by_time: bool,
    /// The largest first
    #[arg(short = 'S', conflicts_with = "by_time")]
    pub(crate) by_size: bool,
    /// In the opposite order
    #[arg(short = 'r', long)]
    pub(crate) reverse: bool,
    /// Sizes as 1.5K, 200M
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// The number of each object first
    #[arg(short = 'i', long)]
    pub(crate) inode: bool,
    /// One name a line, also on a terminal
    #[arg(short = '1')]
    pub(crate) single: bool,
    /// A line of JSON for each entry
    #[arg(long)]
    pub(crate) json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ariel cat 127.0.0.1:7000:/etc/motd")]
pub(crate) struct CatArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// Files, written to standard output one behind the other
    #[arg(value_name = "ADDR:PATH", value_parser = remote, required = true)]
    pub(crate) places: Vec<Remote>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TransferArgs {
    /// Directories with all that is in them. Symbolic links are copied as such
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Modes, times and extended attributes are kept; owners, too, for root
    #[arg(short = 'p', long)]
    pub(crate) preserve: bool,
    /// Existing files stay as they are
    #[arg(short = 'n', long)]
    pub(crate) no_clobber: bool,
    /// Print each name that is copied
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// No progress on the terminal
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// Files that are copied at one time
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) jobs: u32,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel put notes.txt 127.0.0.1:7000:/home/a/
  ariel put -rp ./project 127.0.0.1:7000:/src
  tar c . | ariel put - 127.0.0.1:7000:/backup.tar
As with cp(1), a destination that is a directory gets the files under their own names.")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    /// Wait until the server's disk has all copies
    #[arg(long)]
    pub(crate) sync: bool,
    /// Local files and directories; `-`: standard input
    #[arg(value_name = "LOCAL", required = true)]
    pub(crate) sources: Vec<PathBuf>,
    /// Where to
    #[arg(value_name = "ADDR:PATH", value_parser = remote)]
    pub(crate) destination: Remote,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel get 127.0.0.1:7000:/home/a/notes.txt .
  ariel get -rp 127.0.0.1:7000:/src/project ./copy
As with cp(1), a destination that is a directory gets the files under their own names.")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    /// Files and directories of a tree
    #[arg(value_name = "ADDR:PATH", value_parser = remote, required = true)]
    pub(crate) sources: Vec<Remote>,
    /// Where to
    #[arg(value_name = "LOCAL")]
    pub(crate) destination: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel rm 127.0.0.1:7000:/home/a/notes.txt
  ariel rm -r 127.0.0.1:7000:/src/project")]
pub(crate) struct RmArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// Files and directories to remove
    #[arg(value_name = "ADDR:PATH", value_parser = remote, required = true)]
    pub(crate) places: Vec<Remote>,
    /// Directories with all that is in them
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// A name that does not exist is no error
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Empty directories, too
    #[arg(short = 'd', long)]
    pub(crate) dir: bool,
    /// Print each name that is removed
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ariel mv 127.0.0.1:7000:/a 127.0.0.1:7000:/b
  ariel mv 127.0.0.1:7000:/a 127.0.0.1:7000:/b 127.0.0.1:7000:/directory
Moves within one tree. `ariel put` and `ariel get` copy from and to this machine.")]
pub(crate) struct MvArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// Files and directories to move, and the destination
    #[arg(value_name = "ADDR:PATH", value_parser = remote, num_args = 2.., required = true)]
    pub(crate) places: Vec<Remote>,
    /// An object that has the new name keeps it, and nothing is moved
    #[arg(short = 'n', long)]
    pub(crate) no_clobber: bool,
    /// The two change names
    #[arg(long, conflicts_with = "no_clobber")]
    pub(crate) exchange: bool,
    /// The destination is a name, not a directory to move into
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Print each name that is moved
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ariel mkdir -p 127.0.0.1:7000:/a/b/c")]
pub(crate) struct MkdirArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// Directories to make
    #[arg(value_name = "ADDR:PATH", value_parser = remote, required = true)]
    pub(crate) places: Vec<Remote>,
    /// Directories above it, too; one that is there is no error
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// The mode, octal [default: 777 less the umask]
    #[arg(short = 'm', long, value_name = "MODE", value_parser = mode)]
    pub(crate) mode: Option<u32>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ariel stat 127.0.0.1:7000:/etc/motd")]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// Files and directories to describe; symbolic links are not followed
    #[arg(value_name = "ADDR:PATH", value_parser = remote, required = true)]
    pub(crate) places: Vec<Remote>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    /// Describe the file system instead
    #[arg(short = 'f', long)]
    pub(crate) file_system: bool,
    /// A line of JSON each
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("not a mode: give octal digits, such as 750".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_mount_is_of_a_tree_or_of_a_directory_in_it() {
        for (text, part) in [
            ("127.0.0.1:7000", None),
            ("a:1,[::1]:2", None),
            ("a:1:/", None),
            ("a:1:", None),
            ("a:1,b:2:/x//y/", Some("/x/y")),
            ("[::1]:7:/x:y", Some("/x:y")),
        ] {
            let source = source(text).unwrap();
            assert_eq!(source.part, part.map(PathBuf::from), "{text}");
        }
        for wrong in ["a", "a:b", "a:1:x", "a:1:/x/../y", "a:1:../x", ""] {
            assert!(source(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_place_is_an_address_and_a_path() {
        let place = remote("127.0.0.1:7000:/a:b/c").unwrap();
        assert_eq!(place.server, "127.0.0.1:7000".parse().unwrap());
        assert_eq!(place.path, PathBuf::from("/a:b/c"));
        assert_eq!(remote("[::1]:7000:x").unwrap().path, PathBuf::from("x"));
        let several = remote("a.example:7000,[fd00::1]:7:/x").unwrap();
        assert_eq!(several.server.to_string(), "a.example:7000,[fd00::1]:7");
        assert_eq!(several.path, PathBuf::from("/x"));
        assert_eq!(remote("127.0.0.1:1:").unwrap().path, PathBuf::from("/"));
        for wrong in [
            "",
            "/a/b",
            "127.0.0.1:/a",
            "127.0.0.1:7000",
            "[::1",
            "[::1]",
        ] {
            assert!(remote(wrong).is_err(), "{wrong}");
        }
    }
}
