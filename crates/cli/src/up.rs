//! `ariel up` and `ariel down`: a server and a mount of it on this machine, without any thought.
//!
//! The processes themselves show what is up, by their control sockets. The file `up.json`
//! beside the store only remembers where they are: the server's address, taken again by the next
//! `up`, and the mount point.

use crate::args::{DownArgs, Transport, UpArgs};
use crate::failure::Failure;
use crate::{control, daemon, membership, paths, runtime, serve, show, trust, umount};
use anyhow::{Context, bail};
use cell::{Cell, Role};
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Where it is remembered, in the store's directory.
const STATE: &str = "up.json";
/// Where the mount's daemon logs, in the store's directory.
const MOUNT_LOG: &str = "mount.log";
/// How long an orderly end of a server may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// Where things are, or were last.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    server: SocketAddr,
    mount: PathBuf,
}

impl Place {
    fn read(data: &Path) -> Option<Place> {
        let text = std::fs::read_to_string(data.join(STATE)).ok()?;
        let found: Value = serde_json::from_str(&text).ok()?;
        Some(Place {
            server: found["server"].as_str()?.parse().ok()?,
            mount: PathBuf::from(found["mount"].as_str()?),
        })
    }

    fn write(&self, data: &Path) -> anyhow::Result<()> {
        let Some(mount) = self.mount.to_str() else {
            bail!(
                "{} is no text: choose another mount point",
                self.mount.display()
            );
        };
        let state = json!({ "server": self.server.to_string(), "mount": mount });
        let path = data.join(STATE);
        std::fs::write(&path, format!("{state:#}\n")).with_context(|| path.display().to_string())
    }

    /// Does a server of this store answer there?
    fn serves(&self, data: &Path) -> anyhow::Result<bool> {
        let answer = serve::ask(self.server, "status")?;
        Ok(answer.is_some_and(|status| status["data"].as_str() == data.to_str()))
    }

    /// Does a mount of this server answer there?
    fn is_mounted(&self) -> anyhow::Result<bool> {
        let name = runtime::of_mount(&self.mount);
        let answer = control::ask(&name, "status", Some(control::ANSWER_TIMEOUT))?;
        let server = self.server.to_string();
        Ok(answer.is_some_and(|status| status["server"].as_str() == Some(&server)))
    }

    /// Is there a mount whose daemon is gone, killed together with its guard?
    fn is_dead(&self) -> anyhow::Result<bool> {
        let entry = fuse::mount::find(&self.mount)?;
        let name = runtime::of_mount(&self.mount);
        Ok(entry.is_some_and(|entry| entry.is_ariel())
            && control::ask(&name, "status", Some(control::ANSWER_TIMEOUT))?.is_none())
    }
}

pub(crate) fn up(args: &UpArgs) -> Result<ExitCode, Failure> {
    let data = data(args.data.as_deref())?;
    let wanted = match &args.mount {
        Some(dir) => dir.clone(),
        None => paths::default_mount()?,
    };
    let before = Place::read(&data);
    // Else a server would be started for nothing. A directory that is missing is made later.
    if before.is_none() {
        match fuse::mount::check_mount_point(&wanted) {
            Ok(()) | Err(fuse::MountError::Missing(_)) => {}
            Err(error) => return Err(Failure::of("up", error)),
        }
    }
    if !trust::cell_dir(&data).exists() {
        membership::init(&data, None)?;
    }
    let (server, started) = start_server(&data, before.as_ref())?;
    // Made only now: a new store wants an empty directory, and the mount may be inside of it.
    std::fs::create_dir_all(&wanted)
        .map_err(|error| Failure::of("up", format_args!("{}: {error}", wanted.display())))?;
    let mount = paths::mount_point(&wanted).map_err(|error| Failure::of("up", error))?;
    if let Some(before) = before
        && !started
        && before.mount != mount
        && before.is_mounted()?
    {
        let text = format!(
            "{} is up at {} already: for one more mount, `ariel mount {server} {}`",
            data.display(),
            before.mount.display(),
            mount.display()
        );
        return Err(Failure::of("up", text));
    }
    let place = Place { server, mount };
    place.write(&data)?;
    let mounted = place.is_mounted()?;
    match mounted {
        false => start_mount(&place, &data, args.transport)?,
        true if started => find_again(&place.mount)?,
        true => {}
    }
    tell(&place, &data, mounted && !started);
    Ok(ExitCode::SUCCESS)
}

/// Waits until a mount has found its server that was started again: this question is answered then.
fn find_again(mount: &Path) -> Result<(), Failure> {
    let answer = rustix::fs::statvfs(mount);
    answer.map_err(|error| Failure::of("up", format_args!("{}: {error}", mount.display())))?;
    Ok(())
}

/// The address of the store's server, and whether it had to be started.
fn start_server(data: &Path, before: Option<&Place>) -> Result<(SocketAddr, bool), Failure> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let Some(before) = before else {
        return Ok((launch_server(data, any)?, true));
    };
    if before.serves(data)? {
        return Ok((before.server, false));
    }
    // The old address first: other mounts of it go on then. Somebody else may have it now.
    let server = match launch_server(data, before.server) {
        Ok(server) => server,
        Err(_) => launch_server(data, any)?,
    };
    Ok((server, true))
}

fn launch_server(data: &Path, listen: SocketAddr) -> Result<SocketAddr, Failure> {
    let mut arguments: Vec<OsString> = vec!["serve".into(), "--daemon".into()];
    arguments.extend(["--data".into(), data.into()]);
    arguments.extend(["--listen".into(), listen.to_string().into()]);
    let line = daemon::launch(&arguments)?;
    let addr = line
        .strip_prefix("listening on ")
        .and_then(|addr| addr.parse().ok());
    addr.ok_or_else(|| Failure::of("up", format_args!("the server said {line:?}")))
}

fn start_mount(place: &Place, data: &Path, transport: Transport) -> Result<(), Failure> {
    // Root's mount takes the place of a dead one; an ordinary user's cannot.
    if !geteuid().is_root() && place.is_dead()? {
        umount::unmount(&place.mount)?;
    }
    let arguments: Vec<OsString> = vec![
        "mount".into(),
        place.server.to_string().into(),
        (&place.mount).into(),
        "--log".into(),
        data.join(MOUNT_LOG).into(),
        "--credentials".into(),
        Cell::credentials(&trust::cell_dir(data), Role::Machine).into(),
        "--transport".into(),
        transport.word().into(),
    ];
    daemon::launch(&arguments)?;
    Ok(())
}

fn tell(place: &Place, data: &Path, already: bool) {
    let (server, mount, data) = (place.server, place.mount.display(), data.display());
    let again = if already { " already" } else { "" };
    show::print(&format!(
        "Ariel is up{again}: {mount} shows the tree of the server at {server}.\n\n\
         Try:    echo hello > {mount}/hello; ls -l {mount}\n\
         Again:  ariel mount {server} DIR     mounts the same tree once more\n\
         Others: ariel join-token --data {data}     lets another machine join\n\
         Look:   ariel status {mount}\n\
         Logs:   {data}/{}, {data}/{MOUNT_LOG}\n\
         End:    ariel down --data {data}",
        serve::LOG
    ));
}

pub(crate) fn down(args: &DownArgs) -> Result<ExitCode, Failure> {
    let data = data(args.data.as_deref())?;
    let Some(place) = Place::read(&data) else {
        show::print(&format!("nothing is up of {}", data.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let mut ended = Vec::new();
    if place.is_mounted()? || place.is_dead()? {
        umount::unmount(&place.mount)
            .map_err(|error| Failure::of("down", format_args!("{error:#}")))?;
        ended.push(format!("unmounted {}", place.mount.display()));
    }
    if place.serves(&data)? {
        stop(place.server).map_err(|error| Failure::of("down", format_args!("{error:#}")))?;
        ended.push(format!("stopped the server at {}", place.server));
    }
    if ended.is_empty() {
        ended.push(format!("nothing is up of {}", data.display()));
    }
    show::print(&ended.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// Stops a server and waits until its store is closed.
fn stop(server: SocketAddr) -> anyhow::Result<()> {
    let name = runtime::of_server(server.port());
    match control::ask(&name, "stop", Some(STOP_TIMEOUT))? {
        Some(answer) => match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(()),
        },
        // It has ended meanwhile.
        None => Ok(()),
    }
}

/// The store's directory, as the server names it.
fn data(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let data = match given {
        Some(dir) => dir.to_owned(),
        None => paths::default_data()?,
    };
    std::path::absolute(data).map_err(|error| Failure::of("--data", error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_place_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Place::read(dir.path()), None);
        let place = Place {
            server: "127.0.0.1:7000".parse().unwrap(),
            mount: PathBuf::from("/mnt/a b"),
        };
        place.write(dir.path()).unwrap();
        assert_eq!(Place::read(dir.path()), Some(place));
        std::fs::write(dir.path().join(STATE), "rubbish").unwrap();
        assert_eq!(Place::read(dir.path()), None);
    }
}
