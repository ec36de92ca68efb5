//! Messages, answers and invalidations as lines of a trace. Details that vary without meaning
//! (times, numbers of slots, acknowledgements) are left out.

use super::disk::MemoryDisk;
use logic::client::{Done, Invalidate, Lifetime};
use wire::{
    Access, Attr, Change, Deed, Elsewhere, Epoch, Fid, Grant, HeldLock, Hold, Holding, Kind,
    Leaving, Lenders, Op, Outcome, Path, Recall, Refusal, Request, Returned, Right, Set, SetTime,
    ToClient, ToServer, Unseen, VolumeOp, What, WriteMode,
};

/// The name of an object.
pub fn name(disk: &MemoryDisk, fid: Fid) -> String {
    disk.labels
        .get(&fid)
        .cloned()
        .unwrap_or_else(|| format!("fid {fid}"))
}

/// How a file is opened.
pub fn access(access: Access) -> &'static str {
    match (access.read, access.write) {
        (true, true) => "rw",
        (false, true) => "w",
        _ => "r",
    }
}

fn hold(hold: Hold) -> String {
    let open = match (hold.open, hold.write) {
        (_, true) => "open for writing",
        (true, false) => "open",
        (false, false) => "not open",
    };
    format!("{open} ~{}", hold.stamp)
}

fn attr(attr: &Attr) -> String {
    let mut text = format!("size {} v{}", attr.size, attr.version);
    if attr.kind == Kind::Directory {
        text = format!("directory v{}", attr.version);
    } else if attr.kind == Kind::Mount {
        text = format!("mount point of volume {}", attr.rdev);
    }
    if !matches!(
        (attr.kind, attr.mode),
        (Kind::Directory | Kind::Mount, 0o755) | (_, 0o644)
    ) {
        text += &format!(" mode {:o}", attr.mode);
    }
    if attr.kind == Kind::File && attr.used_bytes != attr.size {
        text += &format!(" uses {}", attr.used_bytes);
    }
    let links = if attr.kind == Kind::Directory { 2 } else { 1 };
    if attr.nlink != links {
        text += &format!(" nlink {}", attr.nlink);
    }
    text
}

fn set(set: &Set) -> String {
    let mut text = String::new();
    if let Some(size) = set.size {
        text += &format!(" size {size}");
    }
    if let Some(mode) = set.mode {
        text += &format!(" mode {mode:o}");
    }
    if let Some(SetTime::To(mtime)) = set.mtime {
        text += &format!(" modified {mtime}");
    }
    text
}

fn write_mode(mode: WriteMode) -> String {
    match mode {
        WriteMode::At => String::new(),
        WriteMode::Append => " append".into(),
        WriteMode::Lazy => " lazy".into(),
        WriteMode::Back { size, .. } => format!(" back, size {size}"),
    }
}

fn range_op(disk: &MemoryDisk, op: &Op) -> String {
    let of = |fid: &Fid| name(disk, *fid);
    let kind = op.kind();
    match op {
        Op::Allocate {
            fid,
            offset,
            len,
            zero,
            ..
        } => {
            let what = if *zero { "zeros" } else { "room" };
            format!("{kind} {} {len} {what} at {offset}", of(fid))
        }
        Op::Copy {
            from,
            at,
            to,
            offset,
            len,
        } => {
            let (from, to) = (of(from), of(to));
            format!("{kind} {len} from {from} at {at} to {to} at {offset}")
        }
        Op::Room { held, want, .. } => {
            let text =
                |room: &wire::Room| format!("{} bytes, {} objects", room.bytes, room.objects);
            format!("{kind} has {}, wants {}", text(held), text(want))
        }
        Op::Find { fid, offset, hole } => {
            let what = if *hole { "hole" } else { "data" };
            format!("{kind} {what} in {} from {offset}", of(fid))
        }
        _ => kind.to_owned(),
    }
}

pub fn volume_op(op: &VolumeOp) -> String {
    match op {
        VolumeOp::Snapshot { of, name } => format!("Snapshot {name} of {of}"),
        VolumeOp::Clone { of, name } => format!("Clone {name} of {of}"),
        VolumeOp::Delete { of } => format!("Delete {of}"),
        VolumeOp::Purge { volume } => format!("Purge volume {volume}"),
        VolumeOp::Receive { name, .. } => format!("Receive into {name}"),
        VolumeOp::Publish { volume } => format!("Publish volume {volume}"),
        VolumeOp::Schedule { of, rules } => {
            let rules = rules
                .iter()
                .map(|r| format!("every {} s, keep {}", r.every_s, r.keep));
            format!("Schedule of {of}: {}", rules.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn make(disk: &MemoryDisk, op: &Op) -> String {
    let Op::Make {
        dir,
        name,
        make,
        open,
        ..
    } = op
    else {
        return format!("{op:?}");
    };
    let begin = format!("{} {name} in {}", op.kind(), self::name(disk, *dir));
    match make {
        wire::Make::Mount(volume) => format!("{begin}, mount point of {volume}"),
        wire::Make::MountElsewhere(volume) => {
            format!("{begin}, mount point of volume {volume} of another server")
        }
        _ => {
            let open = open.map(|how| format!(", open {}", access(how)));
            format!("{begin}{}", open.unwrap_or_default())
        }
    }
}

fn op(disk: &MemoryDisk, op: &Op) -> String {
    let of = |fid: &Fid| name(disk, *fid);
    let kind = op.kind();
    match op {
        Op::Lookup { dir, name }
        | Op::Unlink { dir, name }
        | Op::Rmdir { dir, name }
        | Op::Unmount { dir, name } => format!("{kind} {} in {}", name, of(dir)),
        Op::Make { .. } => make(disk, op),
        Op::MakeNameless { dir, open, .. } => {
            format!("{kind} in {}, open {}", of(dir), access(*open))
        }
        Op::Link { fid, dir, name } => format!("{kind} {} as {name} in {}", of(fid), of(dir)),
        Op::Rename {
            from,
            name,
            to,
            new,
            no_replace,
            ..
        } => {
            let free = if *no_replace { ", if that is free" } else { "" };
            format!("{kind} {name} in {} to {new} in {}{free}", of(from), of(to))
        }
        Op::SetAttr { fid, set: change } => format!("{kind} {}{}", of(fid), set(change)),
        Op::Open { fid, access: how } => format!("{kind} {} {}", of(fid), access(*how)),
        Op::Read { fid, offset, len } => format!("{kind} {} {len} at {offset}", of(fid)),
        Op::Write {
            fid,
            offset,
            len,
            mode,
        } => {
            format!("{kind} {} {len} at {offset}{}", of(fid), write_mode(*mode))
        }
        Op::ReadDir { dir, after, .. } => format!("{kind} {} after {after}", of(dir)),
        Op::Prefetch { dir, after, max } => format!("{kind} {max} of {} after {after}", of(dir)),
        Op::Lock { .. }
        | Op::TestLock { .. }
        | Op::Unlock { .. }
        | Op::StopWaiting { .. }
        | Op::GiveLocks { .. } => super::lock::op(op, of),
        Op::GetAttr { fid }
        | Op::Claim { fid }
        | Op::Sync { fid }
        | Op::ReadLink { fid }
        | Op::ListXattr { fid } => {
            format!("{kind} {}", of(fid))
        }
        Op::GetXattr { fid, name }
        | Op::SetXattr { fid, name, .. }
        | Op::RemoveXattr { fid, name } => {
            format!("{kind} {} {}", of(fid), String::from_utf8_lossy(name))
        }
        Op::Volume(op) => volume_op(op),
        _ => range_op(disk, op),
    }
}

fn outcome(disk: &MemoryDisk, outcome: &Outcome) -> String {
    let of = |fid: &Fid| name(disk, *fid);
    match outcome {
        Outcome::Room(room) => format!("Room {} bytes, {} objects", room.bytes, room.objects),
        Outcome::Refused(refusal) => format!("Refused {refusal:?}"),
        Outcome::Absent { .. } => "Absent".into(),
        Outcome::Entry(entry) => format!("Entry {} {}", of(&entry.fid), attr(&entry.attr)),
        Outcome::Attr(known) => format!("Attr {}", attr(known)),
        Outcome::Removed { fid, attr, .. } => format!("Removed {} nlink {}", of(fid), attr.nlink),
        Outcome::Renamed { fid, victim, .. } => {
            let victim = victim
                .as_ref()
                .map(|(fid, attr)| format!(" over {} nlink {}", of(fid), attr.nlink));
            format!("Renamed {}{}", of(fid), victim.unwrap_or_default())
        }
        Outcome::Opened(known) => format!("Opened {}", attr(known)),
        Outcome::Read { len, size } => format!("Read {len} of size {size}"),
        Outcome::Written {
            offset,
            attr: known,
        } => format!("Written at {offset}, {}", attr(known)),
        Outcome::Dir { entries, end, .. } => {
            let one = |entry: &wire::DirEntry| match entry.ahead {
                0 => entry.name.to_string(),
                len => format!("{}:{len}", entry.name),
            };
            let names: Vec<String> = entries.iter().map(one).collect();
            format!(
                "Dir [{}]{}",
                names.join(" "),
                if *end { " end" } else { "" }
            )
        }
        Outcome::Target(bytes) | Outcome::Value(bytes) => text(bytes),
        Outcome::Filesystem(_) => "Filesystem".into(),
        Outcome::Done => "Done".into(),
        Outcome::Locked {
            locked,
            at,
            delegated,
        } => {
            let delegated = if *delegated { ", delegated" } else { "" };
            format!("{locked:?} @{at}{delegated}")
        }
        Outcome::InTheWay(found) => super::lock::in_the_way(found.as_ref()),
        Outcome::Copied { len, attr: known } => format!("Copied {len}, {}", attr(known)),
        Outcome::Elsewhere(Elsewhere { lender: 0, .. }) => "that is read again".to_owned(),
        Outcome::Elsewhere(Elsewhere {
            len,
            size,
            addr,
            digests,
            ..
        }) => {
            let lender = String::from_utf8_lossy(addr);
            let has = digests.iter().filter(|digest| digest.is_some()).count();
            let all = digests.len();
            format!("{len} of size {size}, {lender} has {has} of {all} blocks")
        }
        Outcome::Position(at) => format!("Position {at}"),
        Outcome::Numbers { count, .. } => format!("Numbers, {count}"),
        Outcome::Volume(info) => format!("Volume {}", info.name),
        Outcome::Volumes(all) => format!("{} volumes", all.len()),
        Outcome::Dump(dump) => format!("{} pieces", dump.chunk.pieces.len()),
    }
}

fn heard(epoch: Epoch) -> String {
    match epoch {
        0 => String::new(),
        epoch => format!(", none up to @{epoch}"),
    }
}

fn grants(disk: &MemoryDisk, grants: &[Grant]) -> String {
    let one = |grant: &Grant| {
        format!(
            ", grants {} {:?} @{}",
            name(disk, grant.fid),
            grant.right,
            grant.epoch
        )
    };
    grants.iter().map(one).collect()
}

/// Bytes as text, runs of one byte shortened.
pub fn text(bytes: &[u8]) -> String {
    let mut shown = String::from("\"");
    let mut rest = bytes;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take_while(|byte| **byte == first).count();
        let one = first.escape_ascii().to_string();
        if run > 4 {
            shown += &format!("{one}*{run}");
        } else {
            shown += &one.repeat(run);
        }
        rest = &rest[run..];
    }
    shown + "\""
}

/// A message of a client.
pub fn to_server(disk: &MemoryDisk, message: &ToServer) -> String {
    match message {
        ToServer::Hello { .. } => "Hello".into(),
        ToServer::Request(request) => asked(disk, request),
        ToServer::Requests(requests) => {
            let all: Vec<String> = requests.iter().map(|one| asked(disk, one)).collect();
            all.join("; ")
        }
        ToServer::Returned(returned) => {
            let Returned {
                epoch, right, upto, ..
            } = returned;
            let known = returned.attr.as_ref();
            let known = known.map(|known| format!(", {}", attr(known)));
            format!(
                "Returned {} @{epoch}: holds {right:?}, none up to @{upto}, {}{}",
                name(disk, returned.fid),
                hold(returned.hold),
                known.unwrap_or_default()
            )
        }
        ToServer::Release {
            fid,
            epoch,
            right,
            hold: held,
        } => format!(
            "Release {} @{epoch}: holds {right:?}, {}",
            name(disk, *fid),
            hold(*held)
        ),
        ToServer::Opens { fid, hold: held } => {
            format!("Opens {}: {}", name(disk, *fid), hold(*held))
        }
        ToServer::Confirmed { request } => format!("Confirmed #{request}"),
        ToServer::Reassert {
            term,
            part,
            again,
            holdings,
            unseen,
            locks,
        } => {
            let of = match part {
                (0, 1) => String::new(),
                (part, parts) => format!(", part {} of {parts}", part + 1),
            };
            let all = reasserted(disk, (holdings, unseen), locks);
            let again = match again {
                0 => String::new(),
                count => format!(", {count} to be made again"),
            };
            format!("Reassert for @{term}{of}: {all}{again}")
        }
        ToServer::KeepAlive { .. } => "KeepAlive".into(),
        ToServer::Goodbye => "Goodbye".into(),
        _ => watching(disk, message),
    }
}

/// A request.
fn asked(disk: &MemoryDisk, request: &Request) -> String {
    let held = match request.op {
        Op::Open { .. } | Op::Make { open: Some(_), .. } => {
            format!(", {}", hold(request.hold))
        }
        _ => String::new(),
    };
    let wishes = match (request.keeps, request.ahead) {
        (true, _) => ", keeps",
        (false, 0) => "",
        (false, _) => ", with bytes",
    };
    let lenders = match request.lenders {
        Lenders::None => "",
        Lenders::Any => ", from anybody",
        Lenders::Passing => ", passing",
        Lenders::Lacking(_) => ", since it was lacking there",
        Lenders::Failing(_) => ", since that has failed",
    };
    let done = match request.delegated {
        Some(delegated) if delegated.unseen => ", done but not seen",
        Some(_) => ", done",
        None => "",
    };
    let after = match request.after {
        0 => String::new(),
        after => format!(", after #{after}"),
    };
    let after = match &request.again {
        None => after,
        Some(again) => format!(", again as record {}", again.place.record),
    };
    let what = op(disk, &request.op);
    format!("#{} {what}{held}{wishes}{lenders}{done}{after}", request.id)
}

/// A message of a client about what it waits for or watches.
fn watching(disk: &MemoryDisk, message: &ToServer) -> String {
    match message {
        ToServer::Watch {
            watch,
            fid,
            recursive,
            next,
        } => {
            let all = if *recursive { " and all below" } else { "" };
            format!("Watch {watch} of {}{all}, next {next}", name(disk, *fid))
        }
        ToServer::Took { watch, next } => format!("Took {watch}, next {next}"),
        ToServer::Lends { addr, .. } if addr.is_empty() => "Lends nothing for now".into(),
        ToServer::Lends { .. } => "Lends".into(),
        ToServer::Leaving { blocks, spare } => {
            let row = |row: &Leaving| {
                let last = row.first + u64::from(row.count) - 1;
                format!(" {} {}-{last}", name(disk, row.fid), row.first)
            };
            let rows: String = blocks.iter().map(row).collect();
            format!("Leaving{rows}, {} free", spare.free)
        }
        ToServer::Unwatch { watch } => format!("Unwatch {watch}"),
        ToServer::PutBack { request } => format!("PutBack #{request}"),
        ToServer::Heard { request } => format!("Heard #{request}"),
        other => format!("{other:?}"),
    }
}

fn reasserted(
    disk: &MemoryDisk,
    (holdings, unseen): (&[Holding], &[Unseen]),
    locks: &[HeldLock],
) -> String {
    let held = holdings.iter().map(|holding| {
        let fid = name(disk, holding.fid);
        format!("{fid} {:?} {}", holding.right, hold(holding.hold))
    });
    let unseen = unseen
        .iter()
        .map(|change| format!("unseen #{}", change.request));
    let locks = locks.iter().map(|held| {
        let fid = name(disk, held.fid);
        format!("{fid} {}", super::lock::lock(&held.lock))
    });
    let all: Vec<String> = held.chain(unseen).chain(locks).collect();
    if all.is_empty() {
        "nothing".to_owned()
    } else {
        all.join(", ")
    }
}

fn welcomed(welcome: &wire::Welcome) -> String {
    let resumed = match welcome.resumed {
        true => "resumed",
        false => "new session",
    };
    let term = match welcome.term {
        term if term == welcome.boot => String::new(),
        term => format!(", term @{term}"),
    };
    format!("Welcome @{}, {resumed}{term}", welcome.boot)
}

/// Objects that a client which was away holds no more.
fn lost(disk: &MemoryDisk, how: &str, fids: &[Fid]) -> String {
    let names: Vec<String> = fids.iter().map(|fid| name(disk, *fid)).collect();
    match names[..] {
        [] => String::new(),
        _ => format!(", {how} {}", names.join(", ")),
    }
}

/// A message of the server.
pub fn to_client(disk: &MemoryDisk, message: &ToClient) -> String {
    match message {
        ToClient::Welcome(welcome) => welcomed(welcome),
        ToClient::Reply { id, reply, .. } => {
            format!(
                "#{id} {}{}{}",
                outcome(disk, &reply.outcome),
                grants(disk, &reply.grants),
                heard(reply.heard)
            )
        }
        ToClient::Recall(Recall { fid, epoch, what }) => {
            let what = match what {
                What::Keep(Right::None) => "keep nothing".into(),
                What::Keep(right) => format!("keep {right:?}"),
                What::Names(names) if names.is_empty() => "drop attributes".into(),
                What::Names(names) => format!("drop names {names:?}"),
                What::Attr => "which attributes?".into(),
                What::Listed => "is listed".into(),
                What::Unused => "is it used?".into(),
                What::Locks => "its locks".into(),
            };
            format!("Recall {} @{epoch}: {what}", name(disk, *fid))
        }
        ToClient::Confirm { request } => format!("Confirm #{request}"),
        ToClient::Alive { .. } => "Alive".into(),
        ToClient::Noted { fid, stamp } => format!("Noted {} ~{stamp}", name(disk, *fid)),
        ToClient::Reasserted {
            term,
            taken,
            unlocked,
            ..
        } => format!(
            "Reasserted @{term}{}{}",
            lost(disk, "taken", taken),
            lost(disk, "unlocked", unlocked)
        ),
        ToClient::Lost => "Lost".into(),
        ToClient::Waited {
            request,
            outcome: end,
        } => format!("Waited #{request}: {}", outcome(disk, end)),
        ToClient::Lend { .. } => "Lend".into(),
        ToClient::Share { .. } => "Share".into(),
        ToClient::Take(handed) => {
            let word = &handed.from.capability;
            let last = word.first + u64::from(word.count) - 1;
            format!("Take {} {}-{last}", name(disk, word.fid), word.first)
        }
        ToClient::Last(rows) => {
            let row = |row: &wire::Last| {
                let last = row.first + u64::from(row.count) - 1;
                format!(" {} {}-{last}", name(disk, row.fid), row.first)
            };
            format!("Last{}", rows.iter().map(row).collect::<String>())
        }
        ToClient::Keep => "Keep".into(),
        ToClient::Watched {
            watch,
            first,
            missed,
            changes: told,
            end,
        } => {
            let told = changes(disk, *missed, told, *end);
            format!("Watched {watch} from {first}: {told}")
        }
    }
}

fn path(path: &Path) -> String {
    match path {
        None => "?".into(),
        Some(path) if path.is_empty() => "itself".into(),
        Some(path) => String::from_utf8_lossy(path).into_owned(),
    }
}

/// The news for a watcher.
pub fn changes(
    disk: &MemoryDisk,
    missed: bool,
    changes: &[Change],
    end: Option<Refusal>,
) -> String {
    let one = |change: &Change| {
        let (fid, at) = (name(disk, change.fid), path(&change.path));
        match &change.deed {
            Deed::Moved { to } => format!("{fid} moved from {at} to {}", path(to)),
            Deed::Exchanged { with } => format!("{fid} moved from {at} to {} and back", path(with)),
            deed => format!("{fid} {deed:?} at {at}"),
        }
    };
    let mut all: Vec<String> = changes.iter().map(one).collect();
    if missed {
        all.insert(0, "some missed".into());
    }
    all.extend(end.map(|why| format!("the end ({why:?})")));
    if all.is_empty() {
        "nothing yet".into()
    } else {
        all.join(", ")
    }
}

fn kept(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::None => "once",
        Lifetime::Forever => "for ever",
    }
}

/// The answer to a call; `bytes` are those of a read.
pub fn done(disk: &MemoryDisk, done: &Done, bytes: &[u8]) -> String {
    match done {
        Done::Refused(refusal) => format!("refused {refusal:?}"),
        Done::Entry {
            fid,
            attr: known,
            name_lifetime,
            attr_lifetime,
            ..
        } => format!(
            "{} {}, name {}, attributes {}",
            name(disk, *fid),
            attr(known),
            kept(*name_lifetime),
            kept(*attr_lifetime)
        ),
        Done::Elsewhere { volume } => format!("volume {volume} of another server"),
        Done::Absent { lifetime } => format!("absent, {}", kept(*lifetime)),
        Done::Attr {
            attr: known,
            lifetime,
        } => format!("{}, {}", attr(known), kept(*lifetime)),
        Done::Opened { cached: true, .. } if !bytes.is_empty() => {
            format!("opened, cached, given {}", String::from_utf8_lossy(bytes))
        }
        Done::Opened { cached: true, .. } => "opened, cached".into(),
        Done::Opened { cached: false, .. } => "opened, direct".into(),
        Done::Read { .. } => text(bytes),
        Done::Written { len } => format!("wrote {len}"),
        Done::Position(at) => format!("at {at}"),
        Done::Listing { start, entries } => {
            let one = |entry: &logic::client::Listed| {
                let known = entry.known.as_ref().map(|(_, lifetime)| kept(*lifetime));
                format!(
                    "{}{}",
                    entry.name,
                    known.map(|k| format!(" ({k})")).unwrap_or_default()
                )
            };
            let names: Vec<String> = entries.iter().map(one).collect();
            let of = match start >> 40 {
                0 => String::new(),
                generation => format!(", listing {generation}"),
            };
            format!("[{}]{of}", names.join(", "))
        }
        Done::Bytes(bytes) => text(bytes),
        Done::Filesystem(_) => "numbers".into(),
        Done::Dump(dump) => format!("{} pieces", dump.chunk.pieces.len()),
        Done::Volumes(all) => {
            let names: Vec<String> = all.iter().map(|info| info.name.to_string()).collect();
            names.join(" ")
        }
        Done::InTheWay(found) => super::lock::in_the_way(found.as_ref()),
        Done::Nothing => "done".into(),
    }
}

/// The notification to the kernel to drop something.
pub fn invalidate(disk: &MemoryDisk, what: &Invalidate) -> String {
    match what {
        Invalidate::Inode { fid, ranges, .. } => {
            let to = |end: u64| {
                if end == u64::MAX {
                    "end".into()
                } else {
                    end.to_string()
                }
            };
            let all: Vec<String> = ranges
                .iter()
                .map(|range| format!("{}..{}", range.0, to(range.1)))
                .collect();
            let pages = if all.is_empty() {
                String::new()
            } else {
                format!(" and pages {}", all.join(" "))
            };
            format!("attributes{pages} of {}", name(disk, *fid))
        }
        Invalidate::Name { dir, name: child } => format!("name {child} in {}", name(disk, *dir)),
        Invalidate::Names { dir } => format!("all names, listing of {}", name(disk, *dir)),
        Invalidate::Expire { dir, names } => {
            format!("validity of {names:?}, listing of {}", name(disk, *dir))
        }
        Invalidate::Sizes { fid } => format!("what it was told of {} of late", name(disk, *fid)),
        Invalidate::Turn { fid } => format!("nothing: it was its turn at {}", name(disk, *fid)),
        Invalidate::Listing { dir } => format!("listing of {}", name(disk, *dir)),
        Invalidate::Unused { fids } => {
            let all: Vec<String> = fids.iter().map(|fid| name(disk, *fid)).collect();
            format!("what is not used of {}", all.join(" "))
        }
    }
}
