//! `ariel serve`: a server as a process, in the foreground or as a daemon.

use crate::args::ServeArgs;
use crate::control::{self, Listener};
use crate::end::End;
use crate::failure::Failure;
use crate::gate::{Gatekeeper, Watcher};
use crate::stores::{Keeper, Stores};
use crate::{
    cooperate, daemon, end, log, membership, metrics, profile, runtime, service, show, trust,
};
use cell::{Cell, CellDoor, CellError, Change, Credential, Renewal, Role};
use net::Addresses;
use rustix::process::{getegid, geteuid};
use serde_json::Value;
use server::{Gate, MachineOptions, Server, ServerOptions};
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// Name of the log in the store's directory.
pub(crate) const LOG: &str = "server.log";

pub(crate) fn serve(args: ServeArgs, words: &[OsString]) -> Result<ExitCode, Failure> {
    let absolute = |path: &Path| std::path::absolute(path);
    let data = absolute(&args.data).map_err(|error| Failure::of("serve", error))?;
    let pid_file = args.pid_file.as_deref().map(absolute).transpose();
    let pid_file = pid_file.map_err(|error| Failure::of("serve", error))?;
    if args.daemon && !args.detached {
        let line = daemon::launch(words)?;
        show::print(&format!("{line}\nlog: {}", data.join(LOG).display()));
        return Ok(ExitCode::SUCCESS);
    }
    if args.detached {
        daemon::detach()?;
        log::to_file();
    } else {
        log::to_stderr("info");
    }
    log::end_on_panic();
    membership::only_mine();
    let (send, receive) = end::channel("serve", args.detached || service::is_managed())?;
    membership::begin(&args, &data)?;
    let (server, watchers, keeper) = start(&args, &data, send.clone())?;
    let renewals = renewals(&args, &server, &data);
    let control = listen(&server, send);
    if args.detached {
        let log = data.join(LOG);
        log::use_file(&log).map_err(|error| Failure::of(&log.display().to_string(), error))?;
    }
    let pid_file = pid_file.map(PidFile::write).transpose()?;
    if let Some(addr) = args.metrics {
        let server = Arc::downgrade(&server);
        let look = move || {
            let server = server.upgrade()?;
            let status = show::whole_server(&server);
            Some((status, profile::of_server(&server)))
        };
        metrics::serve(addr, Arc::new(look))?;
    }
    daemon::ready(&format!("listening on {}", listed(server.local_addrs())))?;
    if args.detached {
        daemon::let_go()?;
    }
    watch(&server);
    let ended = wait(&server, receive, keeper);
    drop((renewals, watchers));
    drop(control);
    drop(pid_file);
    ended
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| Failure::of("serve", error))
}

/// A server that serves, and the threads that keep it up to date.
type Started = (Arc<Server>, Vec<Watcher>, Option<Keeper>);

fn start(args: &ServeArgs, data: &Path, send: Sender<End>) -> Result<Started, Failure> {
    let gate = gate(args, data)?;
    let mut machine = MachineOptions::default();
    if let Some(grace_ns) = args.grace {
        machine.grace_ns = grace_ns;
    }
    let options = ServerOptions {
        data: data.to_owned(),
        // The user who makes a store may write to it.
        owner: (geteuid().as_raw(), getegid().as_raw()),
        listen: args.listen.clone(),
        gate: gate
            .clone()
            .map_or(Gate::InsecureLoopback, |gate| Gate::Cell(gate)),
        machine,
        // The reason is logged, and told again by `Server::stop`.
        on_failure: Box::new(move |_| drop(send.send(End::Itself))),
    };
    let server = Server::start(options).map_err(|error| Failure::of("serve", error))?;
    server.cooperate(args.cooperate.into());
    let server = Arc::new(server);
    if let Some(gate) = gate {
        // The server outlives its door's last question, and the door the server.
        let told = Arc::downgrade(&server);
        gate.0.tell(Box::new(move |machine, (change, why)| {
            match (told.upgrade(), change) {
                (Some(server), Change::Regranted) => return server.regrant(machine, why),
                (Some(server), Change::Revoked) => server.expel(machine, why),
                (Some(server), Change::Users) => server.machine_changed(machine, why),
                (None, _) => {}
            }
            Ok(())
        }));
        let keeper = Stores::begin(&server, &gate, data);
        let keeper = keeper.map_err(|error| Failure::of("serve", error))?;
        let (regrouped, stores) = (Arc::downgrade(&server), keeper.stores());
        gate.0.tell_groups(Box::new(move |members| {
            if stores.upgrade().is_some_and(|stores| stores.has_moving()) {
                return Err("a volume is just moving between two servers: try again".into());
            }
            let server = regrouped.upgrade();
            server.map_or(Ok(()), |server| server.regroup(&members))
        }));
        let addresses = dialled(server.local_addrs());
        tell_own(data, &addresses);
        let told = gate.0.tell_addresses(Some(&addresses));
        told.map_err(|error| Failure::of("serve", error))?;
        let watchers = [Watcher::of_logins(&gate), Watcher::of_servers(&gate)];
        let watchers = watchers.into_iter().collect::<std::io::Result<Vec<_>>>();
        return Ok((
            server,
            watchers.map_err(|error| Failure::of("serve", error))?,
            Some(keeper),
        ));
    }
    Ok((server, Vec::new(), None))
}

/// The cell of this store.
fn gate(args: &ServeArgs, data: &Path) -> Result<Option<Arc<Gatekeeper>>, Failure> {
    if args.insecure_loopback {
        return Ok(None);
    }
    match CellDoor::open(&trust::cell_dir(data), args.certificate_life) {
        Ok(door) => Ok(Some(Arc::new(Gatekeeper(door)))),
        Err(CellError::None(_)) => {
            let data = data.display();
            let text = format!(
                "{data} has no cell, so nobody could prove who he is: make one with \
                 `ariel cell init --data {data}`"
            );
            Err(Failure::of("serve", text))
        }
        Err(error) => Err(Failure::of("serve", error)),
    }
}

/// Addresses as they are dialled: a server that listens at any address of its machine is reached by
/// the machine's name.
fn dialled(addrs: &[SocketAddr]) -> Addresses {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let one = |addr: &SocketAddr| match addr.ip().is_unspecified() {
        true => format!("{}:{}", host.trim(), addr.port()),
        false => addr.to_string(),
    };
    let mut words: Vec<String> = addrs.iter().map(one).collect();
    words.dedup();
    let first = Addresses::from(addrs[0]);
    words.join(",").parse().unwrap_or(first)
}

fn listed(addrs: &[SocketAddr]) -> String {
    let words: Vec<String> = addrs.iter().map(ToString::to_string).collect();
    words.join(",")
}

/// The credentials beside the store say where the server is.
fn tell_own(data: &Path, servers: &Addresses) {
    for role in [Role::Administrator, Role::Machine] {
        let dir = Cell::credentials(&trust::cell_dir(data), role);
        let told = Credential::read(&dir).and_then(|credential| match credential {
            Some(mut credential) if credential.servers.as_deref() != Some(&servers.to_string()) => {
                credential.servers = Some(servers.to_string());
                credential.write(&dir)
            }
            _ => Ok(()),
        });
        if let Err(error) = told {
            tracing::warn!(%error, "a credential does not say where the server is");
        }
    }
}

/// The renewals that keep the credentials beside the store fresh.
fn renewals(args: &ServeArgs, server: &Server, data: &Path) -> Vec<Renewal> {
    if args.insecure_loopback {
        return Vec::new();
    }
    let own = |role| {
        let dir = Cell::credentials(&trust::cell_dir(data), role);
        let renewal = Renewal::start(&dir, Addresses::from(reachable(server.local_addr())));
        renewal
            .inspect_err(|error| tracing::warn!(%error, "certificates are not renewed"))
            .ok()
    };
    let all = [Role::Administrator, Role::Machine];
    all.into_iter().filter_map(own).collect()
}

/// Where this machine itself reaches a server that listens there.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

/// Opens the control socket. Without it the server works all the same.
fn listen(server: &Arc<Server>, send: Sender<End>) -> Option<Listener> {
    let name = runtime::of_server(server.local_addr().port());
    let server = Arc::clone(server);
    let answer = move |word: &str| match word {
        "status" => show::whole_server(&server),
        "profile" => profile::of_server(&server),
        "tokens" => show::server_tokens(&server.tokens()),
        "fsck" => match server.check() {
            Ok((first, further)) => show::reports(&first, &further),
            Err(error) => control::refusal(format_args!("{error}")),
        },
        word if word.starts_with(cooperate::ASK) => {
            cooperate::answer(&server, &word[cooperate::ASK.len()..])
        }
        "stop" => end::ask(&send, "server", End::Asked),
        other => control::refusal(format_args!("a server does not know {other:?}")),
    };
    Listener::start(&name, Box::new(move |word, _| answer(word).into()))
        .inspect_err(|error| tracing::warn!("`ariel status` will not work: {error:#}"))
        .ok()
}

/// Tells the service manager from time to time that the server still answers.
fn watch(server: &Arc<Server>) {
    let server = Arc::downgrade(server);
    service::watch(move || {
        let server = server.upgrade();
        server.is_some_and(|server| server.status().failure.is_none())
    });
}

/// Waits for the end, and ends the server. Takes the questions with it: a later asker is told that
/// it is ending, and the control socket can be closed.
fn wait(
    server: &Server,
    ends: Receiver<End>,
    keeper: Option<Keeper>,
) -> Result<(), server::StopError> {
    let end = ends.recv().unwrap_or(End::Signal);
    // No store is opened any more.
    drop(keeper);
    let ended = server.stop();
    if let End::Asked(reply) = end {
        end::tell(&reply, &ended);
    }
    ended
}

/// The file with the process number, removed at the end.
struct PidFile(PathBuf);

impl PidFile {
    fn write(path: PathBuf) -> Result<PidFile, Failure> {
        let failed = |error| Failure::of(&path.display().to_string(), error);
        std::fs::write(&path, Self::text()).map_err(failed)?;
        Ok(PidFile(path))
    }

    fn text() -> String {
        format!("{}\n", std::process::id())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // The next server may have written its own by now.
        if std::fs::read_to_string(&self.0).is_ok_and(|text| text == Self::text()) {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

/// The answer of the server at this address, if one answers on this machine.
pub(crate) fn ask(addr: SocketAddr, word: &str) -> anyhow::Result<Option<Value>> {
    ask_within(addr, word, control::ANSWER_TIMEOUT)
}

/// The same, in this time.
pub(crate) fn ask_within(
    addr: SocketAddr,
    word: &str,
    limit: Duration,
) -> anyhow::Result<Option<Value>> {
    control::ask(&runtime::of_server(addr.port()), word, Some(limit))
}
