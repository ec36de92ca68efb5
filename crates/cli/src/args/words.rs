//! The words of a command line, as `mount(8)`, `/etc/fstab` and people give them, in the form that
//! the parser knows.
//!
//! Called as `mount.ariel` or `mount.fuse.ariel`, this program is a helper of `mount(8)`: source,
//! directory, `-o LIST`. In such a list stand words of the kernel (`ro`), words for others
//! (`_netdev`), and this program's own options (`cache-mib=64`), which become `--cache-mib=64`.

use super::Args;
use crate::failure::{Failure, NOT_RUN};
use clap::{ArgAction, CommandFactory};
use fuse::mount::Flags;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Words that are meant for others, or say what is so anyhow.
const FOR_OTHERS: [&str; 23] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "users",
    "nouser",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "async",
    "atime",
    "norelatime",
    "nostrictatime",
    "nomand",
    "silent",
    "loud",
    "nolazytime",
    "allow_other",
    "default_permissions",
    "quiet",
];

/// The words to parse; the first one is the program.
pub(crate) fn words(called: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let name = called.first().and_then(|word| Path::new(word).file_name());
    let name = name.and_then(OsStr::to_str).unwrap_or("ariel");
    if name == "mount.ariel" || name == "mount.fuse.ariel" {
        return of_helper(&called[1..]);
    }
    if called.get(1).is_none_or(|command| command != "mount") {
        return Ok(called);
    }
    let (kept, lists) = take_lists(&called);
    expand(kept, &lists, false)
}

/// Splits the lists of `-o` from the other words.
fn take_lists(called: &[OsString]) -> (Vec<OsString>, Vec<String>) {
    let (mut kept, mut lists) = (Vec::new(), Vec::new());
    let mut words = called.iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let joined = text.strip_prefix("--options=");
        let joined = joined.or_else(|| text.strip_prefix("-o").filter(|list| !list.is_empty()));
        let list = match joined {
            Some(list) => Some(list.trim_start_matches('=').to_owned()),
            None if text == "-o" || text == "--options" => {
                words.next().map(|list| list.to_string_lossy().into_owned())
            }
            None => None,
        };
        match list {
            Some(list) => lists.push(list),
            None => kept.push(word.clone()),
        }
    }
    (kept, lists)
}

/// `mount.ariel SOURCE DIR [-sfnv] [-N NAMESPACE] [-o LIST] [-t TYPE]`, as `mount(8)` says it.
fn of_helper(given: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let (kept, lists) = take_lists(given);
    let mut line = vec![OsString::from("ariel"), "mount".into()];
    let (mut sloppy, mut verbose) = (false, false);
    let mut words = kept.into_iter();
    while let Some(word) = words.next() {
        let letters = word.to_str().and_then(|word| word.strip_prefix('-'));
        match letters {
            Some("N" | "t") => drop(words.next()),
            Some(letters) if letters.contains('f') => {
                let what = "mount -f (a dry run) cannot be done: leave it out";
                return Err(Failure::new(NOT_RUN, what));
            }
            Some(letters) => {
                sloppy |= letters.contains('s');
                verbose |= letters.contains('v');
            }
            None => line.push(word),
        }
    }
    if let Some(words) = of_remount(&lists, sloppy)? {
        let dir = line.pop().unwrap_or_default();
        return Ok([vec!["ariel".into(), "__remount".into(), dir], words].concat());
    }
    if !verbose {
        // mount(8) says nothing where all is well, and scripts compare what it says.
        line.push("--quiet".into());
    }
    expand(line, &lists, sloppy)
}

/// The words of `remount`, if that is wanted. mount(8) says the words of the mount as it is, too.
fn of_remount(lists: &[String], sloppy: bool) -> Result<Option<Vec<OsString>>, Failure> {
    let all = || lists.iter().flat_map(|list| list.split(','));
    if !all().any(|word| word == "remount") {
        return Ok(None);
    }
    let mut words = Vec::new();
    for word in all().filter(|word| *word != "remount" && !is_foreign(word)) {
        let as_it_is = ["user_id=", "group_id=", "max_read="];
        if Flags::default().apply(word) {
            words.push(word.into());
        } else if word == "trusted" {
            words.extend(["suid".into(), "dev".into()]);
        } else if !sloppy && !as_it_is.iter().any(|start| word.starts_with(start)) {
            let cure = "unmount, and mount again with it";
            return Err(Failure::new(
                NOT_RUN,
                format_args!("mount: the option {word} cannot be changed while mounted: {cure}"),
            ));
        }
    }
    Ok(Some(words))
}

/// Is it meant for others?
fn is_foreign(word: &str) -> bool {
    let begins = |start: &&str| word.starts_with(*start);
    word.is_empty() || FOR_OTHERS.contains(&word) || ["x-", "X-", "comment="].iter().any(begins)
}

/// Adds what is in the lists. `sloppy`: unknown words are left out, but for `remount`, which would
/// make no mount.
fn expand(
    mut line: Vec<OsString>,
    lists: &[String],
    sloppy: bool,
) -> Result<Vec<OsString>, Failure> {
    let mut flags = Vec::new();
    for word in lists.iter().flat_map(|list| list.split(',')) {
        if is_foreign(word) {
            continue;
        }
        if Flags::default().apply(word) {
            flags.push(word);
        } else if let Some(option) = own_option(word) {
            line.push(option);
        } else if !sloppy || word == "remount" {
            return Err(unknown(word));
        }
    }
    if !flags.is_empty() {
        line.extend(["-o".into(), flags.join(",").into()]);
    }
    Ok(line)
}

/// An option of `ariel mount`: in a list, colons stand for the commas of its value.
fn own_option(word: &str) -> Option<OsString> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let name = name.replace('_', "-");
    let command = Args::command();
    let mount = command.find_subcommand("mount")?;
    let mut known = mount.get_arguments().filter(|arg| !arg.is_hide_set());
    let option = known.find(|arg| arg.get_long() == Some(name.as_str()))?;
    let takes_value = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
    match value {
        Some(value) if name == "without" => Some(format!("--{name}={}", value.replace(':', ","))),
        Some(value) if takes_value => Some(format!("--{name}={value}")),
        None if !takes_value => Some(format!("--{name}")),
        _ => None,
    }
    .map(OsString::from)
}

fn unknown(word: &str) -> Failure {
    let cure = match word {
        "remount" => "`mount -o remount,ro DIR` does that (`make install` first)",
        "sync" | "dirsync" => "what must be on the server's disk at once is synced by programs",
        _ => "see `man 8 mount` for the usual ones and `ariel mount --help` for Ariel's",
    };
    Failure::new(
        NOT_RUN,
        format_args!("mount: the option {word} is not known: {cure}"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::Command;
    use clap::Parser;

    fn words_of(line: &[&str]) -> Result<Vec<OsString>, Failure> {
        words(line.iter().map(OsString::from).collect())
    }

    fn expanded(line: &[&str]) -> Vec<String> {
        let words = words_of(line).unwrap_or_else(|failure| panic!("{failure}"));
        words
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_list_says_what_options_say() {
        let line = [
            "ariel",
            "mount",
            "127.0.0.1:1",
            "/m",
            "-oro,cache-mib=64",
            "-f",
        ];
        let said = [
            "ariel",
            "mount",
            "127.0.0.1:1",
            "/m",
            "-f",
            "--cache-mib=64",
            "-o",
            "ro",
        ];
        assert_eq!(expanded(&line), said);
        let line = [
            "ariel",
            "mount",
            "127.0.0.1:1",
            "/m",
            "-o",
            "without=epoch:give,trusted",
        ];
        let said = [
            "ariel",
            "mount",
            "127.0.0.1:1",
            "/m",
            "--without=epoch,give",
            "--trusted",
        ];
        assert_eq!(expanded(&line), said);
        // Only of this command.
        let line = ["ariel", "umount", "-o"];
        assert_eq!(expanded(&line), line);
    }

    #[test]
    fn a_helper_of_mount_is_called_by_its_name() {
        for name in ["/sbin/mount.ariel", "mount.fuse.ariel"] {
            let list = "rw,noexec,_netdev,x-systemd.automount,cache_mib=8,name-delay=1";
            let line = [
                name,
                "127.0.0.1:1",
                "/m",
                "-n",
                "-t",
                "fuse.ariel",
                "-o",
                list,
            ];
            let words = expanded(&line);
            let Command::Mount(args) = Args::try_parse_from(words).unwrap().command else {
                panic!("another command");
            };
            let size = args.memory.cache_mib.to_string();
            assert_eq!((size.as_str(), args.name_delay), ("8", 1_000_000_000));
            assert!(!args.flags.unwrap().is_read_only());
            assert!(args.quiet);
        }
    }

    #[test]
    fn a_remount_changes_what_the_kernel_can_change() {
        let called = |list| ["mount.fuse.ariel", "127.0.0.1:1", "/m", "-o", list];
        let list = "rw,user_id=0,group_id=0,default_permissions,trusted,remount,ro,nosuid";
        let words = [
            "ariel",
            "__remount",
            "/m",
            "rw",
            "suid",
            "dev",
            "ro",
            "nosuid",
        ];
        assert_eq!(expanded(&called(list)), words);
        let wrong = called("remount,cache-mib=8");
        let failure = words_of(&wrong).unwrap_err().to_string();
        assert!(failure.contains("cache-mib=8"), "{failure}");
    }

    #[test]
    fn what_is_not_known_is_told_with_the_cure() {
        for (list, told) in [
            ("uid=5", "uid=5"),
            ("remount,ro", "make install"),
            ("sync", "synced"),
            ("cache-mib", "cache-mib"),
            ("trusted=1", "trusted=1"),
            ("detached", "detached"),
        ] {
            let called = ["ariel", "mount", "127.0.0.1:1", "/m", "-o", list];
            let failure = words(called.iter().map(OsString::from).collect()).unwrap_err();
            let line = failure.to_string();
            assert!(line.contains(told), "{line}");
            let mut called = called.map(OsString::from).to_vec();
            called.splice(..2, ["mount.ariel".into()]);
            called.push("-s".into());
            assert!(words(called).is_ok(), "{list}");
        }
    }
}
