//! The library and the commands that need no mount: exact against mounts, in both directions.

use crate::exact::{content, same_bytes};
use crate::harness::process::run_within;
use crate::harness::{
    Pair, Random, Scratch, ariel, has_program, process::shell_ok, real_system, text,
};
use files::{OpenOptions, Options, RenameMode, SetAttributes, Tree};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

const ROUNDS: usize = 300;
/// The longest that one command may take.
const LIMIT: Duration = Duration::from_secs(60);

/// One of four machines: two mounts, two programs with the library.
enum Side {
    Mount(PathBuf),
    Library(Tree),
}

/// A record of how an object looks from one side.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    size: u64,
    mode: u32,
    nlink: u32,
    ino: u64,
    mtime: (i64, i64),
}

impl Side {
    fn all(pair: &Pair) -> Vec<Self> {
        let tree =
            || Self::Library(Tree::connect(pair.cell.server(), &Options::default()).unwrap());
        let mount = |path: &Path| Self::Mount(path.to_owned());
        vec![mount(pair.a.path()), tree(), mount(pair.b.path()), tree()]
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        match self {
            Self::Mount(dir) => fs::write(dir.join(name), bytes).unwrap(),
            Self::Library(tree) => tree.write(name, bytes).unwrap(),
        }
    }

    fn append(&self, name: &str, bytes: &[u8]) {
        match self {
            Self::Mount(dir) => {
                let file = fs::File::options().append(true).open(dir.join(name));
                assert_eq!(file.unwrap().write(bytes).unwrap(), bytes.len());
            }
            Self::Library(tree) => {
                let options = OpenOptions::new().append(true);
                let file = tree.open_with(name, options).unwrap();
                assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len());
            }
        }
    }

    fn read(&self, name: &str) -> Vec<u8> {
        match self {
            Self::Mount(dir) => fs::read(dir.join(name)).unwrap(),
            Self::Library(tree) => tree.read(name).unwrap(),
        }
    }

    /// Makes an empty file; false when the name exists.
    fn make(&self, name: &str) -> bool {
        let made = match self {
            Self::Mount(dir) => fs::File::create_new(dir.join(name)).map(drop),
            Self::Library(tree) => {
                let options = OpenOptions::new().write(true).create_new(true);
                let made = tree.open_with(name, options).map(drop);
                made.map_err(std::io::Error::from)
            }
        };
        match made {
            Ok(()) => true,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(error) => panic!("{name}: {error}"),
        }
    }

    fn make_dir(&self, name: &str) {
        match self {
            Self::Mount(dir) => fs::create_dir(dir.join(name)).unwrap(),
            Self::Library(tree) => tree.create_dir(name, 0o777).map(drop).unwrap(),
        }
    }

    fn rename(&self, from: &str, to: &str) {
        match self {
            Self::Mount(dir) => fs::rename(dir.join(from), dir.join(to)).unwrap(),
            Self::Library(tree) => tree.rename(from, to, RenameMode::Replace).unwrap(),
        }
    }

    fn link(&self, from: &str, to: &str) {
        match self {
            Self::Mount(dir) => fs::hard_link(dir.join(from), dir.join(to)).unwrap(),
            Self::Library(tree) => tree.hard_link(from, to).unwrap(),
        }
    }

    fn remove(&self, name: &str) {
        match self {
            Self::Mount(dir) => fs::remove_file(dir.join(name)).unwrap(),
            Self::Library(tree) => tree.remove_file(name).unwrap(),
        }
    }

    fn chmod(&self, name: &str, mode: u32) {
        match self {
            Self::Mount(dir) => {
                fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
            }
            Self::Library(tree) => {
                let set = SetAttributes {
                    mode: Some(mode),
                    ..SetAttributes::default()
                };
                tree.set_attributes(name, &set).unwrap();
            }
        }
    }

    fn look(&self, name: &str) -> Look {
        match self {
            Self::Mount(dir) => {
                let seen = fs::symlink_metadata(dir.join(name)).unwrap();
                Look {
                    size: seen.len(),
                    mode: seen.mode() & 0o7777,
                    nlink: seen.nlink() as u32,
                    ino: seen.ino(),
                    mtime: (seen.mtime(), seen.mtime_nsec()),
                }
            }
            Self::Library(tree) => {
                let seen = tree.symlink_metadata(name).unwrap();
                Look {
                    size: seen.len(),
                    mode: seen.mode(),
                    nlink: seen.nlink(),
                    ino: seen.ino(),
                    mtime: (seen.mtime().0, i64::from(seen.mtime().1)),
                }
            }
        }
    }

    fn list(&self, name: &str) -> BTreeSet<String> {
        let text = |name: &std::ffi::OsStr| name.to_str().unwrap().to_owned();
        match self {
            Self::Mount(dir) => {
                let entries = fs::read_dir(dir.join(name)).unwrap();
                entries.map(|e| text(&e.unwrap().file_name())).collect()
            }
            Self::Library(tree) => {
                let entries = tree.read_dir(name).unwrap();
                entries.map(|e| text(e.unwrap().file_name())).collect()
            }
        }
    }
}

/// Gives back what the library has; the server must have all then.
fn close(sides: Vec<Side>) {
    for side in sides {
        if let Side::Library(tree) = side {
            tree.close().unwrap();
        }
    }
}

/// One change of names in directory `d` by one side, at random; `names`: what is there.
fn change_a_name(side: &Side, names: &mut BTreeSet<String>, fresh: &str, random: &mut Random) {
    let place = |name: &str| format!("d/{name}");
    let choice = random.below(4);
    let at = random.below(names.len().max(1) as u64) as usize;
    let Some(old) = names.iter().nth(at).cloned().filter(|_| choice > 0) else {
        assert!(side.make(&place(fresh)));
        names.insert(fresh.to_owned());
        return;
    };
    match choice {
        1 => side.rename(&place(&old), &place(fresh)),
        2 => side.link(&place(&old), &place(fresh)),
        _ => side.remove(&place(&old)),
    }
    if choice != 2 {
        names.remove(&old);
    }
    if choice != 3 {
        names.insert(fresh.to_owned());
    }
}

#[test]
fn two_mounts_and_two_programs_with_the_library_see_the_same() {
    let test = "library-exact";
    if !real_system(test) {
        return;
    }
    let Some(pair) = Pair::start(test) else {
        return;
    };
    let sides = Side::all(&pair);
    for round in 0..ROUNDS {
        let writer = &sides[round % 4];
        let bytes = content(round);
        writer.write("file", &bytes);
        writer.chmod("file", 0o600 | (round as u32 % 64));
        let expected = writer.look("file");
        for side in &sides {
            assert_eq!(side.look("file"), expected, "round {round}");
            same_bytes(&side.read("file"), &bytes, round);
        }
        let appender = &sides[(round + 1) % 4];
        appender.append("file", b"more");
        for side in &sides {
            assert_eq!(side.look("file").size, bytes.len() as u64 + 4);
            assert!(side.read("file").ends_with(b"more"), "round {round}");
        }
    }
    close(sides);
}

#[test]
fn names_that_any_of_them_changes_are_seen_by_all() {
    let test = "library-names";
    if !real_system(test) {
        return;
    }
    let Some(pair) = Pair::start(test) else {
        return;
    };
    let sides = Side::all(&pair);
    sides[1].make_dir("d");
    let (mut names, mut random) = (BTreeSet::new(), Random(24));
    for round in 0..ROUNDS {
        let fresh = format!("n{round}");
        change_a_name(&sides[round % 4], &mut names, &fresh, &mut random);
        for side in &sides {
            assert_eq!(side.list("d"), names, "round {round}");
        }
        if let Some(name) = names.iter().next_back() {
            let looks = sides.iter().map(|side| side.look(&format!("d/{name}")));
            let looks: Vec<Look> = looks.collect();
            assert!(looks.iter().all(|look| *look == looks[0]), "{looks:?}");
        }
    }
    close(sides);
}

#[test]
fn of_all_that_make_one_name_one_succeeds_and_no_appended_record_is_lost() {
    let test = "library-races";
    if !real_system(test) {
        return;
    }
    let Some(pair) = Pair::start(test) else {
        return;
    };
    let sides = Side::all(&pair);
    sides[0].write("log", b"");
    let (rounds, start) = (100, Barrier::new(sides.len()));
    let made: usize = thread::scope(|scope| {
        let work = |(number, side): (usize, &Side)| {
            let mut made = 0;
            for round in 0..rounds {
                start.wait();
                made += usize::from(side.make(&format!("one-{round}")));
                side.append("log", format!("{number}:{round:03}\n").as_bytes());
            }
            made
        };
        let threads: Vec<_> = (sides.iter().enumerate())
            .map(|one| scope.spawn(move || work(one)))
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(made, rounds);
    let record = |number: usize, round: usize| format!("{number}:{round:03}");
    let all = (0..sides.len()).flat_map(|n| (0..rounds).map(move |r| record(n, r)));
    let all: BTreeSet<String> = all.collect();
    for side in &sides {
        let log = String::from_utf8(side.read("log")).unwrap();
        assert_eq!(log.lines().count(), all.len());
        let seen: BTreeSet<String> = log.lines().map(str::to_owned).collect();
        assert_eq!(seen, all);
    }
    close(sides);
}

/// Runs `ariel` with a place in the tree as its last word.
fn command(pair: &Pair, words: &[&str], place: &str) -> Output {
    let place = format!("{}:{place}", pair.cell.addr());
    let words: Vec<&str> = words.iter().copied().chain([place.as_str()]).collect();
    run_within(&mut ariel(&words), LIMIT)
}

#[track_caller]
fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The objects below a directory: kind and mode, size, times, target and content of everything.
fn manifest(dir: &Path) -> String {
    let list = "find . -mindepth 1 -printf '%P %y %m %s %T@ %l\n' | sort; \
                find . -type f -print0 | sort -z | xargs -0 sha256sum";
    // The size of a directory is its file system's own matter.
    let of_dir = |line: &str| line.split(' ').nth(1) == Some("d");
    let lines = shell_ok(dir, list);
    let lines = lines.lines().map(|line| match of_dir(line) {
        true => {
            let words: Vec<&str> = line.split(' ').collect();
            [words[0], words[1], words[2], words[4]].join(" ")
        }
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_source_tree_is_put_built_on_a_mount_and_fetched_byte_by_byte() {
    let test = "put-build-get";
    if !real_system(test) || !has_program(test, "gcc") || !has_program(test, "make") {
        return;
    }
    let Some(pair) = Pair::start(test) else {
        return;
    };
    let scratch = Scratch::new("put-build-get-local");
    let source = scratch.dir("source");
    crate::real::write_sources(&source.join("program"));
    std::os::unix::fs::symlink("../program/main.c", source.join("link")).unwrap();
    // A large file with a hole, and a project of many short files.
    let large = fs::File::create(source.join("large")).unwrap();
    large.set_len(40 << 20).unwrap();
    (&large).write_all(&Random(7).bytes(3 << 20)).unwrap();
    drop(large);
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    shell_ok(
        &source,
        &format!(
            "cp -a {}/logic {}/files .",
            crates.display(),
            crates.display()
        ),
    );
    done(&command(
        &pair,
        &["put", "-rp", source.to_str().unwrap()],
        "/src",
    ));
    let put = pair.a.join("src");
    assert_eq!(manifest(&put), manifest(&source));
    assert!(fs::metadata(put.join("large")).unwrap().blocks() * 512 < 8 << 20);

    shell_ok(&put, "cd program && make -s -j2 prog");
    let built = scratch.path().join("built");
    let place = format!("{}:/src", pair.cell.addr());
    let words = ["get", "-rp", &place, built.to_str().unwrap()];
    done(&run_within(&mut ariel(&words), LIMIT));
    assert_eq!(manifest(&built), manifest(&put));
    let (local, mounted) = ("program/prog", put.join("program/prog"));
    assert_eq!(
        shell_ok(&built, local),
        shell_ok(&put, mounted.to_str().unwrap())
    );
}

#[test]
fn the_commands_do_what_their_namesakes_do() {
    let test = "tree-commands";
    if !real_system(test) {
        return;
    }
    let Some(pair) = Pair::start(test) else {
        return;
    };
    let a = pair.a.path();
    done(&command(&pair, &["mkdir", "-p"], "/x/y/z"));
    done(&command(&pair, &["mkdir", "-p"], "/x/y"));
    fs::write(a.join("x/f"), "hello\n").unwrap();
    fs::set_permissions(a.join("x/f"), PermissionsExt::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("f", a.join("x/l")).unwrap();
    assert_eq!(done(&command(&pair, &["ls"], "/x")), "f\nl\ny\n");
    let long = done(&command(&pair, &["ls", "-l"], "/x"));
    assert!(long.contains("-rw-r----- 1 root root"), "{long}");
    assert!(long.contains("l -> f"), "{long}");
    assert_eq!(done(&command(&pair, &["cat"], "/x/l")), "hello\n");
    let stat = done(&command(&pair, &["stat"], "/x/f"));
    assert!(stat.contains("0640/-rw-r-----"), "{stat}");

    let to = format!("{}:/x/g", pair.cell.addr());
    done(&run_within(
        &mut ariel(&["mv", &format!("{}:/x/f", pair.cell.addr()), &to]),
        LIMIT,
    ));
    assert_eq!(fs::read(a.join("x/g")).unwrap(), b"hello\n");
    assert!(!a.join("x/f").exists());
    let refused = command(&pair, &["rm"], "/x");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("/x: Is a directory"), "{said}");
    let missing = command(&pair, &["cat"], "/x/none");
    assert_eq!(missing.status.code(), Some(1));
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        said.contains("/x/none: No such file or directory"),
        "{said}"
    );
    done(&command(&pair, &["rm", "-r"], "/x"));
    assert!(!a.join("x").exists());
    assert_eq!(command(&pair, &["rm", "-f"], "/x").status.code(), Some(0));
}

#[test]
fn a_stream_is_put_and_a_user_is_only_who_he_is() {
    let test = "put-stream";
    if !real_system(test) {
        return;
    }
    let Some(pair) = Pair::start(test) else {
        return;
    };
    let place = format!("{}:/stream", pair.cell.addr());
    let mut child = ariel(&["put", "--sync", "-", &place]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    let bytes = Random(3).bytes(5 << 20);
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fs::read(pair.b.join("stream")).unwrap(), bytes);

    fs::create_dir(pair.a.join("private")).unwrap();
    fs::set_permissions(pair.a.join("private"), PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(pair.a.join("private/secret"), "secret").unwrap();
    let place = format!("{}:/private/secret", pair.cell.addr());
    let program = env!("CARGO_BIN_EXE_ariel");
    // The build's directory may be closed to other users, so they get a copy.
    let scratch = Scratch::new("put-stream-program");
    fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let copy = scratch.path().join("ariel");
    fs::copy(program, &copy).unwrap();
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let output = run_within(other.arg(&copy).args(["cat", &place]), LIMIT);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Permission denied"), "{said}");
}
