//! `ariel group`: groups of the cell, which users make and own.
//!
//! A user asks the daemon of a mount, which learns from the kernel who he is; an administrator asks
//! with a credential.

use crate::args::{GroupArgs, GroupCommand, GroupHoldArgs, GroupMembersArgs, GroupWayArgs};
use crate::failure::Failure;
use crate::{apart, login, membership, show};
use cell::{Answer, Group, GroupDeed, Member, Question};
use serde_json::json;
use std::collections::BTreeMap;
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
            show::print(&match args.json {
                true => format!("{:#}", json!(groups)),
                false => table(&groups),
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
            let uid = local_users().get(&to).copied();
            let deed = GroupDeed::Chown { name, to, uid };
            done("group chown", &args.group.way, &deed)?;
        }
        GroupCommand::Disable(args) => hold("group disable", args, false)?,
        GroupCommand::Enable(args) => hold("group enable", args, true)?,
        GroupCommand::Without(args) => return apart::without(args),
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks the cell: through a mount, or as an administrator where one was named.
fn ask(what: &'static str, way: &GroupWayArgs, deed: &GroupDeed) -> Result<Vec<Group>, Failure> {
    let strange = || Failure::of(what, cell::AskError::Strange);
    if way.admin.data.is_some() || way.admin.credentials.is_some() {
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
    let users = local_users();
    for member in &args.members {
        let deed = GroupDeed::Change {
            name: args.name.clone(),
            member: member.clone(),
            uid: users.get(member).copied(),
            add,
        };
        done(what, &args.way, &deed)?;
    }
    Ok(())
}

fn hold(what: &'static str, args: &GroupHoldArgs, held: bool) -> Result<(), Failure> {
    let name = args.name.clone();
    done(what, &args.way, &GroupDeed::Hold { name, held })
}

/// The users of this machine.
pub(crate) fn local_users() -> BTreeMap<String, u32> {
    crate::acl::people::table("/etc/passwd")
}

fn name_of(users: &BTreeMap<String, u32>, uid: u32) -> String {
    let found = users.iter().find(|(_, known)| **known == uid);
    match (uid, found) {
        (0, _) => "the administrators".to_owned(),
        (_, Some((name, _))) => name.clone(),
        (uid, None) => uid.to_string(),
    }
}

fn shown(args: &GroupArgs, as_json: bool) -> Result<(), Failure> {
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
    if as_json {
        show::print(&format!("{:#}", json!(group)));
        return Ok(());
    }
    let users = local_users();
    let mut text = format!("{} of {}:", group.name, name_of(&users, group.owner));
    if group.members.is_empty() {
        text.push_str("\n  (nobody)");
    }
    for member in &group.members {
        let name = match member {
            Member::User(uid) => name_of(&users, *uid),
            Member::Group(gid) => {
                let inner = groups.iter().find(|group| group.gid == *gid);
                inner.map_or_else(|| gid.to_string(), |inner| inner.name.clone())
            }
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {name}");
    }
    show::print(&text);
    Ok(())
}

fn table(groups: &[Group]) -> String {
    let users = local_users();
    let longest = groups.iter().map(|group| group.name.len()).max();
    let width = longest.unwrap_or(0).max(5);
    let mut text = format!("{:width$}  {:>7}  OWNER", "GROUP", "MEMBERS");
    for group in groups {
        let owner = name_of(&users, group.owner);
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
