//! `ariel status` and `ariel tokens`: asks the process behind a mount point or an address. (So does
//! `ariel profile`.)

use crate::args::{StatusArgs, TokensArgs};
use crate::failure::Failure;
use crate::{control, paths, runtime, serve, show};
use net::Addresses;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let found = ask("status", &args.target)?;
    if args.json {
        show::print(&format!("{found:#}"));
    } else {
        show::print(&show::status_text(&found));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn tokens(args: &TokensArgs) -> Result<ExitCode, Failure> {
    let found = ask("tokens", &args.target)?;
    if args.json {
        show::print(&format!("{found:#}"));
    } else {
        show::print(&show::tokens_text(&found));
    }
    Ok(ExitCode::SUCCESS)
}

/// A server's address, when the target is one.
fn address(target: &str) -> Option<SocketAddr> {
    let addresses: Addresses = target.parse().ok()?;
    addresses.resolve().ok()?.first().copied()
}

/// Is a mount of Ariel there that nobody serves?
fn is_dead(point: &Path) -> bool {
    let entry = fuse::mount::find(point).ok().flatten();
    entry.is_some_and(|entry| entry.is_ariel() && entry.is_dead())
}

/// The answer of the process behind the target.
pub(crate) fn ask(word: &str, target: &str) -> Result<Value, Failure> {
    let failed = |error: anyhow::Error| Failure::of(word, format_args!("{target}: {error:#}"));
    if let Some(addr) = address(target) {
        return match serve::ask(addr, word).map_err(failed)? {
            Some(answer) => Ok(answer),
            None => Err(Failure::of(
                word,
                format_args!(
                    "no server of this user answers at {addr} on this machine: start one with \
                     `ariel serve --data DIR --listen {addr}`, or name a mount point"
                ),
            )),
        };
    }
    let point = paths::mount_point(Path::new(target)).map_err(|error| failed(error.into()))?;
    let name = runtime::of_mount(&point);
    match control::ask(&name, word, Some(control::ANSWER_TIMEOUT)).map_err(failed)? {
        Some(answer) => Ok(answer),
        None if is_dead(&point) => Err(Failure::of(
            word,
            format_args!(
                "the process of the mount at {target} is dead: its log says what becomes of that; \
                 `ariel mount ADDR {target}` mounts again, `ariel umount {target}` takes it away"
            ),
        )),
        None => Err(Failure::of(
            word,
            format_args!(
                "no mount of this user is at {target}: mount it with `ariel mount ADDR {target}`, \
                 or see the mounts with `findmnt -t fuse.ariel`"
            ),
        )),
    }
}
