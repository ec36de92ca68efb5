//! `ariel user`: the users of a cell, as its administrator.

use crate::args::{UserAddArgs, UserArgs, UserCommand, UserListArgs};
use crate::failure::Failure;
use crate::known::{self, Names};
use crate::{login, membership, show};
use cell::{Answer, Question, User};
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;

pub(crate) fn user(command: &UserCommand) -> Result<ExitCode, Failure> {
    match command {
        UserCommand::Add(args) => add(args)?,
        UserCommand::List(UserListArgs {
            mount: Some(mount),
            json,
            ..
        }) => {
            let names = known::through(Some(mount));
            let names =
                names.map_err(|error| Failure::of("user list", format_args!("{error:#}")))?;
            show::print(&match json {
                true => format!("{:#}", json!(names)),
                false => names_table(&names),
            });
        }
        UserCommand::List(args) => {
            let users = all("user list", &args.admin)?;
            show::print(&match args.json {
                true => format!("{:#}", json!(users)),
                false => table(&users),
            });
        }
        UserCommand::Passwd(args) => passwd(args)?,
        UserCommand::Remove(args) => {
            let name = args.name.clone();
            done("user remove", args, &Question::RemoveUser { name })?;
            show::print(&format!("{} is removed: his logins have ended.", args.name));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn done(what: &str, args: &UserArgs, question: &Question) -> Result<(), Failure> {
    match membership::ask(what, &args.admin, question)?.1 {
        Answer::Ok => Ok(()),
        _ => Err(Failure::of(what, cell::AskError::Strange)),
    }
}

fn all(what: &str, admin: &crate::args::AdminArgs) -> Result<Vec<User>, Failure> {
    match membership::ask(what, admin, &Question::Users)?.1 {
        Answer::Users(users) => Ok(users),
        _ => Err(Failure::of(what, cell::AskError::Strange)),
    }
}

fn password(what: &str) -> Result<String, Failure> {
    login::secret("password").map_err(|error| Failure::of(what, format_args!("{error:#}")))
}

fn add(args: &UserAddArgs) -> Result<(), Failure> {
    let what = "user add";
    if args.keys.is_empty() && !args.password {
        let text = "nobody could log in without a proof: --ssh-key FILE, or --password";
        return Err(Failure::of(what, text));
    }
    let mut keys = Vec::new();
    for file in &args.keys {
        let failed =
            |error: &dyn std::fmt::Display| Failure::of(&file.display().to_string(), error);
        let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
        keys.push(cell::ssh_key(&text).map_err(|error| failed(&error))?);
    }
    let password = match args.password {
        true => Some(password(what)?),
        false => None,
    };
    let name = args.user.name.clone();
    let user = User {
        name: name.clone(),
        uid: args.uid,
        gid: args.gid.unwrap_or(args.uid),
        groups: args.groups.clone(),
        keys,
        password: password.is_some(),
    };
    let question = Question::SetUser {
        user,
        password,
        new: true,
    };
    done(what, &args.user, &question)?;
    show::print(&format!(
        "{name} is a user of the cell: `ariel login` on a machine that is not trusted."
    ));
    Ok(())
}

fn passwd(args: &UserArgs) -> Result<(), Failure> {
    let what = "user passwd";
    let users = all(what, &args.admin)?;
    let user = users.into_iter().find(|user| user.name == args.name);
    let user = user.ok_or_else(|| {
        let text = format!("the cell has no user {}: `ariel user list`", args.name);
        Failure::of(what, text)
    })?;
    let question = Question::SetUser {
        user,
        password: Some(password(what)?),
        new: false,
    };
    done(what, args, &question)?;
    show::print(&format!("{} has another password.", args.name));
    Ok(())
}

fn names_table(names: &Names) -> String {
    let longest = names.keys().map(String::len).max();
    let width = longest.unwrap_or(0).max(4);
    let mut text = format!("{:width$}  {:>6}", "NAME", "USER");
    for (name, uid) in names {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{name:width$}  {uid:>6}");
    }
    text
}

fn table(users: &[User]) -> String {
    let longest = users.iter().map(|user| user.name.len()).max();
    let width = longest.unwrap_or(0).max(4);
    let mut text = format!(
        "{:width$}  {:>6}  {:>6}  {:12}  PROOF",
        "NAME", "USER", "GROUP", "GROUPS"
    );
    for user in users {
        let groups: Vec<String> = user.groups.iter().map(ToString::to_string).collect();
        let groups = if groups.is_empty() {
            "-".to_owned()
        } else {
            groups.join(",")
        };
        let keys = match user.keys.len() {
            0 => None,
            1 => Some("an ssh key".to_owned()),
            count => Some(format!("{count} ssh keys")),
        };
        let proofs = user.password.then(|| "a password".to_owned()).into_iter();
        let proofs: Vec<String> = proofs.chain(keys).collect();
        let (name, uid, gid) = (&user.name, user.uid, user.gid);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{name:width$}  {uid:>6}  {gid:>6}  {groups:12}  {}",
            proofs.join(", ")
        );
    }
    text
}
