//! `ariel volume release`: what a volume is now goes to all of its replicas, and readers see it.
//!
//! Guarantees: a release is one snapshot of the volume, the same at all servers, and readers see
//! all of it or nothing. It is made when the cell's record says so, which it does after a server
//! has all of it on its disk; before that nothing happened, from then on the servers that have it
//! publish it, with this command or without. A number that a server may have received for one
//! snapshot is never given to another one.

mod feeder;
mod replica;
mod source;

pub(super) use source::release_number;

use super::names::size_text;
use super::progress::Progress;
use super::volume::say;
use crate::args::{ReleaseArgs, TrustArgs};
use crate::failure::{FAILED, Failure};
use crate::servers::{self, Running};
use cell::Replicas;
use feeder::Feeders;
use replica::Replica;
use source::Source;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use wire::{REPLICA_SUFFIX, is_replica_name, volume_numbers};

const WHAT: &str = "volume release";

pub(super) fn release(args: &ReleaseArgs) -> Result<ExitCode, Failure> {
    if is_replica_name(args.name.as_bytes()) {
        let name = args.name.to_string();
        let suffix = String::from_utf8_lossy(REPLICA_SUFFIX).into_owned();
        let of = name.strip_suffix(&suffix).unwrap_or(&name);
        let text = format!(
            "it is a replica, which releases of {of} alone change: `ariel volume release ADDR {of}`"
        );
        return Err(Failure::of(&name, text));
    }
    let running = servers::running(WHAT, &args.at.server, &args.at.trust)?;
    let source = Source::find(args, &running)?;
    source.ends_in_order()?;
    let done = claimed(&source, &running, args);
    let closed = source.close();
    let code = done?;
    closed.map(|()| code)
}

/// The release, by the one command that makes releases of the volume.
fn claimed(source: &Source, running: &Running, args: &ReleaseArgs) -> Result<ExitCode, Failure> {
    source.claim(|| {
        tell(
            &args.name,
            "another release of it is under way, or was ended some seconds ago: this one waits",
        );
    })?;
    let progress = Progress::new(args.quiet);
    loop {
        let mut release = Release::begin(source, running, &progress)?;
        let made = release.make(args.keep);
        progress.end();
        let was_interrupted = made.and_then(|was_interrupted| {
            release.report(was_interrupted)?;
            Ok(was_interrupted)
        });
        let is_whole = release.close();
        if !was_interrupted? {
            return Ok(match is_whole {
                true => ExitCode::SUCCESS,
                false => ExitCode::from(FAILED),
            });
        }
    }
}

/// Tells something beside the output.
fn tell(of: impl Display, text: &str) {
    // Where standard error is gone, there is nobody to tell.
    let _ = writeln!(io::stderr(), "ariel: {WHAT}: {of}: {text}");
}

/// A server that has a replica.
struct Server {
    name: String,
    /// `None`: the server is not reached.
    replica: Option<Replica>,
    /// The reason why it does not take part any more.
    trouble: Option<String>,
}

impl Server {
    fn named(name: &str) -> Server {
        Server {
            name: name.to_owned(),
            replica: None,
            trouble: None,
        }
    }

    fn reach(&mut self, running: &Running, record: &Replicas) {
        let mut all = running.servers.iter();
        let found = all.find(|one| one.name == self.name);
        let replica = found
            .ok_or_else(|| "it does not run".to_owned())
            .and_then(|one| Replica::connect(&running.trust, &one.addresses, record));
        match replica {
            Ok(replica) => self.replica = Some(replica),
            Err(why) => self.trouble = Some(not_reached(&why)),
        }
    }

    fn takes_part(&self) -> bool {
        self.trouble.is_none()
    }

    /// The release that readers see there; 0: none, or nobody knows.
    fn published(&self) -> u32 {
        self.replica.as_ref().map_or(0, Replica::published)
    }
}

fn not_reached(why: &str) -> String {
    format!(
        "{why}. See whether it runs, with `ariel cell servers`: the next release brings it up, and \
         it shows readers no older one"
    )
}

/// One release on its way to the servers.
struct Release<'a> {
    source: &'a Source,
    progress: &'a Progress,
    /// As it was at the beginning.
    record: Replicas,
    number: u32,
    servers: Vec<Server>,
}

impl<'a> Release<'a> {
    /// The next release, with the servers that are reached.
    fn begin(
        source: &'a Source,
        running: &Running,
        progress: &'a Progress,
    ) -> Result<Release<'a>, Failure> {
        let record = source.begin()?;
        let number = record.release.saturating_add(1);
        if volume_numbers::release(record.replica(), number).is_none() {
            return Err(source.failure(
                "its replicas have had as many releases as they have numbers: take all of them \
                 away with `ariel volume replicate --not-on`, and make them anew",
            ));
        }
        let mut servers: Vec<Server> = record
            .servers
            .iter()
            .map(|name| Server::named(name))
            .collect();
        thread::scope(|scope| {
            for server in &mut servers {
                scope.spawn(|| server.reach(running, &record));
            }
        });
        Ok(Release {
            source,
            progress,
            number,
            servers,
            record,
        })
    }

    /// Does something at all servers that take part, at the same time.
    fn each(&mut self, work: impl Fn(&mut Replica) -> Result<(), String> + Sync) {
        let work = &work;
        thread::scope(|scope| {
            for server in self.servers.iter_mut().filter(|one| one.takes_part()) {
                let (replica, trouble) = (&mut server.replica, &mut server.trouble);
                scope.spawn(move || *trouble = replica.as_mut().and_then(|it| work(it).err()));
            }
        });
    }

    /// Makes the release. True: it is that of an earlier command, and the volume may have changed.
    fn make(&mut self, keep: u32) -> Result<bool, Failure> {
        let (source, progress, number) = (self.source, self.progress, self.number);
        let made = self.record.release;
        self.each(|replica| replica.publish_up_to(made));
        let was_interrupted = self.freeze()?;
        let feeders = self.feeders()?;
        self.each(|replica| replica.prepare(number, &feeders, progress));
        if !self.servers.iter().any(Server::takes_part) {
            return Err(self.abandon(was_interrupted));
        }
        source.is_claimed()?;
        source.make(number, self.record.turn)?;
        self.each(|replica| replica.publish(number));
        let below = (number + 1).saturating_sub(keep);
        self.each(|replica| replica.drop_below(below));
        // A server that is not reached may need any of them.
        let least = self.servers.iter().map(Server::published).min();
        if let Err(error) = source.remove_below(least.unwrap_or(0).min(number)) {
            // The release is made all the same, and the next one removes them.
            progress.beside(|| tell(source.name(), &format!("older snapshots stay: {error}")));
        }
        Ok(was_interrupted)
    }

    /// The stores from which releases come: that of the volume first.
    fn feeders(&self) -> Result<Feeders, Failure> {
        let fed = |server: &Server| Some(server.replica.as_ref()?.feeder(&server.name));
        let of_replicas = self.servers.iter().filter_map(fed);
        let all = std::iter::once(self.source.feeder()?).chain(of_replicas);
        let mut servers = self.servers.iter();
        Ok(Feeders {
            all: all.collect(),
            begins: servers.all(|one| one.replica.is_some() && one.published() == 0),
        })
    }

    /// Makes the snapshot. True: that of an earlier command stays, which was interrupted, since not
    /// every server says that it has nothing of it.
    fn freeze(&mut self) -> Result<bool, Failure> {
        let number = self.number;
        if self.source.releases()?.contains(&number) {
            self.each(|replica| replica.give_up(number));
            let silent = self.servers.iter().filter(|one| !one.takes_part());
            let silent: Vec<&str> = silent.map(|one| one.name.as_str()).collect();
            if !silent.is_empty() {
                let text = format!(
                    "release {number} was interrupted, and {} may have all of it: it is made \
                     first, and then one more of what the volume is now",
                    silent.join(", ")
                );
                self.progress.beside(|| tell(self.source.name(), &text));
                return Ok(true);
            }
            self.source.remove(number)?;
        }
        self.source.freeze(number)?;
        Ok(false)
    }

    /// No server has it. The snapshot goes if no server can have any of it.
    fn abandon(&mut self, was_interrupted: bool) -> Failure {
        let number = self.number;
        let told = self.servers.iter().map(|server| {
            let why = server.trouble.as_deref().unwrap_or_default();
            format!("{}: {why}", server.name)
        });
        let told: Vec<String> = told.collect();
        if let Err(error) = self.source.is_claimed() {
            // The snapshot and the halves may be the other command's.
            return error;
        }
        for server in self.servers.iter_mut() {
            server.trouble = server.replica.is_none().then(String::new);
        }
        self.each(|replica| replica.give_up(number));
        let mut reached = self.servers.iter().filter(|one| one.replica.is_some());
        if !was_interrupted && reached.all(Server::takes_part) {
            // The next command gives it up where this one cannot.
            let _ = self.source.remove(number);
        }
        self.source.failure(format!(
            "release {number} is not made, since no server has got it. {}",
            told.join("; ")
        ))
    }

    fn report(&self, was_interrupted: bool) -> Result<(), Failure> {
        for server in &self.servers {
            let replica = server.replica.as_ref();
            if let Some(replica) = replica.filter(|it| it.published() == self.number) {
                let (name, number) = (&server.name, self.number);
                let (bytes, size) = (replica.sent_bytes(), size_text(replica.sent_bytes()));
                say(&format!(
                    "{name}: release {number}, {bytes} bytes ({size}) sent\n"
                ))?;
            }
            if let Some(why) = server.trouble.as_ref().filter(|_| !was_interrupted) {
                tell(&server.name, why);
            }
        }
        Ok(())
    }

    /// Ends the sessions. True: all servers have the release.
    fn close(self) -> bool {
        let is_whole = self.servers.iter().all(Server::takes_part);
        for replica in self.servers.into_iter().filter_map(|one| one.replica) {
            replica.close();
        }
        is_whole
    }
}
