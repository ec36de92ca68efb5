//! `ariel volume show`: all that is known of a volume or a snapshot, with its replicas.

use super::connect::connect_to;
use super::names::size_text;
use super::release::release_number;
use super::volume::{json as volume_json, local, say, state, told};
use crate::args::{AtArgs, OneArgs, ShowArgs};
use crate::failure::Failure;
use crate::servers::{self, One, ask_about, volume_elsewhere};
use crate::{at_once, trust};
use cell::{Replicas, Site, StoreAnswer, StoreQuestion};
use serde_json::{Value, json};
use std::process::ExitCode;
use wire::{Name, Receiving, ScheduleRule, VolumeInfo, VolumeState, split_volume_name};

const WHAT: &str = "volume show";

pub(super) fn show(args: &ShowArgs) -> Result<ExitCode, Failure> {
    let OneArgs { at, name } = &args.one;
    let tree = connect_to(&at.trust, &at.server, name)?;
    let text = name.to_string();
    let all = tree.volumes().map_err(|error| told(&text, &error))?;
    tree.close().map_err(|error| Failure::of(&text, error))?;
    let named = all.iter().filter(|info| info.name == *name);
    let Some(info) = named.min_by_key(|info| info.state != VolumeState::Present) else {
        let missing = "there is no such volume: see `ariel volume list`";
        return Err(Failure::of(&text, missing));
    };
    let replicas = replicas(at, info);
    match args.json {
        true => say(&format!("{:#}\n", as_json(info, &all, &replicas))),
        false => say(&(lines(info, &all) + &replica_lines(&replicas))),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// The snapshots that a volume has.
fn snapshots<'a>(
    info: &'a VolumeInfo,
    all: &'a [VolumeInfo],
) -> impl Iterator<Item = &'a VolumeInfo> {
    let is_there = |other: &&VolumeInfo| !matches!(other.state, VolumeState::Deleted(_));
    let own = |other: &&VolumeInfo| other.snapshot_of == Some(info.id);
    all.iter().filter(own).filter(is_there)
}

/// All that is known but replicas: what `volume list --json` says, and more.
fn as_json(
    info: &VolumeInfo,
    all: &[VolumeInfo],
    replicas: &Result<Option<Asked>, String>,
) -> Value {
    let mut shown = volume_json(info, all);
    let names = snapshots(info, all).map(|one| json!(one.name.to_string()));
    shown["snapshots"] = names.collect();
    let receiving = half(info, all);
    shown["received_parts"] = json!(receiving.map(|half| half.chunks));
    let token = receiving.and_then(stream::Token::of);
    shown["resume"] = json!(token.map(|token| token.to_string()));
    shown["replicas"] = replicas_json(replicas);
    shown
}

fn lines(info: &VolumeInfo, all: &[VolumeInfo]) -> String {
    let mut lines = format!(
        "name:      {}\nnumber:    {}\nobjects:   {}\nbytes:     {} ({})\nmade:      {}\n",
        info.name,
        info.id,
        info.objects,
        info.bytes,
        size_text(info.bytes),
        local(info.made),
    );
    let state = state(info, all);
    if !state.is_empty() {
        lines.push_str(&format!("state:     {state}\n"));
    }
    if info.limits.bytes > 0 {
        let (quota, used) = (info.limits.bytes, info.bytes);
        let text = format!(
            "{quota} ({}), {} % used",
            size_text(quota),
            share(used, quota)
        );
        lines.push_str(&format!("quota:     {text}\n"));
    }
    if info.limits.objects > 0 {
        let (most, used) = (info.limits.objects, info.objects);
        let text = format!("{most} objects, {} % used", share(used, most));
        lines.push_str(&format!("quota:     {text}\n"));
    }
    for rule in &info.schedule {
        lines.push_str(&format!("schedule:  {}\n", rule_text(rule)));
    }
    for snapshot in snapshots(info, all) {
        lines.push_str(&format!("snapshot:  {}\n", snapshot.name));
    }
    lines.push_str(&received(info, all));
    lines
}

/// Parts of a hundred, of a number above 0.
fn share(used: u64, most: u64) -> u64 {
    (u128::from(used) * 100 / u128::from(most.max(1))) as u64
}

/// The half of a volume or snapshot that is being received.
fn half<'a>(info: &VolumeInfo, all: &'a [VolumeInfo]) -> Option<&'a Receiving> {
    let of = |half: &&VolumeInfo| half.id == info.id || half.snapshot_of == Some(info.id);
    let mut halves = all.iter().filter(of);
    halves.find_map(|half| half.provenance.receiving.as_ref())
}

/// The parts received of a snapshot that is not complete, and the token to go on with.
fn received(info: &VolumeInfo, all: &[VolumeInfo]) -> String {
    let Some(receiving) = half(info, all) else {
        return String::new();
    };
    let (parts, of) = (receiving.chunks, &receiving.head.name);
    let mut text = format!("receiving: {parts} parts of @{of}\n");
    if let Some(token) = stream::Token::of(receiving) {
        text.push_str(&format!("resume:    {token}\n"));
    }
    text
}

/// A rule of a schedule, for people.
fn rule_text(rule: &ScheduleRule) -> String {
    let every = match rule.every_s {
        60 => "minute".to_owned(),
        3600 => "hour".to_owned(),
        86_400 => "day".to_owned(),
        604_800 => "week".to_owned(),
        s if s % 86_400 == 0 => format!("{}d", s / 86_400),
        s if s % 3600 == 0 => format!("{}h", s / 3600),
        s if s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    };
    format!("every {every}, keep {}", rule.keep)
}

/// The replicas of a volume, as the cell's database says; none where there is no cell.
fn record(at: &AtArgs, volume: u32) -> Result<Option<Replicas>, String> {
    let trusted = trust::server(WHAT, &at.server, &at.trust);
    let Some(dir) = trusted.map_err(|error| error.to_string())?.1 else {
        return Ok(None);
    };
    match ask_about((&at.server, &dir), StoreQuestion::Replicas { volume })? {
        StoreAnswer::Replicas(record) => Ok(record),
        _ => Err(cell::AskError::Strange.to_string()),
    }
}

/// The volume has no replicas, which would stay when it is deleted or renamed; of the snapshots of
/// its releases, only servers that are behind need older ones than the last.
pub(super) fn has_no_replicas(at: &AtArgs, name: &Name) -> Result<(), Failure> {
    let (volume, snapshot) = split_volume_name(name);
    let release = snapshot.map(release_number);
    let Some(volume) = Name::new(volume).ok().filter(|_| release != Some(None)) else {
        return Ok(());
    };
    // Where nobody can tell, replicas that stay behind do no harm.
    let found = volume_elsewhere(WHAT, &at.server, (&at.trust, &volume));
    let present = found.ok().flatten().map(|(_, info)| info);
    let present = present.filter(|info| info.state == VolumeState::Present);
    let record = present.and_then(|info| record(at, info.id).ok().flatten());
    let Some(record) = record else {
        return Ok(());
    };
    let servers = record.servers.join(",");
    let text = match release.flatten() {
        Some(release) if release < record.release => return Ok(()),
        Some(_) => {
            "it is the snapshot of the last release: the next one needs it, or removes it".into()
        }
        None => format!(
            "it has replicas, which `ariel volume replicate {} {name} --not-on {servers}` takes \
             away",
            at.server
        ),
    };
    Err(Failure::of(&name.to_string(), text))
}

/// The replicas of a volume: their record, and what each of its servers says of its own.
struct Asked {
    record: Replicas,
    sites: Vec<Result<Site, String>>,
}

/// Asks about the replicas of a volume; `None`: it has none.
fn replicas(at: &AtArgs, info: &VolumeInfo) -> Result<Option<Asked>, String> {
    let Some(record) = record(at, info.id)? else {
        return Ok(None);
    };
    let running = servers::running(WHAT, &at.server, &at.trust).unwrap_or_default();
    let dir = running.trust.credentials.clone().unwrap_or_default();
    let of = |name: &String| {
        running
            .servers
            .iter()
            .find(|one| one.name == *name)
            .cloned()
    };
    let asked: Vec<Option<One>> = record.servers.iter().map(of).collect();
    let first_volume = record.first_volume;
    let answers = at_once::ask(asked, move |one: Option<One>| {
        let one = one.ok_or("it does not run")?;
        match ask_about((&one.addresses, &dir), StoreQuestion::Site { first_volume })? {
            StoreAnswer::Site(site) => Ok(site),
            _ => Err(cell::AskError::Strange.to_string()),
        }
    });
    let silent = || Err("it does not answer".to_owned());
    let mut sites: Vec<_> = record.servers.iter().map(|_| silent()).collect();
    for (place, answer) in answers {
        sites[place] = answer;
    }
    Ok(Some(Asked { record, sites }))
}

/// A line for each server that has a replica.
fn replica_lines(asked: &Result<Option<Asked>, String>) -> String {
    let asked = match asked {
        Ok(None) => return String::new(),
        Ok(Some(asked)) => asked,
        Err(why) => return format!("replicas:  not known: {why}\n"),
    };
    let Asked { record, sites } = asked;
    let width = record.servers.iter().map(String::len).max().unwrap_or(0);
    let lines = record.servers.iter().zip(sites).map(|(server, site)| {
        let text = match site {
            Ok(site) => site_text(site, record.release),
            Err(why) => format!("not known: {why}"),
        };
        format!("replica:   {server:width$}  {text}\n")
    });
    lines.collect()
}

/// The same as JSON; null: there are none.
fn replicas_json(asked: &Result<Option<Asked>, String>) -> Value {
    let asked = match asked {
        Ok(None) => return Value::Null,
        Ok(Some(asked)) => asked,
        Err(why) => return json!({ "error": why }),
    };
    let sites = asked.record.servers.iter().zip(&asked.sites);
    let sites = sites.map(|(server, site)| match site {
        Ok(site) => json!({
            "server": server,
            "release": site.published,
            "made_ns": site.made,
            "prepared": site.prepared,
        }),
        Err(why) => json!({ "server": server, "error": why }),
    });
    json!({ "release": asked.record.release, "servers": sites.collect::<Value>() })
}

/// A replica, for people.
fn site_text(site: &Site, made: u32) -> String {
    let published = match (site.published, site.made) {
        (0, _) => "no release yet".to_owned(),
        (release, Some(at)) => format!("release {release}, {}", local(at)),
        (release, None) => format!("release {release}"),
    };
    match site.published < made {
        true => format!("{published}, behind: the last one is {made}"),
        false => published,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_is_behind_is_told() {
        let site = |published| Site {
            published,
            made: None,
            prepared: None,
        };
        assert_eq!(site_text(&site(0), 0), "no release yet");
        assert_eq!(site_text(&site(7), 7), "release 7");
        assert_eq!(
            site_text(&site(6), 7),
            "release 6, behind: the last one is 7"
        );
    }

    #[test]
    fn replicas_are_told_as_json_with_those_that_say_nothing() {
        let record = Replicas::first("data", 7, "one");
        let silent = Asked {
            record: record.clone(),
            sites: vec![Err("it does not run".to_owned())],
        };
        let told = replicas_json(&Ok(Some(silent)));
        assert_eq!(told["servers"][0]["server"], "one");
        assert_eq!(told["servers"][0]["error"], "it does not run");
        let site = Site {
            published: 3,
            made: Some(5),
            prepared: None,
        };
        let sites = vec![Ok(site)];
        let told = replicas_json(&Ok(Some(Asked { record, sites })));
        assert_eq!(told["release"], 0);
        assert_eq!(told["servers"][0]["release"], 3);
        assert_eq!(replicas_json(&Ok(None)), Value::Null);
        assert_eq!(replicas_json(&Err("why".into()))["error"], "why");
    }
}
