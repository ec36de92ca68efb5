//! Access lists of directories as in Andrew, on real mounts: what each right allows, and that it is
//! in force, or in force no more, on every mount when the command that changes it has returned.

use crate::harness::process::{run, text};
use crate::harness::{Pair, ariel, eventually, has_program, real_system};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

pub const ANN: u32 = 20_001;
pub const BOB: u32 = 20_002;
const GROUP: u32 = 20_100;

/// A shell of an ordinary user that works in a directory.
pub struct Person {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Person {
    pub fn at(dir: &Path, uid: u32) -> Self {
        Self::by(dir, uid, &[])
    }

    /// The same, of a shell that this command line runs.
    pub fn by(dir: &Path, uid: u32, words: &[&str]) -> Self {
        let (uid, group) = (uid.to_string(), GROUP.to_string());
        let mut shell = Command::new("setpriv");
        shell.args(["--reuid", &uid, "--regid", &uid, "--groups", &group]);
        shell.args(words).arg("sh");
        shell.current_dir(dir).stdin(Stdio::piped());
        shell.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = shell.spawn().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self {
            to: child.stdin.take(),
            child,
            from,
        }
    }

    /// Does this succeed?
    pub fn can(&mut self, line: &str) -> bool {
        let to = self.to.as_mut().unwrap();
        // A redirection that fails ends a shell, but not a shell below it.
        writeln!(
            to,
            "if ({line}) >/dev/null 2>&1; then echo yes; else echo no; fi"
        )
        .unwrap();
        let mut answer = String::new();
        self.from.read_line(&mut answer).unwrap();
        match answer.trim() {
            "yes" => true,
            "no" => false,
            other => panic!("{line}: {other:?}"),
        }
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        drop(self.to.take());
        // It ends at the end of its input.
        let _ = self.child.wait();
    }
}

/// `ariel acl`, which must succeed; what it prints.
pub fn acl(words: &[&str]) -> String {
    let done = run(ariel(&["acl"]).args(words));
    assert!(done.status.success(), "{words:?}: {}", text(&done));
    String::from_utf8(done.stdout).unwrap()
}

/// The same, which must be refused; why.
fn refused(words: &[&str]) -> String {
    let done = run(ariel(&["acl"]).args(words));
    assert!(!done.status.success(), "{words:?}: {}", text(&done));
    String::from_utf8(done.stderr).unwrap()
}

pub fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn start(name: &str) -> Option<Pair> {
    let programs = ["setpriv", "flock", "setfattr", "setfacl"];
    if !real_system(name) || !programs.iter().all(|program| has_program(name, program)) {
        return None;
    }
    let pair = Pair::start(name)?;
    set_mode(pair.a.path(), 0o755);
    Some(pair)
}

/// A directory of root that is closed to others, with a file.
pub fn closed(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("f"), "bytes\n").unwrap();
    set_mode(dir, 0o700);
}

#[test]
fn withdrawn_rights_are_in_force_on_all_mounts_when_the_command_returns() {
    let Some(pair) = start("acl-withdrawn") else {
        return;
    };
    closed(&pair.a.path().join("d"));
    let mut people = [
        Person::at(pair.a.path(), ANN),
        Person::at(pair.b.path(), ANN),
    ];
    let (ann, group) = (ANN.to_string(), format!("group:{GROUP}"));
    let mut wrong = Vec::new();
    for round in 0..500 {
        let (one, other) = pair.sides(round / 2);
        let (given, taken) = (word(one), word(other));
        let (given, taken) = (format!("{given}/d"), format!("{taken}/d"));
        // Each way to give and to take a right in turn.
        let who = if round % 3 == 2 { &group } else { &ann };
        acl(&["set", &given, who, "read"]);
        for (at, person) in people.iter_mut().enumerate() {
            // The second time kernels answer from what they have.
            for look in 0..2 {
                if !person.can("read x < d/f && test \"$x\" = bytes") {
                    wrong.push(format!("round {round}: mount {at} refuses look {look}"));
                }
            }
        }
        match round % 4 {
            0 | 1 => acl(&["set", &taken, who, "none"]),
            2 => acl(&["set", &taken, "anyone", "rl", "--negative"]),
            _ => acl(&["clear", &taken]),
        };
        for (at, person) in people.iter_mut().enumerate() {
            for line in ["read x < d/f", "ls d", "test -e d/f"] {
                if person.can(line) {
                    wrong.push(format!("round {round}: mount {at} still allows {line}"));
                }
            }
        }
        if round % 4 == 2 {
            acl(&["set", &given, "anyone", "none", "--negative"]);
            acl(&["set", &given, who, "none"]);
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

/// A deed, what takes it back, and the rights that it asks for.
const DEEDS: [(&str, &str); 7] = [
    ("test -e d/f", "l"),
    ("ls d", "l"),
    ("read x < d/f", "rl"),
    ("echo more >> d/w", "lw"),
    ("mkdir d/made", "il"),
    ("rmdir d/old", "dl"),
    ("flock -n d/f true", "rlk"),
];

#[test]
fn each_right_allows_what_it_says_and_no_set_of_rights_more() {
    let Some(pair) = start("acl-rights") else {
        return;
    };
    let dir = pair.a.path().join("d");
    closed(&dir);
    fs::write(dir.join("w"), "").unwrap();
    set_mode(&dir.join("w"), 0o644);
    let mut people = [
        Person::at(pair.a.path(), ANN),
        Person::at(pair.b.path(), ANN),
    ];
    let ann = ANN.to_string();
    let letters = ['r', 'l', 'i', 'd', 'w', 'k', 'a'];
    for set in 0..128usize {
        let has = |at: &usize| set & (1 << at) != 0;
        let rights: String = (0..7).filter(has).map(|at| letters[at]).collect();
        let rights = if rights.is_empty() { "none" } else { &rights };
        let (one, _) = pair.sides(set);
        acl(&["set", "--only", word(&one.join("d")), &ann, rights]);
        if !dir.join("old").exists() {
            fs::create_dir(dir.join("old")).unwrap();
        }
        let person = &mut people[set / 2 % 2];
        let all = |asked: &str| asked.chars().all(|right| rights.contains(right));
        for (deed, asked) in DEEDS {
            let expected = rights != "none" && all(asked);
            assert_eq!(person.can(deed), expected, "{deed} with {rights}");
        }
        let _ = fs::remove_dir(dir.join("made"));
        let changes = "setfattr -n system.ariel_acl -v 0x01 d";
        assert_eq!(person.can(changes), rights.contains('a'), "{rights}");
    }
}

#[test]
fn what_is_made_there_has_the_list_and_the_owners_bits_count_for_all() {
    let Some(pair) = start("acl-made") else {
        return;
    };
    let (a, b) = (pair.a.path(), pair.b.path());
    closed(&a.join("d"));
    let (mut ann, mut bob) = (Person::at(a, ANN), Person::at(b, BOB));
    let (ann_id, bob_id) = (ANN.to_string(), BOB.to_string());
    acl(&["set", word(&a.join("d")), &ann_id, "write", &bob_id, "read"]);
    assert!(ann.can("umask 077; mkdir d/e && echo one > d/e/f && echo two > d/g"));
    // The mode that she made it with keeps nobody out, and her directory has the list.
    assert!(bob.can("read x < d/e/f && test $x = one && ls d/e"));
    assert!(!bob.can("echo x >> d/e/f") && !bob.can("touch d/e/h") && !bob.can("rm -f d/g"));
    assert!(ann.can("chmod 400 d/e/f"));
    assert!(
        !ann.can("echo x >> d/e/f"),
        "nobody writes what its owner may not"
    );
    assert!(bob.can("read x < d/e/f"));
    assert!(ann.can("chmod 000 d/e/f"));
    assert!(!bob.can("read x < d/e/f") && !ann.can("read x < d/e/f"));
    // The list decides for owners, too: her file, but not her right any more.
    acl(&["set", word(&b.join("d")), &ann_id, "rl"]);
    assert!(ann.can("read x < d/g") && !ann.can("echo x >> d/g") && !ann.can("rm -f d/g"));
    assert!(ann.can("chmod u+x d/g"));
    acl(&["set", word(&a.join("d")), &ann_id, "write"]);
    assert!(
        ann.can("echo x >> d/g"),
        "the bit to write was hidden, and stayed"
    );
    // The owner of a directory may change its list, and does not come to it by that alone.
    acl(&["set", word(&b.join("d")), &ann_id, "none"]);
    assert!(!ann.can("ls d/e"));
    acl(&["set", word(&b.join("d")), &ann_id, "l"]);
    acl(&["set", word(&b.join("d/e")), &ann_id, "none"]);
    assert!(!ann.can("read x < d/e/f"));
}

#[test]
fn files_leave_a_list_only_with_those_who_have_all_of_them() {
    let Some(pair) = start("acl-moves") else {
        return;
    };
    let (a, b) = (pair.a.path(), pair.b.path());
    closed(&a.join("d"));
    closed(&a.join("own"));
    chown(a.join("own"), Some(ANN), Some(ANN)).unwrap();
    let mut ann = Person::at(b, ANN);
    let id = ANN.to_string();
    acl(&["set", word(&a.join("d")), &id, "lid"]);
    assert!(
        !ann.can("mv d/f own/stolen"),
        "she may take it away, and not read it"
    );
    assert!(!ann.can("ln d/f own/stolen"));
    assert!(ann.can("mv d/f d/g && mv d/g d/f"));
    acl(&["set", word(&a.join("d")), &id, "rlid"]);
    assert!(!ann.can("mv d/f own/stolen"), "nor may she write it");
    acl(&["set", word(&a.join("d")), &id, "write"]);
    // No file is governed by two lists.
    let linked = fs::hard_link(a.join("d/f"), a.join("own/g")).unwrap_err();
    assert_eq!(linked.kind(), ErrorKind::CrossesDevices);
    assert!(ann.can("mv d/f own/moved"));
    assert_eq!(fs::read_to_string(a.join("own/moved")).unwrap(), "bytes\n");
    // It is judged by its mode from then on, on both mounts.
    let mut bob = Person::at(a, BOB);
    set_mode(&a.join("own"), 0o755);
    set_mode(&a.join("own/moved"), 0o600);
    assert!(!bob.can("read x < own/moved") && !ann.can("read x < own/moved"));
    set_mode(&b.join("own/moved"), 0o644);
    assert!(bob.can("read x < own/moved") && ann.can("read x < own/moved"));
    assert!(!ann.can("echo x >> own/moved"));
}

#[test]
fn the_first_list_is_given_by_whoever_owns_all_of_it() {
    let Some(pair) = start("acl-first") else {
        return;
    };
    let (a, b) = (pair.a.path(), pair.b.path());
    for name in ["own", "mixed"] {
        closed(&a.join(name));
        chown(a.join(name), Some(ANN), Some(ANN)).unwrap();
    }
    chown(a.join("own/f"), Some(ANN), Some(ANN)).unwrap();
    let (mut ann, mut bob) = (Person::at(b, ANN), Person::at(a, BOB));
    let ariel = env!("CARGO_BIN_EXE_ariel");
    let grants = |dir: &str| format!("{ariel} acl set {dir} {BOB} read {ANN} all");
    assert!(!ann.can(&grants("mixed")), "a file of root is in it");
    assert!(ann.can(&grants("own")));
    assert!(bob.can("read x < own/f") && !bob.can("touch own/g"));
    assert!(!bob.can(&format!("{ariel} acl set own {BOB} all")));
    assert!(bob.can(&format!("{ariel} acl get own")));
    assert!(ann.can(&format!("{ariel} acl set own {BOB} none")));
    assert!(!bob.can(&format!("{ariel} acl get own")) && !bob.can("read x < own/f"));
}

#[test]
fn programs_see_a_posix_list_that_says_the_same_and_copies_keep_it() {
    let Some(pair) = start("acl-shown") else {
        return;
    };
    let (a, b) = (pair.a.path(), pair.b.path());
    closed(&a.join("d"));
    set_mode(&a.join("d/f"), 0o640);
    acl(&[
        "set",
        word(&a.join("d")),
        &ANN.to_string(),
        "read",
        &BOB.to_string(),
        "write",
    ]);
    let shown = run(Command::new("getfacl").args(["-nc", word(&b.join("d/f"))]));
    let shown = String::from_utf8(shown.stdout).unwrap();
    for line in [
        "user::rw-",
        "user:20001:r--",
        "user:20002:rw-",
        "other::---",
    ] {
        assert!(shown.lines().any(|of| of == line), "{line}: {shown}");
    }
    // A copy elsewhere is open to the same people.
    let copied = run(Command::new("cp")
        .arg("-p")
        .arg(a.join("d/f"))
        .arg(a.join("copy")));
    assert!(copied.status.success(), "{}", text(&copied));
    let (mut ann, mut bob) = (Person::at(a, ANN), Person::at(b, BOB));
    let mut third = Person::at(b, BOB + 1);
    assert!(ann.can("read x < copy") && !ann.can("echo x >> copy"));
    assert!(bob.can("echo x >> copy") && !third.can("read x < copy"));
    // Lists of two kinds on one object would say two things.
    let set = run(Command::new("setfacl").args(["-m", "u:20003:rw", word(&a.join("d/f"))]));
    assert!(!set.status.success());
    assert!(text(&set).contains("not supported"), "{}", text(&set));
    let names = run(Command::new("getfattr").args(["-dm", "-", word(&a.join("d"))]));
    assert!(!text(&names).contains("ariel_acl"), "{}", text(&names));
    // Snapshots have it.
    let made = run(&mut ariel(&[
        "volume",
        "snapshot",
        pair.cell.addr(),
        "root",
        "kept",
    ]));
    assert!(made.status.success(), "{}", text(&made));
    acl(&["clear", word(&a.join("d"))]);
    assert!(bob.can("read x < .snapshots/kept/d/f") && !bob.can("read x < d/f"));
    assert_eq!(a.join("d").metadata().unwrap().mode() & 0o777, 0o700);
}

#[test]
fn lists_are_shown_copied_and_refused_in_words() {
    let Some(pair) = start("acl-words") else {
        return;
    };
    let (a, b) = (pair.a.path(), pair.b.path());
    for dir in ["d", "d/e", "to"] {
        fs::create_dir(a.join(dir)).unwrap();
    }
    fs::write(a.join("d/f"), "").unwrap();
    let (d, e, to) = (a.join("d"), b.join("d/e"), b.join("to"));
    assert!(acl(&["get", word(&d)]).contains("has no access list"));
    acl(&[
        "set",
        "-r",
        word(&d),
        "20001",
        "write",
        "group:20100",
        "read",
        "anyone",
        "l",
    ]);
    acl(&["set", word(&d), "20002", "w", "--negative"]);
    let whole = "\n  anyone l\n  20001 rlidwk\n  group:20100 rl\n";
    let shown = acl(&["get", word(&e)]);
    assert_eq!(shown, format!("{}:{whole}", e.display()));
    let shown = acl(&["get", word(&b.join("d/f"))]);
    assert!(shown.contains("by the list of its directory") && shown.contains("not 20002 w"));
    acl(&["copy", word(&e), word(&to)]);
    assert_eq!(
        acl(&["get", word(&to)]),
        format!("{}:{whole}", to.display())
    );
    let json: serde_json::Value =
        serde_json::from_str(&acl(&["get", "--json", word(&to)])).unwrap();
    assert_eq!(json[0]["entries"][1]["rights"], "rlidwk");
    acl(&["clear", "-r", word(&d)]);
    assert!(acl(&["get", word(&e)]).contains("has no access list"));
    for (words, why) in [
        (vec!["set", word(&d), "20001", "x"], "letters of rlidwka"),
        (
            vec!["set", word(&d), "nobody-of-this-name", "rl"],
            "user or group",
        ),
        (vec!["set", word(&d), "group:none-such", "rl"], "group:100"),
        (
            vec!["set", word(&d), "group:7", "w", "--negative"],
            "group of machines",
        ),
        (vec!["set", word(&d), "20001", "rl", "20002"], "in pairs"),
        (vec!["set", "/tmp", "20001", "rl"], "no mount of Ariel"),
        (vec!["copy", word(&d), word(&to)], "has no list"),
    ] {
        let said = refused(&words);
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let file = a.join("d/f");
    assert!(refused(&["set", word(&file), "20001", "rl"]).contains("no directory"));
}

/// `ariel group` through a mount, which must succeed; what it prints.
pub fn group(words: &[&str], mount: &Path) -> String {
    let done = run(ariel(&["group"]).args(words).arg("--mount").arg(mount));
    assert!(done.status.success(), "{words:?}: {}", text(&done));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn who_leaves_a_group_has_its_rights_on_no_mount_when_the_command_returns() {
    let Some(pair) = start("acl-groups") else {
        return;
    };
    if pair.cell.is_insecure() {
        return;
    }
    closed(&pair.a.path().join("d"));
    let mut people = [
        Person::at(pair.a.path(), BOB),
        Person::at(pair.b.path(), BOB),
    ];
    let bob = BOB.to_string();
    group(&["create", "staff"], pair.a.path());
    group(&["create", "crew"], pair.b.path());
    group(&["add", "staff", "crew"], pair.a.path());
    acl(&["set", word(&pair.a.path().join("d")), "staff", "read"]);
    let mut wrong = Vec::new();
    for round in 0..200 {
        let (one, other) = pair.sides(round / 2);
        // He is in the group, or in one within it.
        let name = ["staff", "crew"][round % 2];
        group(&["add", name, &bob], one);
        for (at, person) in people.iter_mut().enumerate() {
            for look in 0..2 {
                if !person.can("read x < d/f && test \"$x\" = bytes") {
                    wrong.push(format!("round {round}: mount {at} refuses look {look}"));
                }
            }
        }
        match round % 3 {
            2 => {
                group(&["remove", "staff", "crew"], other);
                group(&["add", "staff", "crew"], other);
                group(&["remove", name, &bob], other)
            }
            _ => group(&["remove", name, &bob], other),
        };
        for (at, person) in people.iter_mut().enumerate() {
            for line in ["read x < d/f", "ls d", "test -e d/f"] {
                if person.can(line) {
                    wrong.push(format!("round {round}: mount {at} still allows {line}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

#[test]
fn users_make_groups_of_their_own_and_lists_name_them() {
    let Some(mut pair) = start("acl-own-groups") else {
        return;
    };
    if pair.cell.is_insecure() {
        return;
    }
    closed(&pair.a.path().join("d"));
    chown(pair.a.path().join("d"), Some(ANN), Some(ANN)).unwrap();
    chown(pair.a.path().join("d/f"), Some(ANN), Some(ANN)).unwrap();
    let (mut ann, mut bob) = (
        Person::at(pair.a.path(), ANN),
        Person::at(pair.b.path(), BOB),
    );
    let program = env!("CARGO_BIN_EXE_ariel");
    let own = format!("{ANN}:friends");
    let by_ann = |words: &str| format!("{program} group {words} --mount .");
    assert!(
        !ann.can(&by_ann("create friends")),
        "without her name before it"
    );
    assert!(!bob.can(&by_ann(&format!("create {own}"))));
    assert!(ann.can(&by_ann(&format!("create {own}"))));
    assert!(
        !bob.can(&by_ann(&format!("add {own} {BOB}"))),
        "it is not his"
    );
    assert!(ann.can(&by_ann(&format!("add {own} {BOB}"))));
    assert!(ann.can(&format!("{program} acl set d {own} write")));
    assert!(bob.can("echo more >> d/f && mkdir d/e"));
    assert!(acl(&["get", word(&pair.b.path().join("d"))]).contains(&format!("{own} rlidwk")));
    let shown = group(&["show", &own], pair.b.path());
    assert_eq!(shown, format!("{own} of {ANN}:\n  {BOB}\n"));
    // Groups, and who is in them, outlive the server.
    pair.cell.restart();
    assert!(bob.can("echo more >> d/f"));
    // A server that has restarted changes no group before its mounts have come back.
    let leaves = by_ann(&format!("remove {own} {BOB}"));
    assert!(eventually(Duration::from_secs(40), || ann.can(&leaves)));
    assert!(!bob.can("read x < d/f"));
    assert!(ann.can(&by_ann(&format!("add {own} {BOB}"))));
    let mut negative = Command::new(program);
    negative.args([
        "acl",
        "set",
        "--negative",
        word(&pair.a.path().join("d")),
        &own,
        "w",
    ]);
    assert!(run(&mut negative).status.success());
    assert!(bob.can("read x < d/f") && !bob.can("echo more >> d/f"));
    group(&["rename", &own, "everybody"], pair.a.path());
    assert!(group(&["list"], pair.a.path()).contains("everybody"));
    group(&["delete", "everybody"], pair.a.path());
    assert!(
        !bob.can("read x < d/f"),
        "a group that is gone gives nothing"
    );
}
