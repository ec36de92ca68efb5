//! `ariel volume`: the volumes of a server, their snapshots and clones.
//!
//! Guarantees: when a command ends with 0 the change is on the server's disk.

use super::connect::{connect, connect_to, connect_to_store, is_free};
use super::names::{size_text, time_text};
use super::release::release_number;
use crate::args::{
    BranchArgs, CreateArgs, LimitArgs, OneArgs, ScheduleArgs, SetArgs, TrustArgs, VolumeArgs,
    VolumeCommand, VolumeListArgs,
};
use crate::failure::{FAILED, Failure, NOT_RUN};
use crate::releases;
use crate::servers::{self, Found, Running};
use files::{Error, Tree};
use net::Addresses;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;
use wire::{
    Limits, Name, REPLICA_SUFFIX, SCHEDULE_RULES, ScheduleRule, StoreOf, Time, VolumeInfo,
    VolumeOp, VolumeState, file_time, is_replica_name, split_volume_name, volume_numbers,
};

pub(crate) fn volume(args: &VolumeArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        VolumeCommand::List(args) => list(args),
        VolumeCommand::Show(args) => super::show::show(args),
        VolumeCommand::Create(args) => create(args),
        VolumeCommand::Snapshot(args) => snapshot(args),
        VolumeCommand::Clone(args) => volume_of(args, |of, name| VolumeOp::Clone { of, name }),
        VolumeCommand::Rename(args) => rename(args),
        VolumeCommand::Delete(args) => delete(args),
        VolumeCommand::Undelete(args) => one(args, |of| VolumeOp::Undelete { of }),
        VolumeCommand::Purge(args) => purge(args),
        VolumeCommand::Schedule(args) => schedule(args),
        VolumeCommand::Set(args) => set(args),
        VolumeCommand::Move(args) => super::moving::move_volume(args),
        VolumeCommand::Balance(args) => super::balance::balance(args),
        VolumeCommand::Replicate(args) => super::replicate::replicate(args),
        VolumeCommand::Mount(args) => super::mounts::mount(args),
        VolumeCommand::Unmount(args) => super::mounts::unmount(args),
        VolumeCommand::Send(args) => super::send::send(args),
        VolumeCommand::Receive(args) => super::receive::receive(args),
        VolumeCommand::Release(args) => super::release::release(args),
    }
}

fn branch(args: &BranchArgs, op: impl Fn(Name, Name) -> VolumeOp) -> Result<ExitCode, Failure> {
    let op = op(args.source.clone(), args.name.clone());
    change((&args.at.trust, &args.at.server), &args.source, op)
}

/// No snapshot is given the name of a release by a user: releases make and remove those.
fn is_no_release(snapshot: Option<&[u8]>) -> Result<(), Failure> {
    let Some(snapshot) = snapshot.filter(|snapshot| release_number(snapshot).is_some()) else {
        return Ok(());
    };
    Err(Failure::of(
        &String::from_utf8_lossy(snapshot),
        "snapshots that `ariel volume release` makes are called so: choose another name",
    ))
}

fn snapshot(args: &BranchArgs) -> Result<ExitCode, Failure> {
    is_no_release(Some(args.name.as_bytes()))?;
    branch(args, |of, name| VolumeOp::Snapshot { of, name })
}

/// The same, where the new name is that of a volume, unless it is a snapshot's.
fn volume_of(args: &BranchArgs, op: impl Fn(Name, Name) -> VolumeOp) -> Result<ExitCode, Failure> {
    if split_volume_name(&args.name).1.is_none() {
        is_free(&args.at.trust, &args.at.server, &args.name)?;
    }
    branch(args, op)
}

/// Deletes a volume that has no replicas, or a snapshot.
fn delete(args: &OneArgs) -> Result<ExitCode, Failure> {
    super::show::has_no_replicas(&args.at, &args.name)?;
    one(args, |of| VolumeOp::Delete { of })
}

/// Renames a volume that has no replicas, which are called after it, or a snapshot.
fn rename(args: &BranchArgs) -> Result<ExitCode, Failure> {
    super::show::has_no_replicas(&args.at, &args.source)?;
    is_no_release(split_volume_name(&args.name).1)?;
    volume_of(args, |of, name| VolumeOp::Rename { of, name })
}

fn one(args: &OneArgs, op: impl Fn(Name) -> VolumeOp) -> Result<ExitCode, Failure> {
    change(
        (&args.at.trust, &args.at.server),
        &args.name,
        op(args.name.clone()),
    )
}

/// Changes something, and waits until it is on the disk.
fn change(
    (trust, server): (&TrustArgs, &Addresses),
    name: &Name,
    op: VolumeOp,
) -> Result<ExitCode, Failure> {
    change_all(connect_to(trust, server, name)?, name, [op])
}

/// The same of several changes, one after the other.
fn change_all(
    tree: Tree,
    name: &Name,
    ops: impl IntoIterator<Item = VolumeOp>,
) -> Result<ExitCode, Failure> {
    let text = name.to_string();
    let mut info = None;
    is_no_replica(&tree, name)?;
    for op in ops {
        let snapshot = snapshot_made(&op);
        let done = tree.change_volume(&text, op);
        info = done.map_err(|error| match (is_taken(&error), snapshot) {
            (true, Some(snapshot)) => Failure::of(&snapshot, SNAPSHOT_TAKEN),
            _ => told(&text, &error),
        })?;
    }
    end(tree)?;
    if let Some(info) = info {
        say(&format!("{}\n", info.name))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The store is no replica's: nothing is changed there but by releases.
fn is_no_replica(tree: &Tree, name: &Name) -> Result<(), Failure> {
    if !is_replica_name(name.as_bytes()) {
        return Ok(());
    }
    let text = name.to_string();
    let all = tree.volumes().map_err(|error| told(&text, &error))?;
    match all.iter().any(VolumeInfo::is_replica) {
        false => Ok(()),
        true => Err(Failure::of(
            &text,
            "it is a replica, which `ariel volume release` of its volume changes, and nothing \
             else: make snapshots and clones of the volume",
        )),
    }
}

/// The server has everything, on its disk.
pub(super) fn end(tree: Tree) -> Result<(), Failure> {
    let synced = tree.sync("/");
    synced.map_err(|error| Failure::of("volume", error))?;
    tree.close().map_err(|error| Failure::of("volume", error))
}

fn create(args: &CreateArgs) -> Result<ExitCode, Failure> {
    let (name, mode) = (args.name.clone(), args.mode as u16);
    let made = VolumeOp::Create { name, mode };
    let (of, limits) = (args.name.clone(), changed(Limits::default(), &args.limits));
    let limited = (!limits.is_none()).then_some(VolumeOp::Limit { of, limits });
    is_free(&args.at.trust, &args.at.server, &args.name)?;
    let (trust, server) = (&args.at.trust, &args.at.server);
    let tree = match args.own_store {
        false => connect(trust, server)?,
        true => {
            let store = servers::make_store("volume create", server, trust)?;
            connect_to_store(trust, server, StoreOf::Number(store))?
        }
    };
    change_all(tree, &args.name, [made].into_iter().chain(limited))
}

/// Limits of which some are said anew.
fn changed(old: Limits, args: &LimitArgs) -> Limits {
    Limits {
        bytes: args.quota.unwrap_or(old.bytes),
        objects: args.objects.unwrap_or(old.objects),
    }
}

fn set(args: &SetArgs) -> Result<ExitCode, Failure> {
    if args.limits.quota.is_none() && args.limits.objects.is_none() {
        let text = "volume set: say --quota SIZE, --objects N, or both";
        return Err(Failure::new(NOT_RUN, text.to_owned()));
    }
    let tree = connect_to(&args.at.trust, &args.at.server, &args.name)?;
    let text = args.name.to_string();
    let all = tree.volumes().map_err(|error| told(&text, &error))?;
    let here = |info: &&VolumeInfo| info.name == args.name && info.state == VolumeState::Present;
    let known = all.iter().find(here).map(|info| info.limits);
    let limits = changed(known.unwrap_or_default(), &args.limits);
    let of = args.name.clone();
    change_all(tree, &args.name, [VolumeOp::Limit { of, limits }])
}

/// Most snapshots that the schedule of one volume keeps, so that others have room beside them.
const KEPT_MAX: u32 = 1000;

fn schedule(args: &ScheduleArgs) -> Result<ExitCode, Failure> {
    let wrong = |text: &str| Err(Failure::new(NOT_RUN, format!("volume: {text}")));
    if args.every.len() != args.keep.len() {
        return wrong("each --every needs its --keep N: how many of these snapshots are kept");
    }
    let distinct: BTreeSet<u32> = args.every.iter().copied().collect();
    if distinct.len() < args.every.len() {
        return wrong("a period is named twice: one --every and --keep for each");
    }
    if args.every.len() > SCHEDULE_RULES {
        return wrong(&format!("a schedule has {SCHEDULE_RULES} periods at most"));
    }
    if args.keep.iter().map(|keep| u32::from(*keep)).sum::<u32>() > KEPT_MAX {
        return wrong(&format!(
            "a schedule keeps {KEPT_MAX} snapshots at most: lower --keep"
        ));
    }
    let pairs = args.every.iter().zip(&args.keep);
    let rules = pairs.map(|(&every_s, &keep)| ScheduleRule { every_s, keep });
    let (of, rules) = (args.name.clone(), rules.collect());
    let op = VolumeOp::Schedule { of, rules };
    change((&args.at.trust, &args.at.server), &args.name, op)
}

fn purge(args: &OneArgs) -> Result<ExitCode, Failure> {
    let tree = connect_to(&args.at.trust, &args.at.server, &args.name)?;
    let text = args.name.to_string();
    let all = tree.volumes().map_err(|error| told(&text, &error))?;
    let deleted = all.iter().filter_map(|info| match info.state {
        VolumeState::Deleted(at) if info.name == args.name => Some((at, info.id)),
        _ => None,
    });
    let Some((_, volume)) = deleted.max() else {
        let there = all.iter().any(|info| info.name == args.name);
        return Err(Failure::of(
            &text,
            match there {
                true => "it is not deleted: `ariel volume delete` comes first",
                false => "no volume of this name was deleted: see `ariel volume list`",
            },
        ));
    };
    let done = tree.change_volume(&text, VolumeOp::Purge { volume });
    done.map_err(|error| told(&text, &error))?;
    end(tree)?;
    Ok(ExitCode::SUCCESS)
}

const SNAPSHOT_TAKEN: &str = "the volume has a snapshot of this name, and a snapshot never \
     changes: choose another name, or take that one away first with `ariel volume delete`";

/// The whole name of the snapshot that an operation makes, or gives another name.
fn snapshot_made(op: &VolumeOp) -> Option<String> {
    match op {
        VolumeOp::Snapshot { of, name } => Some(format!("{of}@{name}")),
        VolumeOp::Rename { name, .. } => {
            let whole = split_volume_name(name).1.is_some();
            whole.then(|| name.to_string())
        }
        _ => None,
    }
}

fn is_taken(error: &Error) -> bool {
    let number = Errno::from_raw_os_error(error.raw_os_error());
    matches!(error, Error::Refused { .. }) && number == Errno::EXIST
}

/// The error, and its cure.
pub(super) fn told(name: &str, error: &Error) -> Failure {
    let number = Errno::from_raw_os_error(error.raw_os_error());
    let text = match (error, number) {
        (Error::Refused { .. }, Errno::NOENT) => {
            "there is no such volume: see `ariel volume list`".to_owned()
        }
        (Error::Refused { .. }, Errno::EXIST) => {
            "the name is taken: choose another one, or rename what has it".to_owned()
        }
        (Error::Refused { .. }, Errno::PERM) => {
            "only root may do this, and root of a machine without `--root` is not (`ariel machine \
             grant NAME --root` makes it); and the first volume stays and keeps its name"
                .to_owned()
        }
        (Error::Refused { .. }, Errno::XDEV) => {
            "a snapshot stays one of its volume: keep what is before the `@`".to_owned()
        }
        (Error::Refused { .. }, Errno::INVAL) => {
            "not a name for this: a volume has no `@` in its name, and a snapshot is \
             VOLUME@SNAPSHOT"
                .to_owned()
        }
        (Error::Refused { .. }, Errno::NOSPC) => {
            "the server's disk is full, or it has as many volumes as it may have: delete and \
             purge some"
                .to_owned()
        }
        (Error::Refused { .. }, Errno::MLINK) => {
            "it is a clone of a clone of ... 64 deep: copy its files into a new volume".to_owned()
        }
        _ => error.reason(),
    };
    Failure::of(name, text)
}

fn list(args: &VolumeListArgs) -> Result<ExitCode, Failure> {
    let (server, trust) = (&args.at.server, &args.at.trust);
    let all = match args.all {
        true => servers::running("volume", server, trust)?,
        false => Running::default(),
    };
    let of_several = !all.servers.is_empty();
    let (asked, trust) = match of_several {
        true => {
            let servers = all.servers.into_iter();
            (
                servers.map(|one| (one.name, one.addresses)).collect(),
                &all.trust,
            )
        }
        false => (vec![(server.to_string(), server.clone())], trust),
    };
    let look = |one| servers::look("volume", one, trust);
    let mut found: Vec<Found> = asked.into_iter().map(look).collect();
    for found in &mut found {
        let by_name = |a: &VolumeInfo, b: &VolumeInfo| a.name.cmp(&b.name).then(a.id.cmp(&b.id));
        let volumes = found.volumes.as_mut().ok();
        volumes.into_iter().for_each(|all| all.sort_by(by_name));
    }
    let text = match args.json {
        true => json_lines(&found, of_several),
        false => table(&found, of_several),
    };
    say(&text)?;
    let mut code = ExitCode::SUCCESS;
    for found in &found {
        if let Err(why) = &found.volumes {
            // Where standard error is gone, there is nobody to tell.
            let _ = writeln!(io::stderr(), "ariel: volume: {}: {why}", found.server);
            code = ExitCode::from(FAILED);
        }
    }
    Ok(code)
}

/// A server's name, a volume of it, and all that it has.
type Row<'a> = (&'a str, &'a VolumeInfo, &'a [VolumeInfo]);

/// All volumes of servers.
fn rows(found: &[Found]) -> impl Iterator<Item = Row<'_>> {
    found.iter().flat_map(|found| {
        let all = found.volumes.as_deref().unwrap_or_default();
        all.iter()
            .map(move |info| (found.server.as_str(), info, all))
    })
}

fn json_lines(found: &[Found], of_several: bool) -> String {
    let lines = rows(found).map(|(server, info, all)| {
        let mut line = json(info, all);
        if of_several {
            line["server"] = server.into();
        }
        format!("{line}\n")
    });
    lines.collect()
}

fn table(found: &[Found], of_several: bool) -> String {
    let column = |title: &str, text: &dyn Fn(Row<'_>) -> usize| {
        let widths = rows(found).map(text).max();
        widths.unwrap_or(0).max(title.len())
    };
    let width = column("NAME", &|(_, info, _)| info.name.to_string().len());
    let of_server = column("SERVER", &|(server, _, _)| server.len());
    let mut text = format!(
        "{:width$}  {:>10}  {:>10}  {:>12}  {:>12}  {:19}  STATE\n",
        "NAME", "BYTES", "QUOTA", "OBJECTS", "MOST", "MADE"
    );
    if of_several {
        text = format!("{:of_server$}  {text}", "SERVER");
    }
    for (server, info, all) in rows(found) {
        let name = info.name.to_string();
        let (size, made) = (size_text(info.bytes), local(info.made));
        let (objects, state) = (info.objects, state(info, all));
        let quota = limit_text(info.limits.bytes, size_text);
        let most = limit_text(info.limits.objects, |objects| objects.to_string());
        let line = format!(
            "{name:width$}  {size:>10}  {quota:>10}  {objects:>12}  {most:>12}  {made:19}  {state}"
        );
        if of_several {
            text.push_str(&format!("{server:of_server$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A limit, if there is one.
fn limit_text(limit: u64, text: impl Fn(u64) -> String) -> String {
    match limit {
        0 => "-".to_owned(),
        limit => text(limit),
    }
}

pub(super) fn local(time: Time) -> String {
    time_text(file_time::parts(time), "%Y-%m-%d %H:%M:%S")
}

fn name_of(id: u32, all: &[VolumeInfo]) -> String {
    let found = all.iter().find(|info| info.id == id);
    found.map_or_else(
        || "a purged volume".to_owned(),
        |info| info.name.to_string(),
    )
}

/// The number of the first volume of a replica's store; `None`: it is no replica.
fn replica(info: &VolumeInfo) -> Option<u32> {
    volume_numbers::first_beside(info.id).filter(|_| info.is_replica())
}

/// The name of the volume of which this is the name of a replica.
fn of_replica(name: &Name) -> String {
    let text = name.to_string();
    let volume = text.split('@').next().unwrap_or_default();
    let suffix = String::from_utf8_lossy(REPLICA_SUFFIX);
    volume.strip_suffix(&*suffix).unwrap_or(volume).to_owned()
}

pub(super) fn state(info: &VolumeInfo, all: &[VolumeInfo]) -> String {
    let mut words = Vec::new();
    if let Some(first_volume) = replica(info) {
        let published = releases::site(all, first_volume).published;
        words.push(format!(
            "replica of {}, release {published}",
            of_replica(&info.name)
        ));
    }
    if info.snapshot_of.is_some() {
        words.push("snapshot".to_owned());
    }
    if let Some(origin) = info.cloned_from {
        words.push(format!("clone of {}", name_of(origin, all)));
    }
    match info.state {
        VolumeState::Present => {}
        VolumeState::Deleted(at) => words.push(format!("deleted {}", local(at))),
        VolumeState::Receiving => words.push("being received".to_owned()),
    }
    words.join(", ")
}

pub(super) fn json(info: &VolumeInfo, all: &[VolumeInfo]) -> serde_json::Value {
    let deleted = match info.state {
        VolumeState::Present | VolumeState::Receiving => None,
        VolumeState::Deleted(at) => Some(at),
    };
    serde_json::json!({
        "name": info.name.to_string(),
        "id": info.id,
        "snapshot": info.snapshot_of.is_some(),
        "cloned_from": info.cloned_from.map(|origin| name_of(origin, all)),
        "made_ns": info.made,
        "deleted_ns": deleted,
        "receiving": info.state == VolumeState::Receiving,
        "objects": info.objects,
        "bytes": info.bytes,
        "quota_bytes": (info.limits.bytes > 0).then_some(info.limits.bytes),
        "quota_objects": (info.limits.objects > 0).then_some(info.limits.objects),
        "schedule": info.schedule.iter().map(|rule| {
            serde_json::json!({"every_s": rule.every_s, "keep": rule.keep})
        }).collect::<Vec<_>>(),
    })
}

pub(super) fn say(text: &str) -> Result<(), Failure> {
    let written = io::stdout().write_all(text.as_bytes());
    written.map_err(|error| Failure::of("standard output", error))
}
