//! `ariel volume move`: the server that takes the volume does the work, and this shows how far it
//! is.

use super::progress::bar;
use super::volume::say;
use crate::args::MoveArgs;
use crate::failure::{FAILED, Failure};
use crate::servers::{ask_stores, running, volume_elsewhere};
use cell::{AskError, Moving, Stage, StoreAnswer, StoreQuestion};
use indicatif::ProgressBar;
use net::Addresses;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use wire::VolumeState;

const LINE: &str = "{spinner} {bytes:>11} of {total_bytes:<11} {bar:20} {bytes_per_sec:>13}  {msg}";
const WHAT: &str = "volume move";
/// How often the server is asked how far it is: it answers questions, and says nothing unasked. The
/// move, or the silence of the server, bounds how long.
const POLL: Duration = Duration::from_millis(200);
/// For so long a server that does not answer is asked again.
const AWAY: Duration = Duration::from_secs(10);

/// The server that takes the volume.
struct Taker {
    name: String,
    addresses: Addresses,
    credentials: PathBuf,
}

impl Taker {
    fn of(args: &MoveArgs) -> Result<Taker, Failure> {
        let running = running(WHAT, &args.at.server, &args.at.trust)?;
        let Some(credentials) = running.trust.credentials.clone() else {
            return Err(Failure::of(
                WHAT,
                "volumes move between the servers of a cell only",
            ));
        };
        let named = running.servers.into_iter().find(|one| one.name == args.to);
        let found = named.map(|one| Taker {
            name: one.name,
            addresses: one.addresses,
            credentials,
        });
        found.ok_or_else(|| {
            let text = format!(
                "the cell has no server {} that runs: `ariel cell servers` on a server shows all",
                args.to
            );
            Failure::of(WHAT, text)
        })
    }

    fn ask(&self, question: StoreQuestion) -> Result<Moving, Failure> {
        let at = (&self.addresses, self.credentials.as_path());
        match ask_stores(WHAT, at, question)? {
            StoreAnswer::Moving(moving) => Ok(moving),
            _ => Err(Failure::of(WHAT, AskError::Strange)),
        }
    }
}

pub(super) fn move_volume(args: &MoveArgs) -> Result<ExitCode, Failure> {
    say(&moved(args)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Moves a volume, or takes a move back; what is to be told of it.
pub(super) fn moved(args: &MoveArgs) -> Result<String, Failure> {
    let (taker, volume) = (Taker::of(args)?, args.name.to_string());
    if args.cancel {
        taker.ask(StoreQuestion::Cancel {
            volume: volume.clone(),
        })?;
    } else {
        let number = number(args)?;
        taker.ask(StoreQuestion::Move {
            volume: volume.clone(),
            number,
        })?;
    }
    let ended = follow(&taker, &volume, args.quiet)?;
    match (ended.stage, args.cancel) {
        (Stage::Failed(_), true) => Ok(format!("{volume} stays on {}\n", ended.from)),
        (Stage::Failed(why), false) => Err(Failure::of(&volume, why)),
        (_, true) => {
            let text = format!("it was too late: the volume is on {} now", taker.name);
            Err(Failure::of(&volume, text))
        }
        (_, false) => Ok(format!(
            "{volume} is on {} now: {} bytes were carried, and programs waited for {} ms\n",
            taker.name, ended.carried_bytes, ended.pause_ms
        )),
    }
}

/// The number of the volume: names may be used twice.
fn number(args: &MoveArgs) -> Result<u32, Failure> {
    let at = (&args.at.trust, &args.name);
    let found = volume_elsewhere(WHAT, &args.at.server, at)?;
    let present = found.filter(|(_, info)| info.state == VolumeState::Present);
    let number = present.map(|(_, info)| info.id);
    number.ok_or_else(|| {
        let text = "there is no such volume: see `ariel volume list --all`";
        Failure::of(&args.name.to_string(), text)
    })
}

/// Shows how far it is, until it is over.
fn follow(taker: &Taker, volume: &str, quiet: bool) -> Result<Moving, Failure> {
    let bar = bar(quiet, LINE, None);
    let mut heard = Instant::now();
    loop {
        let question = StoreQuestion::Progress {
            volume: volume.to_owned(),
        };
        match taker.ask(question) {
            Ok(moving) if matches!(moving.stage, Stage::Done | Stage::Failed(_)) => {
                bar.finish_and_clear();
                return Ok(moving);
            }
            Ok(moving) => {
                heard = Instant::now();
                show(&bar, &moving);
            }
            Err(_) if heard.elapsed() < AWAY => {}
            Err(error) => {
                bar.finish_and_clear();
                let text = format!(
                    "{error}\nWhether {volume} is on {} is told by `ariel volume list --all`; the \
                     same command goes on with the move",
                    taker.name
                );
                return Err(Failure::new(FAILED, text));
            }
        }
        // The server sends no event; the move bounds this, or the server's silence.
        thread::sleep(POLL);
    }
}

fn show(bar: &ProgressBar, moving: &Moving) {
    let stage = match &moving.stage {
        Stage::Copies { round } => format!("round {round}"),
        _ => "the last round: programs wait".to_owned(),
    };
    bar.set_message(stage);
    bar.set_length(moving.store_bytes.max(moving.carried_bytes));
    bar.set_position(moving.carried_bytes);
}
