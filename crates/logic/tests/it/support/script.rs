//! Reads a scenario's commands, runs them and writes the trace between them.

use super::world::{Manner, SERVER, World};
use logic::client::{self, Call, How, Input};
use logic::peers::Policy;
use logic::server;
use std::fmt::Write;
use wire::{Access, Fid, Make, Name, Op, Set, SetTime, VolumeOp};

/// A command's words; a text in quotes is one word, with `x*n` for n times x.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let quoted = rest
            .strip_prefix('"')
            .and_then(|inner| inner.split_once('"'));
        let (word, left) = match quoted {
            Some(found) => found,
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = left.trim_start();
    }
    words
}

fn bytes(word: &str) -> Vec<u8> {
    match word.split_once('*') {
        Some((one, count)) => one
            .repeat(count.parse().expect("a count after `*`"))
            .into_bytes(),
        None => word.replace("\\0", "\0").into_bytes(),
    }
}

fn link(word: &str) -> (char, char) {
    let (from, to) = word.split_once('>').expect("a link is written A>S");
    let one = |side: &str| side.chars().next().expect("a link has two ends");
    (one(from), one(to))
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse()
        .ok()
        .unwrap_or_else(|| panic!("`{word}` is no number"))
}

fn access(word: &str) -> Access {
    let write = word.contains(['w', 'a']);
    Access {
        read: word.contains('r'),
        write,
    }
}

/// Runs one scenario; returns its text with the trace that it has now.
pub fn run(text: &str) -> String {
    let mut world: Option<World> = None;
    let mut out = String::new();
    for line in text.lines() {
        let Some(command) = line.strip_prefix("> ") else {
            if line.is_empty() || line.starts_with('#') || line.starts_with("==") {
                writeln!(out, "{line}").expect("memory");
            }
            continue;
        };
        writeln!(out, "{line}").expect("memory");
        let words = words(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let ["cell", names @ ..] = words.as_slice() {
            let usual = client::Options::default();
            let (names, silent_ns) = match names {
                [names @ .., "fenced", "after", s] => (names, number::<u64>(s) * 1_000_000_000),
                names => (names, server::Options::default().silent_ns),
            };
            let (names, silent) = match names {
                [names @ .., "with", "silent", "opens"] => (names, true),
                names => (names, false),
            };
            let (names, rereads) = match names {
                [names @ .., "passing"] => (names, true),
                names => (names, false),
            };
            let (names, room) = match names {
                [names @ .., "and", "room"] => (names, true),
                names => (names, false),
            };
            let (names, limits) = match names {
                [names @ .., "in", "parts", "of", part] => (names, (number(part), 0, 0, None)),
                [names @ .., "with", "bytes", "ahead"] => {
                    (names, (usual.part, usual.ahead_bytes, 0, None))
                }
                [names @ .., "looking", "ahead", "by", entries] => (
                    names,
                    (usual.part, usual.ahead_bytes, number(entries), None),
                ),
                [names @ .., "with", "delegation"] => (names, (usual.part, 0, 0, usual.keep_ns)),
                names => (names, (usual.part, 0, 0, None)),
            };
            let names: Vec<char> = names.iter().filter_map(|n| n.parse().ok()).collect();
            let manner = Manner {
                announced: !silent,
                room_ahead: room,
                rereads,
            };
            world = Some(World::new(&names, limits, &manner, silent_ns));
            continue;
        }
        let world = world.as_mut().expect("a scenario begins with `cell`");
        let next = world.now + 100_000;
        world.wait(next);
        step(world, &words);
        world.settle();
        for line in world.trace.drain(..) {
            writeln!(out, "{line}").expect("memory");
        }
    }
    let world = world.expect("a scenario begins with `cell`");
    assert!(
        world.is_quiet(),
        "at the end somebody still waits, or a message is held:\n{out}"
    );
    out
}

/// Commands about lending between clients.
fn lending_step(world: &mut World, words: &[&str]) {
    match words {
        ["lend"] => world.cooperate(Policy::Greedy),
        ["share"] => world.cooperate(Policy::Fleet),
        ["share", "n-chance"] => world.cooperate(Policy::NChance),
        ["keep"] => world.cooperate(Policy::Off),
        ["lose", on] => world.lose_between(link(on), 1),
        [machine, "stalled", permille] => {
            let machine = machine.chars().next().expect("a machine is one letter");
            let input = client::PeerInput::Machine {
                stalled_permille: number(permille),
                on_battery: false,
            };
            world.client(machine, Input::Peer(input), &[]);
        }
        [machine, "slots", slots] => {
            let machine = machine.chars().next().expect("a machine is one letter");
            let slots = number(slots);
            let objects = 1 << 20;
            world.client(machine, Input::Memory { slots, objects }, &[]);
        }
        [machine, "lies"] => {
            let machine = machine.chars().next().expect("a machine is one letter");
            world.liars.insert(machine);
        }
        _ => panic!("{words:?} is no command"),
    }
}

fn step(world: &mut World, words: &[&str]) {
    match words {
        ["lazy"] => world.disk.be_lazy(),
        ["power" | "elsewhere" | "restart"] => lose_server(world, words[0]),
        ["publish", volume] => world.server(server::Input::Publish(number(volume))),
        ["regroup", on @ ..] => world.regroup(on.first().copied()),
        ["lend" | "share" | "keep"]
        | ["share", "n-chance"]
        | ["lose", _]
        | [_, "lies"]
        | [_, "stalled" | "slots", _] => lending_step(world, words),
        ["quiet"] => world.quiet = true,
        ["trace"] => world.quiet = false,
        ["hold", on] => world.hold(link(on)),
        ["free", on] => world.free(link(on)),
        ["deliver", on] => world.deliver(link(on), 1),
        ["deliver", on, nth] => world.deliver(link(on), number(nth)),
        ["drop", on] => world.lose(link(on), 1),
        ["drop", on, nth] => world.lose(link(on), number(nth)),
        ["repeat", on] => world.repeat(link(on), 1),
        ["repeat", on, nth] => world.repeat(link(on), number(nth)),
        ["wait", seconds] => {
            let ns: f64 = number::<f64>(seconds) * 1e9;
            let until = world.now + ns as u64;
            world.wait(until);
        }
        ["disk", path, what] => {
            let (dir, name) = place(world, path);
            world.disk.put(0, (dir, &name), bytes(what));
        }
        [what, "store", rest @ ..] => store_step(world, what, rest),
        ["synced"] => assert!(world.finish_sync(), "a sync was asked for"),
        [machine, "want", what] => {
            let machine = machine.chars().next().expect("a machine is one letter");
            let found = world.answers.get(&machine).map(String::as_str);
            assert_eq!(
                found,
                Some(bytes_or_text(what).as_str()),
                "the last answer to {machine}"
            );
        }
        ["want", what] => assert_eq!(world.answer, bytes_or_text(what), "the last answer"),
        ["want", what, rest @ ..] => {
            let text = format!("{what} {}", rest.join(" "));
            assert_eq!(world.answer, text, "the last answer");
        }
        ["state", name, state] => {
            let found = world.state(fid(world, name));
            assert_eq!(found, *state, "the state of {name}");
        }
        ["tokens", name] => {
            let text = format!("S believes of {name}:{}", world.tokens(fid(world, name)));
            world.note(text);
        }
        ["gone", name] => {
            let gone = logic::server::Disk::attr(&world.disk, fid(world, name)) == Ok(None);
            assert!(gone, "{name} is not in the store any more");
        }
        ["stored", name, what] => want_stored(world, name, what),
        ["modified", name, at] => {
            let attr = logic::server::Disk::attr(&world.disk, fid(world, name));
            let mtime = attr.ok().flatten().map(|attr| attr.mtime);
            assert_eq!(mtime, Some(number(at)), "when {name} was modified, at S");
        }
        [machine, rest @ ..] => machine_step(world, machine, rest),
        [] => {}
    }
}

/// The server ends, in this way, and clients dial what is there then.
fn lose_server(world: &mut World, how: &str) {
    match how {
        "power" => world.power(),
        "elsewhere" => world.elsewhere(),
        _ => world.restart(),
    }
    world.redial();
}

/// Commands about the store itself.
fn store_step(world: &mut World, what: &str, rest: &[&str]) {
    match (what, rest) {
        ("slow", []) => world.slow_disk = true,
        ("full", []) => world.disk.full = true,
        ("roomy", []) => world.disk.full = false,
        ("blind", []) => world.disk.blind.set((0, u32::MAX)),
        ("blind", [times, "after", sees]) => {
            world.disk.blind.set((number(sees), number(times)));
        }
        ("limited", [bytes, objects]) => {
            world.disk.limits = wire::Limits {
                bytes: number(bytes),
                objects: number(objects),
            };
        }
        ("seeing", []) => world.disk.blind.set((0, 0)),
        ("showing", [release]) => world.disk.show_release(number(release)),
        // The snapshot that is received is a release, which changes these.
        ("releasing", [half, changed @ ..]) => {
            let changed = changed.iter().map(|path| fid(world, path)).collect();
            world.disk.release(number(half), changed);
        }
        _ => panic!("{what} store {rest:?}: not known"),
    }
}

/// The store has these bytes of a file, and no others.
fn want_stored(world: &mut World, name: &str, what: &str) {
    let fid = fid(world, name);
    let (_, bulk) = logic::server::Disk::read(&mut world.disk, fid, 0, 1 << 20);
    let stored = world.disk.bulks.remove(&bulk).unwrap_or_default();
    assert_eq!(
        super::show::text(&stored),
        bytes_or_text(what),
        "bytes of {name} at S"
    );
}

/// The text that a read of these bytes prints.
fn bytes_or_text(word: &str) -> String {
    match word {
        "absent" | "done" => word.to_owned(),
        word => super::show::text(&bytes(word)),
    }
}

fn fid(world: &World, label: &str) -> Fid {
    let found = world.disk.labelled(label);
    found.unwrap_or_else(|| panic!("nothing was made as `{label}`"))
}

fn place(world: &World, path: &str) -> (Fid, Name) {
    let (dir, name) = match path.rsplit_once('/') {
        Some((dir, name)) => (fid(world, dir), name),
        None => (Fid::root(1), path),
    };
    (dir, Name::new(name.as_bytes()).expect("a name"))
}

/// All rights, in the part of the tree at this path.
fn within(path: &str) -> wire::Rights {
    let name = |text: &str| Name::new(text.as_bytes()).expect("a name");
    let part = wire::Part {
        volume: name("root"),
        path: path
            .split('/')
            .filter(|text| !text.is_empty())
            .map(name)
            .collect(),
    };
    wire::Rights {
        parts: vec![part],
        ..wire::Rights::all()
    }
}

fn machine_step(world: &mut World, machine: &str, words: &[&str]) {
    let name = machine.chars().next().expect("a machine is one letter");
    assert!(
        machine.len() == 1 && name != SERVER,
        "`{machine}` is no command"
    );
    match words {
        ["cut"] => world.cut(name),
        ["squashed"] => world.limit(name, wire::Rights::default()),
        ["within", path] => world.limit(name, within(path)),
        ["granted", path] => world.regrant(name, within(path)),
        ["granted", path, "at", "once"] => world.regrant_at_once(name, within(path)),
        ["keeps", "nothing"] => world.keeps_nothing(name),
        ["reads"] => {
            let write = false;
            let rights = wire::Rights {
                write,
                ..wire::Rights::all()
            };
            world.limit(name, rights);
        }
        ["connect"] => world.connect(name),
        ["slow"] => world.machines.get_mut(&name).expect("a machine").slow = true,
        ["thread", thread] => {
            world.machines.get_mut(&name).expect("a machine").thread = number(thread);
        }
        ["watch", watch, what, depth @ ..] => {
            let (watch, fid, recursive) = (number(watch), fid(world, what), *depth == ["deep"]);
            let input = Input::Watch {
                watch,
                fid,
                recursive,
            };
            world.client(name, input, &[]);
        }
        ["unwatch", watch] => {
            let watch = number(watch);
            world.client(name, Input::Unwatch { watch }, &[]);
        }
        ["interrupt"] => world.interrupt(name),
        ["kill"] => world.kill(name),
        ["signal"] => world.signal(name),
        ["fast"] => world.machines.get_mut(&name).expect("a machine").slow = false,
        ["drops"] => world.finish_drop(name, 1),
        ["drops", nth] => world.finish_drop(name, number(nth)),
        ["handed", what] => {
            let root = fid(world, what);
            world.client(name, Input::Handed { root }, &[]);
        }
        ["forget", what, count @ ..] => {
            let fid = fid(world, what);
            let count = count.first().map_or(u64::MAX, |count| number(count));
            world.client(name, Input::Forget { fid, count }, &[]);
        }
        _ => {
            let call = call(world, words);
            let bytes = match words {
                ["write" | "page", _, _, what] | ["append", _, what] => Some(bytes(what)),
                _ => None,
            };
            let shown = words
                .iter()
                .map(|word| word.to_string())
                .collect::<Vec<_>>()
                .join(" ");
            world.call(name, &shown, call, bytes);
        }
    }
}

fn call(world: &World, words: &[&str]) -> Call {
    let of = |label: &str| fid(world, label);
    match words {
        ["open", file, how] | ["open", file, how, _] => Call::Open {
            fid: of(file),
            access: access(how),
            append: how.contains('a'),
            handle: words.get(3).map_or(0, |handle| number(handle)),
        },
        ["close", file, how] => Call::Release {
            fid: of(file),
            access: access(how),
            handle: 0,
        },
        ["close", file, how, handle] => Call::Release {
            fid: of(file),
            access: access(how),
            handle: number(handle),
        },
        ["read", file, offset, len] => Call::Read {
            fid: of(file),
            offset: number(offset),
            len: number(len),
            pages: true,
        },
        // Through a descriptor opened direct: the kernel keeps nothing.
        ["direct", file, offset, len] => Call::Read {
            fid: of(file),
            offset: number(offset),
            len: number(len),
            pages: false,
        },
        ["write", file, offset, what] => write(of(file), number(offset), what, How::Direct),
        ["page", file, offset, what] => write(of(file), number(offset), what, How::Paged),
        ["append", file, what] => write(of(file), 0, what, How::Append),
        ["sync", file] | ["sync", file, _] => Call::Sync {
            fid: of(file),
            handle: words.get(2).map(|handle| number(handle)),
        },
        // lseek(2) to the end, which then goes by the size that the kernel knows.
        ["enter", dir] => Call::Enter { fid: of(dir) },
        ["seek", file] => Call::Seek { fid: of(file) },
        ["list", dir] => list(of(dir), 0, 100),
        ["list", dir, max] => list(of(dir), 0, number(max)),
        ["more", dir] => list(of(dir), world.position, 100),
        ["more", dir, "earlier"] => list(of(dir), world.earlier, 100),
        ["leave"] => Call::Leave,
        _ => match super::lock::call(&of, words) {
            Some(call) => call,
            None => Call::Op(op(world, words)),
        },
    }
}

fn list(dir: Fid, after: u64, max: u32) -> Call {
    Call::List {
        dir,
        after,
        max,
        plus: true,
    }
}

fn write(fid: Fid, offset: u64, what: &str, how: How) -> Call {
    Call::Write {
        fid,
        offset,
        len: bytes(what).len() as u32,
        how,
    }
}

fn range_op(world: &World, words: &[&str]) -> Op {
    match words {
        ["punch" | "grow", file, offset, len] => Op::Allocate {
            fid: fid(world, file),
            offset: number(offset),
            len: number(len),
            zero: words[0] == "punch",
            keep_size: words[0] == "punch",
        },
        ["copy", from, at, to, offset, len] => Op::Copy {
            from: fid(world, from),
            at: number(at),
            to: fid(world, to),
            offset: number(offset),
            len: number(len),
        },
        ["hole" | "data", file, offset] => Op::Find {
            fid: fid(world, file),
            offset: number(offset),
            hole: words[0] == "hole",
        },
        _ => panic!("unknown command: {}", words.join(" ")),
    }
}

fn xattr_op(world: &World, words: &[&str]) -> Op {
    match words {
        ["getxattr", file, name] => Op::GetXattr {
            fid: fid(world, file),
            name: bytes(name),
        },
        ["listxattr", file] => Op::ListXattr {
            fid: fid(world, file),
        },
        ["removexattr", file, name] => Op::RemoveXattr {
            fid: fid(world, file),
            name: bytes(name),
        },
        ["setxattr", file, name, value] => Op::SetXattr {
            fid: fid(world, file),
            name: bytes(name),
            value: bytes(value),
            mode: wire::XattrMode::Any,
        },
        other => panic!("unknown command: {}", other.join(" ")),
    }
}

fn volume_op(words: &[&str]) -> Op {
    let name = |word: &str| Name::new(word.as_bytes()).expect("a name");
    Op::Volume(match words {
        ["snapshot", of, new] => VolumeOp::Snapshot {
            of: name(of),
            name: name(new),
        },
        ["clone", of, new] => VolumeOp::Clone {
            of: name(of),
            name: name(new),
        },
        ["delete", of] => VolumeOp::Delete { of: name(of) },
        ["receive", of] => super::disk::volumes::receive(name(of)),
        ["publish", snapshot] => VolumeOp::Publish {
            volume: number(snapshot),
        },
        ["schedule", of, every_s, keep] => VolumeOp::Schedule {
            of: name(of),
            rules: vec![wire::ScheduleRule {
                every_s: number(every_s),
                keep: number(keep),
            }],
        },
        other => panic!("unknown command: {}", other.join(" ")),
    })
}

fn op(world: &World, words: &[&str]) -> Op {
    let make = |path: &str, make: Make, mode: u32, open: Option<Access>| {
        let (dir, name) = place(world, path);
        Op::Make {
            dir,
            name,
            make,
            mode,
            open,
        }
    };
    match words {
        ["lookup", path] => {
            let (dir, name) = place(world, path);
            Op::Lookup { dir, name }
        }
        ["stat", file] => Op::GetAttr {
            fid: fid(world, file),
        },
        ["getxattr" | "listxattr" | "removexattr" | "setxattr", ..] => xattr_op(world, words),
        ["truncate" | "chmod" | "utime", file, value] => Op::SetAttr {
            fid: fid(world, file),
            set: set(words[0], value),
        },
        ["create", path, how] => make(path, Make::File, 0o644, Some(access(how))),
        ["tmpfile", dir, how] => Op::MakeNameless {
            dir: fid(world, dir),
            mode: 0o644,
            open: access(how),
        },
        [
            "snapshot" | "clone" | "delete" | "schedule" | "receive" | "publish",
            ..,
        ] => volume_op(words),
        ["mount", volume, path] => {
            let volume = Name::new(volume.as_bytes()).expect("a name");
            make(path, Make::Mount(volume), 0o755, None)
        }
        ["mount-elsewhere", volume, path] => {
            let volume = volume.parse().expect("a number");
            make(path, Make::MountElsewhere(volume), 0o755, None)
        }
        ["unmount", path] => {
            let (dir, name) = place(world, path);
            Op::Unmount { dir, name }
        }
        ["mkdir", path] => make(path, Make::Directory, 0o755, None),
        ["link", file, path] => {
            let (dir, name) = place(world, path);
            Op::Link {
                fid: fid(world, file),
                dir,
                name,
            }
        }
        ["unlink", path] => {
            let (dir, name) = place(world, path);
            Op::Unlink { dir, name }
        }
        ["rmdir", path] => {
            let (dir, name) = place(world, path);
            Op::Rmdir { dir, name }
        }
        ["rename", old, new] => rename(world, (old, new), false),
        ["exchange", one, other] => rename(world, (one, other), true),
        _ => range_op(world, words),
    }
}

fn rename(world: &World, (old, new): (&str, &str), exchange: bool) -> Op {
    let ((from, name), (to, new)) = (place(world, old), place(world, new));
    Op::Rename {
        from,
        name,
        to,
        new,
        no_replace: false,
        exchange,
    }
}

fn set(what: &str, value: &str) -> Set {
    let mut set = Set::default();
    match what {
        "chmod" => set.mode = Some(u16::from_str_radix(value, 8).expect("an octal mode")),
        "utime" => set.mtime = Some(SetTime::To(number(value))),
        _ => set.size = Some(number(value)),
    }
    set
}
