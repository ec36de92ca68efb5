//! `ariel volume show`: all that is known of a volume or a snapshot, with its replicas.

use super::connect::connect_to;
use super::names::size_text;
use super::release::release_number;
use super::volume::{local, say, state, told};
use crate::args::{AtArgs, OneArgs};
use crate::failure::Failure;
use crate::servers::{self, One, ask_about, volume_elsewhere};
use crate::{at_once, trust};
use cell::{Replicas, Site, StoreAnswer, StoreQuestion};
use std::process::ExitCode;
use wire::{Name, ScheduleRule, VolumeInfo, VolumeState, split_volume_name};

const WHAT: &str = "volume show";

pub(super) fn show(args: &OneArgs) -> Result<ExitCode, Failure> {
    let tree = connect_to(&args.at.trust, &args.at.server, &args.name)?;
    let text = args.name.to_string();
    let all = tree.volumes().map_err(|error| told(&text, &error))?;
    tree.close().map_err(|error| Failure::of(&text, error))?;
    let named = all.iter().filter(|info| info.name == args.name);
    let Some(info) = named.min_by_key(|info| info.state != VolumeState::Present) else {
        let missing = "there is no such volume: see `ariel volume list`";
        return Err(Failure::of(&text, missing));
    };
    let mut lines = format!(
        "name:      {}\nnumber:    {}\nobjects:   {}\nbytes:     {} ({})\nmade:      {}\n",
        info.name,
        info.id,
        info.objects,
        info.bytes,
        size_text(info.bytes),
        local(info.made),
    );
    let state = state(info, &all);
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
    for snapshot in all
        .iter()
        .filter(|other| other.snapshot_of == Some(info.id))
    {
        lines.push_str(&format!("snapshot:  {}\n", snapshot.name));
    }
    lines.push_str(&received(info, &all));
    lines.push_str(&replicas(&args.at, info));
    say(&lines).map(|()| ExitCode::SUCCESS)
}

/// Parts of a hundred, of a number above 0.
fn share(used: u64, most: u64) -> u64 {
    (u128::from(used) * 100 / u128::from(most.max(1))) as u64
}

/// The parts received of a snapshot that is not complete, and the token to go on with.
fn received(info: &VolumeInfo, all: &[VolumeInfo]) -> String {
    let of = |half: &&VolumeInfo| half.id == info.id || half.snapshot_of == Some(info.id);
    let mut halves = all.iter().filter(of);
    let half = halves.find_map(|half| half.provenance.receiving.as_ref());
    let Some(receiving) = half else {
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

/// A line for each server that has a replica.
fn replicas(at: &AtArgs, info: &VolumeInfo) -> String {
    let record = match record(at, info.id) {
        Ok(None) => return String::new(),
        Ok(Some(record)) => record,
        Err(why) => return format!("replicas:  not known: {why}\n"),
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
    let mut sites: Vec<Option<Result<Site, String>>> = vec![None; record.servers.len()];
    for (place, answer) in answers {
        sites[place] = Some(answer);
    }
    let width = record.servers.iter().map(String::len).max().unwrap_or(0);
    let lines = record.servers.iter().zip(sites).map(|(server, site)| {
        let text = match site {
            Some(Ok(site)) => site_text(&site, record.release),
            Some(Err(why)) => format!("not known: {why}"),
            None => "not known".to_owned(),
        };
        format!("replica:   {server:width$}  {text}\n")
    });
    lines.collect()
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
}
