//! `ariel cell`, `ariel join-token`, `ariel join`, `ariel machine`: a cell and its machines.

mod servers;

use crate::args::{
    AdminArgs, CellCommand, CellInitArgs, JoinArgs, JoinTokenArgs, MachineCommand, RightsArgs,
    ServeArgs,
};
use crate::failure::Failure;
use crate::{show, trust};
use cell::{Answer, Cell, Credential, Invite, JoinLine, Location, Machine, Question, Role, Words};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use net::Addresses;
use rustix::process::{getegid, geteuid};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write as _};
use std::path::Path;
use std::process::ExitCode;
use wire::{Rights, volume_numbers};

/// Most bytes of a line.
const LINE_BYTES_MAX: u64 = 4096;
/// The number of a cell's first server.
const FIRST: u32 = 0;

pub(crate) fn cell(command: &CellCommand) -> Result<ExitCode, Failure> {
    match command {
        CellCommand::Init(args) => init_cell(args)?,
        CellCommand::Servers(args) => servers::servers(args)?,
        CellCommand::RemoveServer(args) => {
            let name = args.name.clone();
            ask(
                "cell remove-server",
                &args.admin,
                &Question::ForgetServer { name },
            )?;
            show::print(&format!(
                "{} is forgotten: nothing waits for it. Its data is left alone.",
                args.name
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn init_cell(args: &CellInitArgs) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::of("cell init", error);
    let data = std::path::absolute(&args.data).map_err(|error| failed(&error))?;
    let dir = trust::cell_dir(&data);
    let name = args.name.as_deref();
    let further = match &args.database {
        None => {
            init(&data, name)?;
            String::new()
        }
        Some(url) => {
            let name = name.map_or_else(host_name, |name| Ok(name.to_owned()))?;
            let location = args.database_trust.location(url, &name);
            let location = location.map_err(|error| failed(&error))?;
            if make_store("cell init", &data, FIRST)? != FIRST {
                return Err(failed(&format!(
                    "the store in {} was a further server's of another cell, and its volumes have \
                     numbers that further servers of this one will give: begin with an empty \
                     directory, and bring volumes there with `ariel volume send` and `receive`",
                    data.display()
                )));
            }
            Cell::make_shared(&dir, &location, &name).map_err(|error| failed(&error))?;
            format!("\nFurther servers:   ariel serve --data DIR --listen ADDR --join {url}")
        }
    };
    show::print(&format!(
        "A cell was made in {}: keep a copy of it where nobody else can read it.\n\n\
         Next:   ariel serve --data {} --listen 0.0.0.0:7070\n\
         Join:   ariel join-token --data {}     prints a line for another machine{further}",
        dir.display(),
        data.display(),
        data.display()
    ));
    Ok(())
}

/// Makes a cell, and the store it is for, which wants its directory to be empty.
pub(crate) fn init(data: &Path, name: Option<&str>) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::of("cell init", error);
    let name = match name {
        Some(name) => name.to_owned(),
        None => host_name()?,
    };
    make_store("cell init", data, FIRST)?;
    Cell::make(&trust::cell_dir(data), &name).map_err(|error| failed(&error))
}

/// Makes a cell, or joins one, where a server is told to and has none.
pub(crate) fn begin(args: &ServeArgs, data: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::of("serve --join", error);
    let dir = trust::cell_dir(data);
    let Some(url) = &args.join else {
        return match args.init && !Cell::is_in(&dir) {
            true => init(data, None),
            false => Ok(()),
        };
    };
    match Cell::database(&dir).map_err(|error| failed(&error))? {
        Some(joined) if joined == *url => return Ok(()),
        Some(other) => {
            let text = format!(
                "{} is of the cell at {other}, and not at {url}: correct `--join`, or name another \
                 directory with `--data`",
                data.display()
            );
            return Err(failed(&text));
        }
        None if Cell::is_in(&dir) => {
            let text = format!(
                "{} is of a cell with one server: name a directory that has none with `--data`",
                data.display()
            );
            return Err(failed(&text));
        }
        None => {}
    }
    let name = args.name.clone().map_or_else(host_name, Ok)?;
    let location = args.database_trust.location(url, &name);
    let location = location.map_err(|error| failed(&error))?;
    let number = Cell::number_server(&location).map_err(|error| failed(&error))?;
    // A store that is there already has its number.
    let number = make_store("serve --join", data, number)?;
    let location = Location { number, ..location };
    Cell::join_shared(&dir, &location, &name).map_err(|error| failed(&error))
}

/// Makes the store of the server of this number, unless there is one; the number of the server that
/// it was made for.
fn make_store(what: &str, data: &Path, number: u32) -> Result<u32, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::of(what, error);
    let volume = volume_numbers::first(number).ok_or_else(|| {
        let most = volume_numbers::SERVER_MAX + 1;
        failed(&format!(
            "the cell has had {most} servers, and has no number for one more: make another cell"
        ))
    })?;
    let options = store::Options {
        root_uid: geteuid().as_raw(),
        root_gid: getegid().as_raw(),
        created: net::clock::wall_ns(),
        identity: net::entropy::seed(), // so that nobody can make a piece of the log
        volume,
        ..store::Options::default()
    };
    only_mine();
    let store = store::Store::open_or_create(data, &options).map_err(|error| failed(&error))?;
    let first = store.root().volume;
    store.close().map_err(|error| failed(&error))?;
    Ok(volume_numbers::server(first))
}

/// From now on what this process makes is its user's alone.
pub(crate) fn only_mine() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

fn host_name() -> Result<String, Failure> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    cell::machine_name(name.trim()).map_err(|error| {
        let text = format!("{error}; give another one with --name");
        Failure::of("the host name", text)
    })
}

fn rights(args: &RightsArgs) -> Rights {
    Rights {
        root: args.root,
        write: !args.read_only,
        uids: args.uids.clone().unwrap_or_default().0,
        trusted: !args.untrusted,
        ..Rights::default()
    }
}

/// The question, within the parts of the tree that these rights are for.
fn within(args: &RightsArgs, question: Question) -> Question {
    match args.only.is_empty() {
        true => question,
        false => Question::Limited {
            parts: args.only.clone(),
            question: Box::new(question),
        },
    }
}

/// Asks the cell's server as its administrator.
pub(crate) fn ask(
    what: &str,
    admin: &AdminArgs,
    question: &Question,
) -> Result<(Credential, Answer), Failure> {
    let of = (admin.credentials.as_deref(), admin.data.as_deref());
    let credential = trust::administrator(what, of)?;
    let servers = trust::servers_of(what, &credential)?;
    let tls = credential.tls().map_err(|error| Failure::of(what, error))?;
    let answer = cell::ask(&servers, &tls, question);
    Ok((
        credential,
        answer.map_err(|error| Failure::of(what, error))?,
    ))
}

fn strange(what: &str) -> Failure {
    Failure::of(what, cell::AskError::Strange)
}

pub(crate) fn join_token(args: &JoinTokenArgs) -> Result<ExitCode, Failure> {
    let what = "join-token";
    let invite = Question::Invite(Invite {
        uses: args.uses,
        for_s: args.expires,
        role: match args.administrator {
            true => Role::Administrator,
            false => Role::Machine,
        },
        rights: rights(&args.rights),
    });
    let question = within(&args.rights, invite);
    let (credential, answer) = ask(what, &args.admin, &question)?;
    let Answer::Invited { secret, expires_s } = answer else {
        return Err(strange(what));
    };
    let servers: Addresses = match &args.server {
        Some(servers) => servers.clone(),
        None => trust::servers_of(what, &credential)?,
    };
    let authority = net::print_of_pem(&credential.authority);
    let authority = authority.map_err(|error| Failure::of(what, error))?;
    let line = JoinLine::new(servers, authority, &secret).ok_or_else(|| strange(what))?;
    show::print(&line.to_string());
    let uses = match args.uses {
        1 => "one machine".to_owned(),
        uses => format!("{uses} machines"),
    };
    // The line alone goes to standard output, so that a pipe can carry it.
    let told = format!(
        "for {uses}, until {}: `ariel join` takes it",
        shown(expires_s)
    );
    let _ = writeln!(std::io::stderr(), "{told}");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn join(args: &JoinArgs) -> Result<ExitCode, Failure> {
    let what = "join";
    let line = match &args.line {
        Some(line) => line.clone(),
        None => read_line()?,
    };
    let name = match &args.name {
        Some(name) => name.clone(),
        None => host_name()?,
    };
    let dir = args.credentials.clone().unwrap_or_else(trust::own_dir);
    let credential = cell::join(&line, &name).map_err(|error| Failure::of(what, error))?;
    let dir = match credential.role {
        Role::Administrator if args.credentials.is_none() => dir.join("administrator"),
        _ => dir,
    };
    let written = credential.write(&dir);
    written.map_err(|error| Failure::of(what, error))?;
    let next = match credential.role {
        Role::Machine => format!("ariel mount {} DIR", line.servers),
        Role::Administrator => format!("ariel machine list --credentials {}", dir.display()),
    };
    show::print(&format!(
        "{} is in the cell {} now; its credential is {}, and is renewed by itself.\n\n\
         Next:   {next}",
        credential.name,
        credential.cell,
        dir.join(cell::FILE).display(),
    ));
    Ok(ExitCode::SUCCESS)
}

fn read_line() -> Result<JoinLine, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let _ = write!(std::io::stderr(), "the line of `ariel join-token`: ");
    }
    let mut text = String::new();
    let mut limited = std::io::Read::take(stdin.lock(), LINE_BYTES_MAX);
    let read = limited.read_line(&mut text);
    read.map_err(|error| Failure::of("standard input", error))?;
    text.parse()
        .map_err(|error: cell::NoLine| Failure::of("join", error))
}

pub(crate) fn machine(command: &MachineCommand) -> Result<ExitCode, Failure> {
    match command {
        MachineCommand::List(args) => {
            let machines = machines("machine list", &args.admin)?;
            let shown = match args.json {
                true => format!("{:#}", json!(machines)),
                false => table(&machines),
            };
            show::print(&shown);
        }
        MachineCommand::Show(args) => {
            let what = "machine show";
            let all = machines(what, &args.admin)?;
            let mut named = all.iter().rev().filter(|machine| machine.name == args.name);
            let found = named.next().ok_or_else(|| {
                let text = format!(
                    "the cell has no machine {}: `ariel machine list`",
                    args.name
                );
                Failure::of(what, text)
            })?;
            show::print(&described(found));
        }
        MachineCommand::Revoke(args) => {
            let name = args.name.clone();
            let machine = change("machine revoke", &args.admin, &Question::Revoke { name })?;
            show::print(&format!(
                "{} is revoked: its sessions have ended, and it comes in no more.",
                machine.name
            ));
        }
        MachineCommand::Grant(args) => {
            let grant = Question::Grant {
                name: args.machine.name.clone(),
                rights: rights(&args.rights),
            };
            let question = within(&args.rights, grant);
            let machine = change("machine grant", &args.machine.admin, &question)?;
            show::print(&format!("{}: {}", machine.name, Words(&machine)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn machines(what: &str, admin: &AdminArgs) -> Result<Vec<Machine>, Failure> {
    match ask(what, admin, &Question::Machines)?.1 {
        Answer::Machines(machines) => Ok(machines),
        _ => Err(strange(what)),
    }
}

fn change(what: &str, admin: &AdminArgs, question: &Question) -> Result<Machine, Failure> {
    match ask(what, admin, question)?.1 {
        Answer::Done(machine) => Ok(machine),
        _ => Err(strange(what)),
    }
}

/// The state of a machine's certificate.
fn state(machine: &Machine) -> String {
    match machine.revoked_s {
        Some(at) => format!("revoked {}", shown(at)),
        None => format!("until {}", shown(machine.expires_s())),
    }
}

fn may(machine: &Machine) -> String {
    match machine.role {
        Role::Administrator => "administers the cell".to_owned(),
        Role::Machine => Words(machine).to_string(),
    }
}

fn table(machines: &[Machine]) -> String {
    let longest = machines.iter().map(|machine| machine.name.len()).max();
    let width = longest.unwrap_or(0).max(4);
    let mut text = format!("{:width$}  {:24}  MAY", "NAME", "CERTIFICATE");
    for machine in machines {
        let (name, state) = (&machine.name, state(machine));
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{name:width$}  {state:24}  {}", may(machine));
    }
    text
}

fn described(machine: &Machine) -> String {
    let mut text = format!(
        "name         {}\nnumber       {}\nmay          {}\njoined       {}\ncertificate  {}",
        machine.name,
        machine.id,
        may(machine),
        shown(machine.joined_s),
        state(machine),
    );
    for key in &machine.keys {
        let _ = write!(
            text,
            "\nkey          {} (until {})",
            key.print,
            shown(key.expires_s)
        );
    }
    text
}

/// Seconds since 1970 as people write them.
pub(crate) fn shown(seconds: u64) -> String {
    match Timestamp::from_second(seconds.cast_signed()) {
        Ok(time) => time
            .to_zoned_datetime(TimeZone::system())
            .strftime("%F %H:%M")
            .to_string(),
        Err(_) => seconds.to_string(),
    }
}
