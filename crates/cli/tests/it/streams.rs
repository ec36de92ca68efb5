//! Volumes that are sent and received by real commands, between two cells, through pipes and files:
//! everything comes as it was, also the second time; what is interrupted goes on; what does not fit
//! is refused with what helps.

use crate::acl::{Person, acl, group};
use crate::harness::{
    Cell, ariel, cell::CellOptions, long, process::shell_ok, real_system, run, say, text,
};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn line(cell: &Cell, command: &str, words: &[&str]) -> Command {
    let mut line = vec!["volume", command, cell.addr()];
    line.extend(words);
    let trust = cell.trust();
    line.extend(trust.iter().map(String::as_str));
    ariel(&line)
}

#[track_caller]
fn done(mut command: Command) -> Vec<u8> {
    let output = run(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    output.stdout
}

fn snapshot(cell: &Cell, name: &str) {
    done(line(cell, "snapshot", &["root", name]));
}

/// Runs a command between these ends. The test's own limit counts.
fn joined(command: &mut Command, input: impl Into<Stdio>, out: impl Into<Stdio>) -> Output {
    command.stdin(input).stdout(out).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

/// A stream in a file.
#[track_caller]
fn sent(cell: &Cell, words: &[&str], file: &Path) -> u64 {
    let mut command = line(cell, "send", words);
    let output = joined(&mut command, Stdio::null(), File::create(file).unwrap());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    fs::metadata(file).unwrap().len()
}

fn received(cell: &Cell, words: &[&str], file: &Path) -> Output {
    let mut command = line(cell, "receive", words);
    joined(&mut command, File::open(file).unwrap(), Stdio::piped())
}

#[track_caller]
fn receive(cell: &Cell, words: &[&str], file: &Path) {
    let output = received(cell, words, file);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[track_caller]
fn refused(output: &Output, why: &str) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{}", text(output));
    assert!(said.contains(why), "{said}");
    said
}

/// Through a pipe, as over ssh.
#[track_caller]
pub fn piped(from: &Cell, words: &[&str], to: &Cell, name: &str) {
    let mut send = line(from, "send", words)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut command = line(to, "receive", &[name]);
    let output = joined(&mut command, send.stdout.take().unwrap(), Stdio::piped());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(send.wait().unwrap().success());
}

/// Everything of a tree that a program can see: kind, mode, owner, links, size, room, times of all
/// kinds, targets, device numbers, which names are of one object, bytes, holes, lists, attributes.
pub fn manifest(dir: &Path) -> String {
    let list = "find . -print0 | LC_ALL=C sort -z | \
                xargs -0 stat -c '%N %F %f %u:%g %h %s %t:%T %.9X %.9Y %.9Z %.9W'; \
                find . -type f -links +1 -printf '%i %P\\n' | LC_ALL=C sort -k2 | \
                awk '{ if (!($1 in first)) first[$1] = $2; print $2, first[$1] }'; \
                find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum; \
                getfattr -R -h -d -m - . 2>/dev/null; getfacl -R -n . 2>/dev/null";
    shell_ok(dir, list) + &holes(dir)
}

/// Where files have data.
fn holes(dir: &Path) -> String {
    let script = "import os, sys\n\
for top, dirs, files in os.walk(b'.'):\n \
 dirs.sort()\n \
 for name in sorted(files):\n  \
  path = os.path.join(top, name)\n  \
  if os.path.islink(path) or not os.path.isfile(path): continue\n  \
  fd, at, spans = os.open(path, os.O_RDONLY), 0, []\n  \
  try:\n   \
   while True:\n    \
    at = os.lseek(fd, at, os.SEEK_DATA)\n    \
    end = os.lseek(fd, at, os.SEEK_HOLE)\n    \
    spans.append((at, end))\n    \
    at = end\n  \
  except OSError: pass\n  \
  os.close(fd)\n  \
  print(path, spans)\n";
    let python = crate::harness::process::system_python();
    let output = Command::new(python)
        .args(["-c", script])
        .current_dir(dir)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// One of everything.
pub fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("d/deep")).unwrap();
    fs::write(dir.join("d/one"), "one").unwrap();
    fs::hard_link(dir.join("d/one"), dir.join("d/deep/two")).unwrap();
    symlink("d/one", dir.join("link")).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.write_all_at(&[7; 100_000], 3 << 20).unwrap();
    sparse.write_all_at(&[8; 5], 9_000_001).unwrap();
    fs::write(dir.join("large"), vec![5; 3 << 20]).unwrap();
    shell_ok(
        dir,
        "mkfifo pipe && mknod device c 10 200 && chown 12:34 d/one && chmod 4751 d/one && \
         touch -d '1961-02-03 04:05:06.789' d/deep && touch \"$(printf 'no utf \\377\\001')\" && \
         setfattr -n user.note -v hello d && setfattr -n trusted.t -v x sparse && \
         setfacl -m u:77:rwx,g:88:r d && setfacl -d -m u:99:r d && mkdir many && \
         for n in $(seq 300); do echo $n > many/f$n; done",
    );
}

pub fn change(dir: &Path) {
    let large = File::options().write(true).open(dir.join("large")).unwrap();
    large.write_all_at(&[6; 4096], 1 << 20).unwrap();
    shell_ok(
        dir,
        "mv d/one many/moved && ln many/f1 d/f1 && rm many/f2 many/f3 && mv many/f4 many/f5 && \
         rm pipe && mkdir pipe && rm -r d/deep && setfattr -x user.note d && setfacl -b d && \
         truncate -s 4000000 sparse && fallocate -p -o 0 -l 8192 large && ln -sf nowhere link && \
         mv many several && chmod 700 several && touch new",
    );
}

struct Two {
    from: Cell,
    to: Cell,
}

fn two(name: &str) -> Option<Two> {
    if !real_system(name) {
        return None;
    }
    Some(Two {
        from: Cell::start(name)?,
        to: Cell::start_with(
            &format!("{name}-to"),
            CellOptions {
                second: true,
                ..CellOptions::default()
            },
        )?,
    })
}

#[test]
fn a_volume_goes_to_another_cell_and_stays_the_same_there() {
    let Some(Two { from, to }) = two("streams") else {
        return;
    };
    let source = from.mount();
    fill(source.path());
    let expected = manifest(source.path());
    snapshot(&from, "a");
    piped(&from, &["root@a"], &to, "copy");
    let copy = to.mount_with(&["--volume", "copy"]);
    assert_eq!(manifest(copy.path()), expected);
    let kept = to.mount_with(&["--volume", "copy@a"]);
    assert_eq!(manifest(kept.path()), expected);

    // Changes come to a mount that has the old ones cached.
    change(source.path());
    let changed = manifest(source.path());
    assert_ne!(changed, expected);
    snapshot(&from, "b");
    let file = from.scratch().join("b.ariel");
    let bytes = sent(&from, &["root@b", "--since", "a"], &file);
    assert!(bytes < 60_000, "{bytes} bytes for a few changes");
    receive(&to, &["copy"], &file);
    assert_eq!(manifest(copy.path()), changed);
    assert_eq!(manifest(kept.path()), expected);

    // Nothing changed: nothing is sent.
    snapshot(&from, "c");
    let none = sent(&from, &["root@c", "--since", "root@b"], &file);
    assert!(none < 1000, "{none} bytes for no change");

    // Changes made in the copy are in the way; --rollback undoes them.
    shell_ok(
        copy.path(),
        "echo mine > mine && rm -r several && echo x >> large",
    );
    let said = refused(&received(&to, &["copy"], &file), "it was changed since");
    assert!(
        said.contains("--rollback") && said.contains("volume clone"),
        "{said}"
    );
    receive(&to, &["copy", "--rollback"], &file);
    assert_eq!(manifest(copy.path()), changed);
    let dry = done(line(
        &from,
        "send",
        &["root@b", "--since", "a", "--dry-run"],
    ));
    let dry = String::from_utf8(dry).unwrap();
    assert!(
        dry.contains("objects:") && dry.contains("removed:"),
        "{dry}"
    );
    drop((source, copy, kept));
}

fn shown(dir: &Path) -> String {
    acl(&["get", dir.to_str().unwrap()])
}

/// Groups with other numbers than in the other cell, and a directory whose list names them.
fn with_groups(source: &Path, target: &Path) -> PathBuf {
    for name in ["other", "staff"] {
        group(&["create", name], source);
    }
    group(&["create", "staff"], target);
    group(&["add", "staff", "20001"], target);
    let dir = source.join("d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("f"), "bytes\n").unwrap();
    let entries = ["staff", "read", "other", "write", "20002", "read"];
    acl(&[&["set", dir.to_str().unwrap()][..], &entries].concat());
    dir
}

#[test]
fn groups_of_a_cell_go_by_their_names_in_access_lists() {
    let Some(Two { from, to }) = two("streams-groups") else {
        return;
    };
    if from.is_insecure() || !crate::harness::has_program("streams-groups", "setpriv") {
        return;
    }
    let (source, target) = (from.mount(), to.mount());
    let dir = with_groups(source.path(), target.path());
    snapshot(&from, "a");
    let file = from.scratch().join("a.ariel");
    sent(&from, &["root@a"], &file);
    let output = received(&to, &["copy"], &file);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("no group other"), "{told}");
    assert!(!told.contains("no group staff"), "{told}");
    let copy = to.mount_with(&["--volume", "copy"]);
    let there = copy.join("d");
    let expected = format!("{}:\n  20002 rl\n  staff rl\n", there.display());
    assert_eq!(shown(&there), expected);
    crate::harness::scratch::set_mode(copy.path(), 0o755);
    let mut member = Person::at(copy.path(), 20_001);
    let mut stranger = Person::at(copy.path(), 20_003);
    assert!(member.can("read x < d/f") && !stranger.can("read x < d/f"));
    drop((member, stranger));

    // Rights are not given because those from whom they are taken are not known.
    acl(&["set", dir.to_str().unwrap(), "other", "w", "--negative"]);
    snapshot(&from, "b");
    sent(&from, &["root@b", "--since", "a"], &file);
    let again = received(&to, &["copy", "--rollback"], &file);
    let said = refused(&again, "takes rights from");
    assert!(said.contains("ariel group create other"), "{said}");
    assert_eq!(shown(&there), expected);
    group(&["create", "other"], target.path());
    receive(&to, &["copy", "--rollback"], &file);
    let now = shown(&there);
    assert!(now.contains("not other w"), "{now}");
    assert!(now.contains("other rlidwk"), "{now}");
    drop((source, target, copy));
}

/// Takes so many bytes of what is sent, and then no more.
fn first_bytes(cell: &Cell, words: &[&str], bytes: u64) -> Vec<u8> {
    let mut send = line(cell, "send", words)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut taken = Vec::new();
    let out = send.stdout.take().unwrap();
    out.take(bytes).read_to_end(&mut taken).unwrap();
    // The pipe that was read from is closed: the sender ends by that.
    assert!(!send.wait().unwrap().success());
    taken
}

#[test]
fn what_was_interrupted_goes_on_and_nobody_sees_the_half() {
    let Some(Two { from, mut to }) = two("streams-resumed") else {
        return;
    };
    let source = from.mount();
    fill(source.path());
    let bytes: Vec<u8> = (0..9u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(source.path().join("counted"), bytes).unwrap();
    snapshot(&from, "a");
    let expected = manifest(source.path());
    let whole = ["root@a", "--compress", "none"];
    let half = first_bytes(&from, &whole, 6 << 20);
    let file = from.scratch().join("half");
    fs::write(&file, half).unwrap();
    let said = refused(&received(&to, &["copy"], &file), "--resume");
    assert!(said.contains("ends in the middle"), "{said}");
    let listed = String::from_utf8(done(line(&to, "list", &[]))).unwrap();
    assert!(listed.contains("being received"), "{listed}");
    to.kill9();
    to.start_server();

    // The word by which to go on is in the message, and can be asked for.
    let shown = String::from_utf8(done(line(&to, "show", &["copy"]))).unwrap();
    let token = shown.lines().find_map(|line| line.strip_prefix("resume:"));
    let token = token.unwrap().trim().to_owned();
    assert!(said.contains(&token), "{said}\n{shown}");
    let rest = from.scratch().join("rest");
    let bytes = sent(
        &from,
        &["root@a", "--compress", "none", "--resume", &token],
        &rest,
    );
    assert!(bytes < 7 << 20, "{bytes}");
    receive(&to, &["copy"], &rest);
    let copy = to.mount_with(&["--volume", "copy"]);
    assert_eq!(manifest(copy.path()), expected);
    drop((source, copy));

    // A second one is given up, and nothing of it is left.
    receive_half(&to, &file);
    done(line(&to, "receive", &["second", "--discard"]));
    let listed = String::from_utf8(done(line(&to, "list", &[]))).unwrap();
    assert!(!listed.contains("second"), "{listed}");
}

fn receive_half(to: &Cell, file: &Path) {
    refused(&received(to, &["second"], file), "--discard");
}

#[test]
fn streams_that_do_not_fit_are_refused_with_what_helps() {
    let Some(Two { from, to }) = two("streams-refused") else {
        return;
    };
    let source = from.mount();
    fs::write(source.path().join("one"), "one").unwrap();
    snapshot(&from, "a");
    snapshot(&from, "b");
    let file = from.scratch().join("stream");
    sent(&from, &["root@b", "--since", "a"], &file);
    refused(&received(&to, &["copy"], &file), "without --since");
    sent(&from, &["root@a"], &file);
    let good = fs::read(&file).unwrap();
    let wrong = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        fs::write(&file, bytes).unwrap();
        received(&to, &["copy"], &file)
    };
    refused(&wrong(0, b'x'), "not a stream of a volume");
    refused(&wrong(8, 99), "newer ariel");
    let last = good.len() - 40;
    refused(&wrong(last, good[last] ^ 1), "damaged");
    done(line(&to, "receive", &["copy", "--discard"]));
    fs::write(&file, &good).unwrap();
    receive(&to, &["copy"], &file);
    refused(&received(&to, &["copy"], &file), "the name is taken");
    let output = run(&mut line(&from, "send", &["root@none"]));
    refused(&output, "no such snapshot");
    let output = run(&mut line(&from, "send", &["root@a", "--since", "none"]));
    refused(&output, "since a snapshot that is");
    let output = run(&mut line(&from, "send", &["root"]));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    drop(source);
}

/// How long changes of a large tree take to be sent: by what changed, not by the tree. Long: with
/// ten times as many files, and figures.
#[test]
fn changes_are_sent_by_what_changed() {
    if !real_system("streams-large") {
        return;
    }
    let options = CellOptions {
        limit: Duration::from_secs(1200),
        ..CellOptions::default()
    };
    let Some(from) = Cell::start_with("streams-large", options) else {
        return;
    };
    let source = from.mount();
    let (dirs, files) = (if long() { 1000 } else { 100 }, 100);
    for n in 0..dirs {
        let dir = source.path().join(format!("d{n}"));
        fs::create_dir(&dir).unwrap();
        for file in 0..files {
            fs::write(dir.join(format!("f{file}")), format!("{file}")).unwrap();
        }
        // A snapshot does not wait for all of it at once then.
        if n % 50 == 49 {
            rustix::fs::syncfs(File::open(&dir).unwrap()).unwrap();
        }
    }
    let file = from.scratch().join("stream");
    let timed = |words: &[&str]| {
        let begin = Instant::now();
        let bytes = sent(&from, words, &file);
        (begin.elapsed(), bytes)
    };
    snapshot(&from, "a");
    let whole = timed(&["root@a"]);
    snapshot(&from, "b");
    let none = timed(&["root@b", "--since", "a"]);
    let changed = 1000;
    for n in 0..changed {
        let path = source.path().join(format!("d{}/f{}", n % dirs, n / dirs));
        fs::write(path, [n as u8; 4096]).unwrap();
    }
    snapshot(&from, "c");
    let some = timed(&["root@c", "--since", "b", "--compress", "none"]);
    let bytes = changed * 4096;
    say(&format!(
        "{} files: all {whole:?}, none {none:?}, {changed} changes of {bytes} bytes {some:?}",
        dirs * files
    ));
    assert!(
        none.1 < 1000 && (some.1 as usize) < bytes * 6 / 5,
        "{none:?} {some:?}"
    );
    drop(source);
}

#[test]
fn a_stream_is_not_for_a_terminal() {
    // Without a terminal only that part can be tried which needs none.
    let output = ariel(&["volume", "send", "127.0.0.1:1", "root@a", "--resume", "zz"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("not a word to resume by"), "{said}");
    let _ = io::stdout().flush();
}
