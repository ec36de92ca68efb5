//! `ariel watch`: changes by any machine are told once, in order, with the right names; missed ones
//! are reported.

use crate::harness::{Mount, Pair, Random, ariel, process::Proc, real_system, run, text};
use rustix::fs::RenameFlags;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The longest until something is told.
const TOLD: Duration = Duration::from_secs(30);

/// A watch, and what it tells.
struct Watch {
    process: Proc,
    events: Receiver<Value>,
}

impl Watch {
    /// Begins; everything done from now on is told.
    fn start(pair: &Pair, path: &Path, args: &[&str]) -> Self {
        let mut watch = Self::ask(pair, path, args);
        assert_eq!(watch.next()["event"], "watching");
        watch
    }

    fn ask(pair: &Pair, path: &Path, args: &[&str]) -> Self {
        let mut all = vec![OsStr::new("watch"), OsStr::new("--json")];
        all.extend(args.iter().map(OsStr::new));
        all.push(path.as_os_str());
        let mut command = ariel(&all);
        command.stdout(Stdio::piped());
        let mut process = Proc::spawn(&mut command, Some(pair.cell.watch())).unwrap();
        let stdout = process.child().stdout.take().unwrap();
        let (send, events) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let event = serde_json::from_str(&line.unwrap()).unwrap();
                if send.send(event).is_err() {
                    return;
                }
            }
        });
        Self { process, events }
    }

    fn next(&mut self) -> Value {
        self.events.recv_timeout(TOLD).unwrap()
    }

    /// The next one, without what is not always the same.
    fn brief(&mut self) -> Value {
        let mut event = self.next();
        let fields = event.as_object_mut().unwrap();
        fields.remove("inode");
        fields.remove("type");
        event
    }

    /// The events before the first one under this name.
    fn until(&mut self, path: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let event = self.next();
            if event["path"] == path {
                return all;
            }
            all.push(event);
        }
    }

    fn end(mut self) -> ExitStatus {
        self.process.wait(TOLD).expect("it ends")
    }
}

fn start(test: &str) -> Option<Pair> {
    if !real_system(test) {
        return None;
    }
    Pair::start(test)
}

#[test]
fn what_any_mount_does_is_told_in_order() {
    let Some(pair) = start("watch-order") else {
        return;
    };
    let mut watch = Watch::start(&pair, pair.b.path(), &["--recursive"]);
    let mut flat = Watch::start(&pair, pair.b.path(), &[]);
    for (round, root) in [pair.a.path(), pair.b.path()].into_iter().enumerate() {
        let name = |name: &str| format!("{name}-{round}");
        let at = |path: &str| root.join(path);
        fs::create_dir(at(&name("d"))).unwrap();
        fs::create_dir(at(&format!("d-{round}/e"))).unwrap();
        fs::rename(at(&name("d")), at(&name("c"))).unwrap();
        let link = at(&format!("c-{round}/e/link"));
        std::os::unix::fs::symlink("nowhere", link).unwrap();
        fs::set_permissions(at(&name("c")), fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(at(&format!("c-{round}/e/link")), at(&name("link"))).unwrap();
        fs::remove_dir(at(&format!("c-{round}/e"))).unwrap();
        let event = |event: &str, path: &str| json!({ "event": event, "path": format!("{path}") });
        let moved = |path: String, to: String| json!({ "event": "moved", "path": path, "to": to });
        let (c, d, l) = (name("c"), name("d"), name("link"));
        let expected = [
            event("created", &d),
            event("created", &format!("{d}/e")),
            moved(d.clone(), c.clone()),
            event("created", &format!("{c}/e/link")),
            event("attributes", &c),
            moved(format!("{c}/e/link"), l.clone()),
            event("removed", &format!("{c}/e")),
        ];
        for expected in expected {
            assert_eq!(watch.brief(), expected);
        }
        let expected = [
            event("created", &d),
            moved(d, c.clone()),
            event("attributes", &c),
            event("created", &l),
        ];
        for expected in expected {
            assert_eq!(flat.brief(), expected);
        }
    }
}

fn exchange(one: &Path, other: &Path) {
    let here = rustix::fs::CWD;
    rustix::fs::renameat_with(here, one, here, other, RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn names_that_change_places_and_files_with_several_names_are_told() {
    let Some(pair) = start("watch-exchange") else {
        return;
    };
    let at = |name: &str| pair.a.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::create_dir(at("e")).unwrap();
    fs::write(at("f"), b"").unwrap();
    fs::write(at("d/g"), b"").unwrap();
    fs::hard_link(at("f"), at("h")).unwrap();
    let mut all = Watch::start(&pair, pair.b.path(), &["-r"]);
    let mut flat = Watch::start(&pair, &pair.b.join("d"), &[]);
    let event = |event: &str, path: &str| json!({ "event": event, "path": path });
    exchange(&at("e"), &at("d/g"));
    let exchanged = json!({ "event": "exchanged", "path": "e", "to": "d/g" });
    assert_eq!(all.brief(), exchanged);
    // The watch sees the new object of an exchange only in the directory that it watches.
    assert_eq!(flat.brief(), event("removed", "g"));
    assert_eq!(flat.brief(), event("created", "g"));
    // Nothing happens.
    fs::rename(at("f"), at("h")).unwrap();
    fs::rename(at("h"), at("d/g/f")).unwrap();
    let moved = json!({ "event": "moved", "path": "h", "to": "d/g/f" });
    assert_eq!(all.brief(), moved);
    // The one that it was told of under is gone: it is told of under the other one.
    fs::remove_file(at("f")).unwrap();
    assert_eq!(all.brief(), event("removed", "f"));
    fs::set_permissions(at("d/g/f"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(all.brief(), event("attributes", "d/g/f"));
    // Which is not in the other watch's directory.
    fs::create_dir(at("d/last")).unwrap();
    assert_eq!(flat.brief(), event("created", "last"));
}

#[test]
fn what_is_written_is_told_while_the_file_is_open() {
    let Some(pair) = start("watch-written") else {
        return;
    };
    fs::write(pair.a.join("before"), b"x").unwrap();
    let mut watch = Watch::start(&pair, pair.b.path(), &[]);
    let mut file = File::create(pair.a.join("f")).unwrap();
    let mut before = File::options()
        .append(true)
        .open(pair.a.join("before"))
        .unwrap();
    assert_eq!(watch.brief(), json!({ "event": "created", "path": "f" }));
    for file in [&mut file, &mut before] {
        file.write_all(b"news").unwrap();
    }
    // By itself it would stay on that machine for half a minute.
    let begun = Instant::now();
    let told: BTreeSet<String> = (0..2).map(|_| watch.brief()["path"].to_string()).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "told after {:?}",
        begun.elapsed()
    );
    assert_eq!(fs::read(pair.b.join("before")).unwrap(), b"xnews");
    drop((file, before));
    File::create(pair.a.join("last")).unwrap();
    let rest = watch.until("last");
    assert!(
        rest.iter().all(|event| event["event"] == "written"),
        "{rest:?}"
    );
}

/// A machine's changes of names in a directory of its own stay there, but they are reported to
/// watchers.
#[test]
fn names_of_a_delegated_directory_are_told_while_it_is() {
    let Some(pair) = start("watch-delegated") else {
        return;
    };
    fs::create_dir(pair.a.join("own")).unwrap();
    fs::write(pair.a.join("own/before"), b"x").unwrap();
    let mut watch = Watch::start(&pair, pair.b.path(), &["--recursive"]);
    let begun = Instant::now();
    for round in 0..4 {
        let name = format!("own/{round}");
        fs::write(pair.a.join(&name), b"news").unwrap();
        let path = format!("own/to-{round}");
        fs::rename(pair.a.join(&name), pair.a.join(&path)).unwrap();
        watch.until(&path);
    }
    // By itself each would stay on that machine for five seconds.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "told after {took:?}");
}

#[test]
fn what_was_missed_over_a_restart_is_said() {
    let Some(mut pair) = start("watch-restart") else {
        return;
    };
    let mut watch = Watch::start(&pair, pair.b.path(), &["-r"]);
    fs::create_dir(pair.a.join("d")).unwrap();
    assert_eq!(watch.brief(), json!({ "event": "created", "path": "d" }));
    pair.cell.stop_server();
    pair.cell.start_server();
    assert_eq!(watch.brief(), json!({ "event": "missed" }));
    fs::create_dir(pair.a.join("d/e")).unwrap();
    assert_eq!(watch.brief(), json!({ "event": "created", "path": "d/e" }));
}

#[test]
fn a_watch_ends_with_what_it_watches() {
    let Some(mut pair) = start("watch-end") else {
        return;
    };
    fs::create_dir(pair.a.join("d")).unwrap();
    fs::write(pair.a.join("f"), b"").unwrap();
    let mut dir = Watch::start(&pair, &pair.b.join("d"), &[]);
    let mut file = Watch::start(&pair, &pair.b.join("f"), &[]);
    fs::remove_dir(pair.a.join("d")).unwrap();
    fs::remove_file(pair.a.join("f")).unwrap();
    for watch in [&mut dir, &mut file] {
        assert_eq!(watch.brief(), json!({ "event": "removed", "path": "" }));
        assert_eq!(watch.next()["event"], "ended");
    }
    assert!(dir.end().success() && file.end().success());
    // A watch that ends is forgotten.
    let watches = |mount: &Mount| crate::harness::status::status(mount.path())["watches"].clone();
    assert_eq!(watches(&pair.b), 0);
    let root = Watch::start(&pair, pair.b.path(), &[]);
    assert_eq!(watches(&pair.b), 1);
    drop(root);
    let gone = crate::harness::eventually(TOLD, || watches(&pair.b) == 0);
    assert!(gone, "who was killed is still told");
    // With the mount it ends, too.
    let root = Watch::start(&pair, pair.b.path(), &["-r"]);
    let another = pair.cell.mount();
    drop(std::mem::replace(&mut pair.b, another));
    assert_eq!(root.end().code(), Some(1));
}

#[test]
fn what_cannot_be_watched_is_told_with_the_cure() {
    let Some(pair) = start("watch-refused") else {
        return;
    };
    let refused = |path: &Path, said: &str| {
        let output = run(&mut ariel(&[OsStr::new("watch"), path.as_os_str()]));
        let shown = text(&output);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert!(shown.contains(said), "{shown}");
    };
    refused(&pair.b.join("none"), "No such file");
    refused(Path::new("/proc"), "on no mount of Ariel");
}

/// The names below a directory.
fn names(root: &Path, path: &str, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(root.join(path)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let whole = if path.is_empty() {
            name
        } else {
            format!("{path}/{name}")
        };
        if entry.file_type().unwrap().is_dir() {
            names(root, &whole, into);
        }
        into.insert(whole);
    }
}

/// Applies an event to a set of names.
fn apply(set: &mut BTreeSet<String>, event: &Value) {
    let path = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    match event["event"].as_str().unwrap() {
        "created" => assert!(set.insert(path("path")), "made twice: {event}"),
        "removed" => assert!(set.remove(&path("path")), "was not there: {event}"),
        "moved" => {
            let (old, new) = (path("path"), path("to"));
            let below = |name: &String| *name == old || name.starts_with(&format!("{old}/"));
            let moved: Vec<String> = set.iter().filter(|name| below(name)).cloned().collect();
            assert!(!moved.is_empty(), "was not there: {event}");
            set.remove(&new);
            for name in moved {
                set.remove(&name);
                set.insert(format!("{new}{}", &name[old.len()..]));
            }
        }
        "missed" => panic!("nothing was to be missed"),
        _ => {}
    }
}

/// Any operation on names; most of them are refused, as they come.
fn anything(random: &mut Random, root: &Path) {
    let name = |random: &mut Random| {
        let depth = 1 + random.below(3);
        let parts = (0..depth).map(|_| format!("n{}", random.below(4)));
        root.join(parts.collect::<Vec<_>>().join("/"))
    };
    let (first, second) = (name(random), name(random));
    // Whether it succeeds is what the watch must know.
    let _ = match random.below(6) {
        0 => fs::create_dir(&first),
        1 => File::create_new(&first).map(drop),
        2 => fs::remove_file(&first),
        3 => fs::remove_dir(&first),
        4 => fs::hard_link(&first, &second),
        _ => fs::rename(&first, &second),
    };
}

#[test]
fn whoever_follows_knows_the_tree() {
    let Some(pair) = start("watch-follow") else {
        return;
    };
    let mut random = Random(11);
    for _ in 0..200 {
        anything(&mut random, pair.a.path());
    }
    let mut watch = Watch::start(&pair, pair.b.path(), &["-r"]);
    let mut set = BTreeSet::new();
    names(pair.b.path(), "", &mut set);
    thread::scope(|scope| {
        for (seed, root) in [(12, pair.a.path()), (13, pair.b.path())] {
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..1500 {
                    anything(&mut random, root);
                }
            });
        }
    });
    // Changes of each machine in directories of its own are reported before this returns.
    for root in [pair.a.path(), pair.b.path()] {
        File::open(root).unwrap().sync_all().unwrap();
    }
    fs::create_dir(pair.a.join("the-end")).unwrap();
    let events = watch.until("the-end");
    assert!(events.len() > 100, "something happened: {}", events.len());
    events.iter().for_each(|event| apply(&mut set, event));
    set.insert("the-end".to_owned());
    let mut there = BTreeSet::new();
    names(pair.a.path(), "", &mut there);
    assert_eq!(set, there);
}

#[test]
fn names_of_any_bytes_are_one_line_each() {
    let Some(pair) = start("watch-bytes") else {
        return;
    };
    let mut watch = Watch::start(&pair, pair.b.path(), &[]);
    File::create(pair.a.path().join(OsStr::from_bytes(b"a\n\xff"))).unwrap();
    let event = watch.next();
    assert_eq!(
        (&event["path"], &event["path_hex"]),
        (&json!("a\n\u{fffd}"), &json!("610aff"))
    );
}
