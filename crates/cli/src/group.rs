//! `ariel group`: groups of the cell, which users make and own.
//!
//! A user asks the daemon of a mount, which learns from the kernel who he is; an administrator asks
//! with a credential.

use crate::args::{GroupArgs, GroupCommand, GroupHoldArgs, GroupMembersArgs, GroupWayArgs};
use crate::failure::Failure;
use crate::known::{self, Known};
use crate::{apart, login, membership, show};
use cell::{Answer, Group, GroupDeed, Member, Question};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn group(command: &GroupCommand) -> Result<ExitCode, Failure> {
    match command {
        GroupCommand::Create(args) => {
            let name = args.name.clone();
            done("group create", &args.way, &GroupDeed::Create { name })?;
        }
        GroupCommand::Delete(args) => {
            let name = args.name.clone();
            done("group delete", &args.way, &GroupDeed::Delete { name })?;
        }
        GroupCommand::Add(args) => change("group add", args, true)?,
        GroupCommand::Remove(args) => change("group remove", args, false)?,
        GroupCommand::Show(args) => shown(&args.group, args.json)?,
        GroupCommand::List(args) => {
            let groups = all("group list", &args.way)?;
            let users = users(&args.way);
            let line = |group: &Group| as_json(&users, &groups, group);
            show::print(&match args.json {
                true => format!("{:#}", groups.iter().map(line).collect::<Value>()),
                false => table(&users, &groups),
            });
        }
        GroupCommand::Rename(args) => {
            let (name, to) = (args.group.name.clone(), args.to.clone());
            done(
                "group rename",
                &args.group.way,
                &GroupDeed::Rename { name, to },
            )?;
        }
        GroupCommand::Chown(args) => {
            let (name, to) = (args.group.name.clone(), args.to.clone());
            let uid = known::of_machine().get(&to).copied();
            let deed = GroupDeed::Chown { name, to, uid };
            done("group chown", &args.group.way, &deed)?;
        }
        GroupCommand::Disable(args) => hold("group disable", args, false)?,
        GroupCommand::Enable(args) => hold("group enable", args, true)?,
        GroupCommand::Without(args) => return apart::without(args),
    }
    Ok(ExitCode::SUCCESS)
}

/// Does an administrator ask?
fn is_administrators(way: &GroupWayArgs) -> bool {
    way.admin.data.is_some() || way.admin.credentials.is_some()
}

/// Asks the cell: through a mount, or as an administrator where one was named.
fn ask(what: &str, way: &GroupWayArgs, deed: &GroupDeed) -> Result<Vec<Group>, Failure> {
    let strange = || Failure::of(what, cell::AskError::Strange);
    if is_administrators(way) {
        let (uid, mount, deed) = (0, None, deed.clone());
        let question = Question::Groups { uid, mount, deed };
        return match membership::ask(what, &way.admin, &question)?.1 {
            Answer::Groups(groups) => Ok(groups),
            Answer::Ok => Ok(Vec::new()),
            _ => Err(strange()),
        };
    }
    through(way.mount.as_deref(), deed)
        .map_err(|error| Failure::of(what, format_args!("{error:#}")))
}

/// Asks the daemon of a mount.
pub(crate) fn through(mount: Option<&Path>, deed: &GroupDeed) -> anyhow::Result<Vec<Group>> {
    let answer = login::ask(mount, &json!({ "ask": "groups", "deed": deed }))?;
    Ok(serde_json::from_value(answer["groups"].clone()).unwrap_or_default())
}

/// The groups of the cell of a mount; none, where it has no cell.
pub(crate) fn of_mount(mount: &Path) -> Vec<Group> {
    through(Some(mount), &GroupDeed::List).unwrap_or_default()
}

fn all(what: &'static str, way: &GroupWayArgs) -> Result<Vec<Group>, Failure> {
    ask(what, way, &GroupDeed::List)
}

fn done(what: &'static str, way: &GroupWayArgs, deed: &GroupDeed) -> Result<(), Failure> {
    ask(what, way, deed).map(drop)
}

fn change(what: &'static str, args: &GroupMembersArgs, add: bool) -> Result<(), Failure> {
    let users = known::of_machine();
    let mut failed = Vec::new();
    for member in &args.members {
        let deed = GroupDeed::Change {
            name: args.name.clone(),
            member: member.clone(),
            uid: users.get(member).copied(),
            add,
        };
        if let Err(why) = ask(member, &args.way, &deed) {
            failed.push(why.to_string());
        }
    }
    match (failed.as_slice(), args.members.len()) {
        ([], _) => Ok(()),
        ([one], 1) => Err(Failure::of(what, one)),
        (some, all) => {
            let (count, list) = (some.len(), some.join("; "));
            let text = format!("{count} of {all} failed, the others are done: {list}");
            Err(Failure::of(what, text))
        }
    }
}

fn hold(what: &'static str, args: &GroupHoldArgs, held: bool) -> Result<(), Failure> {
    let name = args.name.clone();
    done(what, &args.way, &GroupDeed::Hold { name, held })
}

/// The users, by the names that somebody sees who asks in this way.
fn users(way: &GroupWayArgs) -> Known {
    match is_administrators(way) {
        true => Known::to_administrator(&way.admin),
        false => Known::through(way.mount.as_deref()),
    }
}

fn name_of(users: &Known, uid: u32) -> String {
    match uid {
        0 => "the administrators".to_owned(),
        uid => users.name(uid),
    }
}

/// The word for a member of one of these groups.
fn member_name(users: &Known, groups: &[Group], member: &Member) -> String {
    match member {
        Member::User(uid) => users.name(*uid),
        Member::Group(gid) => {
            let inner = groups.iter().find(|group| group.gid == *gid);
            inner.map_or_else(|| gid.to_string(), |inner| inner.name.clone())
        }
    }
}

/// A group with the names of those whose numbers it has.
fn as_json(users: &Known, groups: &[Group], group: &Group) -> Value {
    let mut shown = json!(group);
    shown["owner_name"] = json!(name_of(users, group.owner));
    let names = group.members.iter();
    let names = names.map(|member| member_name(users, groups, member));
    shown["member_names"] = names.collect();
    shown
}

fn shown(args: &GroupArgs, json: bool) -> Result<(), Failure> {
    let what = "group show";
    let groups = all(what, &args.way)?;
    let group = groups.iter().find(|group| group.name == args.name);
    let group = group.ok_or_else(|| {
        let name = &args.name;
        Failure::of(
            what,
            format_args!("the cell has no group {name}: `ariel group list`"),
        )
    })?;
    let users = users(&args.way);
    if json {
        show::print(&format!("{:#}", as_json(&users, &groups, group)));
        return Ok(());
    }
    let mut text = format!("{} of {}:", group.name, name_of(&users, group.owner));
    if group.members.is_empty() {
        text.push_str("\n  (nobody)");
    }
    for member in &group.members {
        let name = member_name(&users, &groups, member);
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {name}");
    }
    show::print(&text);
    Ok(())
}

fn table(users: &Known, groups: &[Group]) -> String {
    let longest = groups.iter().map(|group| group.name.len()).max();
    let width = longest.unwrap_or(0).max(5);
    let mut text = format!("{:width$}  {:>7}  OWNER", "GROUP", "MEMBERS");
    for group in groups {
        let owner = name_of(users, group.owner);
        let (name, count) = (&group.name, group.members.len());
        let mark = if group.disabled {
            "  (given up here)"
        } else {
            ""
        };
        let _ = write!(text, "\n{name:width$}  {count:>7}  {owner}{mark}");
    }
    text
}
