//! `ariel login`, `logout`, `whoami`, `token`: users on machines that are not trusted with them.
//!
//! A user asks the daemon of a mount, which stands for the machine at the cell and learns the user
//! from the kernel; a password or token goes over that socket alone, and is on no command line.

mod agent;
mod daemon;
mod whoami;

pub(crate) use daemon::{Logins, Of};

use crate::args::{AttenuateArgs, LoginArgs, LogoutArgs, TokenCommand, WhoamiArgs};
use crate::failure::Failure;
use crate::{apart, control, membership, paths, runtime, show};
use agent::Agent;
use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::geteuid;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Most bytes of a password or a token.
const SECRET_BYTES_MAX: u64 = 4096;

/// A secret from standard input: a terminal is asked, without showing what is typed.
pub(crate) fn secret(what: &str) -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    let mut text = String::new();
    if stdin.is_terminal() {
        let _ = write!(std::io::stderr(), "{what}: ");
        let shown = tcgetattr(&stdin)?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
        let read = stdin.lock().take(SECRET_BYTES_MAX).read_line(&mut text);
        tcsetattr(&stdin, OptionalActions::Flush, &shown)?;
        let _ = writeln!(std::io::stderr());
        read?;
    } else {
        stdin.lock().take(SECRET_BYTES_MAX).read_line(&mut text)?;
    }
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        bail!("standard input has no {what}");
    }
    Ok(text.to_owned())
}

/// The socket of a mount's daemon, of this user or of root.
pub(crate) fn connect(dir: Option<&Path>) -> anyhow::Result<UnixStream> {
    let own = geteuid().as_raw();
    let trusted = |path: &PathBuf| {
        let found = path.symlink_metadata();
        // In a user namespace root's files are nobody's; there it alone makes any.
        let in_namespace = apart::own().is_some() && path.starts_with(runtime::OF_USERS);
        let is_roots = |uid| uid == 0 || (in_namespace && uid == wire::NOBODY);
        found.is_ok_and(|found| found.uid() == own || is_roots(found.uid()))
    };
    let wanted = match dir {
        Some(dir) => {
            let point = paths::mount_point(dir);
            let point = point.with_context(|| dir.display().to_string())?;
            Some(daemon::socket_name(&apart::seen_for(point)))
        }
        None => apart::own().map(|at| daemon::socket_name(&at)),
    };
    for place in runtime::users_dirs() {
        let names = std::fs::read_dir(&place).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let named = |name: &String| match &wanted {
            Some(wanted) => name == wanted,
            None => name.ends_with(daemon::ENDING),
        };
        for path in names
            .filter(named)
            .map(|name| place.join(name))
            .filter(trusted)
        {
            if let Ok(stream) = UnixStream::connect(path) {
                return Ok(stream);
            }
        }
    }
    match dir {
        Some(dir) => bail!("no daemon of a mount at {} takes logins", dir.display()),
        None => bail!("nothing of a cell is mounted here: `ariel mount SERVER DIR` first"),
    }
}

pub(crate) fn ask(dir: Option<&Path>, question: &Value) -> anyhow::Result<Value> {
    let answer = control::question(&connect(dir)?, question)?;
    match answer["error"].as_str() {
        Some(error) => bail!("{error}"),
        None => Ok(answer),
    }
}

fn failed(what: &'static str) -> impl Fn(anyhow::Error) -> Failure {
    move |error| Failure::of(what, format_args!("{error:#}"))
}

fn user_name() -> anyhow::Result<String> {
    let own = geteuid().as_raw().to_string();
    let all = std::fs::read_to_string("/etc/passwd")?;
    let mut lines = all.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = lines.find(|words| words.get(2) == Some(&own.as_str()));
    let name = found.and_then(|words| words.first().map(|name| (*name).to_owned()));
    name.context("this user has no name here: say it with --user NAME")
}

pub(crate) fn login(args: &LoginArgs) -> Result<ExitCode, Failure> {
    let dir = args.dir.as_deref();
    let done = match args.token {
        true => secret("token").and_then(|token| {
            ask(dir, &json!({ "ask": "present", "token": token }))?;
            Ok("The token counts for this mount, as long as it says.".to_owned())
        }),
        false => log_in(args),
    };
    show::print(&done.map_err(failed("login"))?);
    Ok(ExitCode::SUCCESS)
}

fn log_in(args: &LoginArgs) -> anyhow::Result<String> {
    let dir = args.dir.as_deref();
    let user = args.user.clone().map_or_else(user_name, Ok)?;
    let mut question = json!({
        "ask": "login", "user": user, "for": args.expires, "once": args.once,
    });
    if args.ssh {
        let (key, signature) = signature(dir, &user, args.key.as_deref())?;
        question["key"] = json!(key);
        question["signature"] = json!(signature);
    } else {
        question["password"] = json!(secret("password")?);
    }
    let answer = ask(dir, &question)?;
    let until = membership::shown(answer["expires"].as_u64().unwrap_or(0));
    let renewed = if args.once {
        ""
    } else {
        ", and is renewed by itself"
    };
    Ok(format!("{user} is logged in until {until}{renewed}."))
}

/// A signature by a key of the agent: the one of the file, or the first.
fn signature(
    dir: Option<&Path>,
    user: &str,
    file: Option<&Path>,
) -> anyhow::Result<(String, String)> {
    let mut agent = Agent::open()?;
    let keys: Vec<(String, Vec<u8>)> = agent
        .keys()?
        .into_iter()
        .map(|key| (STANDARD.encode(&key), key))
        .collect();
    let wanted = match file {
        None => None,
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.with_context(|| file.display().to_string())?;
            Some(cell::ssh_key(&text).map_err(anyhow::Error::msg)?)
        }
    };
    let named = |key: &&(String, Vec<u8>)| wanted.as_ref().is_none_or(|wanted| key.0 == *wanted);
    let found = keys.iter().find(named);
    let (text, key) = found.context("the ssh agent has no such ed25519 key: `ssh-add`")?;
    let given = ask(dir, &json!({ "ask": "challenge" }))?;
    let word = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
    let bytes = cell::to_sign(&word("challenge"), user, &word("machine"));
    let signature = agent.sign(key, &bytes)?;
    Ok((text.clone(), STANDARD.encode(signature)))
}

pub(crate) fn logout(args: &LogoutArgs) -> Result<ExitCode, Failure> {
    let done = ask(args.dir.as_deref(), &json!({ "ask": "logout" }));
    done.map_err(failed("logout"))?;
    show::print("Logged out.");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn whoami(args: &WhoamiArgs) -> Result<ExitCode, Failure> {
    let what = "whoami";
    let answer = ask(args.dir.as_deref(), &json!({ "ask": "whoami" })).map_err(failed(what))?;
    if args.json {
        show::print(&format!("{answer:#}"));
        return Ok(ExitCode::SUCCESS);
    }
    let told = whoami::text(&answer).map_err(|why| Failure::of(what, why))?;
    show::print(&told);
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn token(command: &TokenCommand) -> Result<ExitCode, Failure> {
    let text = match command {
        TokenCommand::Show(args) => {
            let answer = ask(args.dir.as_deref(), &json!({ "ask": "token" }));
            let answer = answer.map_err(failed("token show"))?;
            answer["token"].as_str().unwrap_or_default().to_owned()
        }
        TokenCommand::Attenuate(args) => attenuate(args).map_err(failed("token attenuate"))?,
    };
    show::print(&text);
    Ok(ExitCode::SUCCESS)
}

fn attenuate(args: &AttenuateArgs) -> anyhow::Result<String> {
    let now_s = net::clock::wall_ns() / 1_000_000_000;
    let to = cell::Narrower {
        path: args.path.clone(),
        read_only: args.read_only,
        expires_s: args.expires.map(|for_s| now_s + for_s),
    };
    cell::attenuate(&secret("token")?, &to).map_err(anyhow::Error::msg)
}
