//! Manual pages, made of the command line's own descriptions, so that they say what `--help` says.

use crate::args::{Args, PagesArgs};
use crate::failure::Failure;
use clap::CommandFactory;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// The sections behind the description of the program itself.
const MORE: &str = r#".SH FILES
.TP
.I /etc/ariel/*.toml
Options of commands: see
.BR ariel\-config (1).
.TP
.I /run/ariel
Control sockets and logs of root's mounts and servers; of other users below
.I $XDG_RUNTIME_DIR
.SH EXAMPLES
.nf
ariel up                            a server and a mount of it, here and now
ariel mount ADDR /mnt/a             any number of mounts of one server
mount \-t fuse.ariel ADDR /mnt/a     the same by mount(8), as in /etc/fstab
ariel status /mnt/a                 how a mount is
.fi
"#;

/// Writes a page for the program and one for each command into a directory.
pub(crate) fn pages(args: &PagesArgs) -> Result<ExitCode, Failure> {
    write(&args.dir).map_err(|error| Failure::of(&args.dir.display().to_string(), error))?;
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let program = Args::command().disable_help_subcommand(true);
    clap_mangen::generate_to(program, dir)?;
    let path = dir.join("ariel.1");
    let mut page = std::fs::read_to_string(&path)?;
    page.push_str(MORE);
    std::fs::write(path, page)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_command_that_people_use_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path()).unwrap();
        for command in Args::command().get_subcommands() {
            let path = dir.path().join(format!("ariel-{}.1", command.get_name()));
            assert_eq!(path.exists(), !command.is_hide_set(), "{}", path.display());
        }
        let page = std::fs::read_to_string(dir.path().join("ariel.1")).unwrap();
        assert!(page.contains("mount \\-t fuse.ariel"), "{page}");
    }
}
