//! The command that moves the store: it asks a server to take it, and looks how far that is.

use super::{MS, Run};
use crate::world::{NOBODY, World};
use std::rc::Rc;
use wire::Time;

/// How often it looks, as a part of a lease.
const LOOK: Time = 32;
/// It is given again so often.
const TIMES: u32 = 3;

/// How a move is, as far as its server knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Running,
    Done,
    Failed,
}

fn progress(run: &Run) -> Progress {
    let moves = run.site().moves.borrow();
    match moves.as_ref() {
        Some(of) if of.is_running() => Progress::Running,
        Some(of) if of.is_done() => Progress::Done,
        _ => Progress::Failed,
    }
}

impl World {
    /// Somebody moves the store to the server so many behind the one that has it; `again`: and
    /// gives the command once more when it fails.
    pub(crate) fn command_move(self: &Rc<Self>, hops: u32, again: bool) {
        let world = Rc::clone(self);
        let commands = &self.moving.commands;
        commands.set(commands.get() + 1);
        let to = (self.owner() + hops as usize) % self.servers.len();
        let times = if again { TIMES } else { 1 };
        let work = async move {
            for _ in 0..times {
                if !world.faults_on() || world.drive(to).await {
                    break;
                }
                world.sched.sleep(5 * MS).await;
            }
            let commands = &world.moving.commands;
            commands.set(commands.get() - 1);
        };
        self.sched.spawn(NOBODY, work);
    }

    /// One command; false: the move has failed, or its server does not know of it.
    async fn drive(self: &Rc<Self>, to: usize) -> bool {
        let (killed, cancelled) = (&self.moving.killed, &self.moving.cancelled);
        killed.set(false);
        cancelled.set(false);
        let begun = self.ask(to, |run| async move {
            run.begin_move();
            Ok(())
        });
        if begun.await.is_err() {
            return false;
        }
        loop {
            self.sched.sleep(self.plan.server.lease_ns / LOOK).await;
            if killed.get() {
                return true;
            }
            let cancel = cancelled.take();
            let asked = self.ask(to, move |run| async move {
                if let Some(of) = run.site().moves.borrow().as_ref().filter(|_| cancel) {
                    of.cancel();
                }
                Ok(progress(&run))
            });
            match asked.await {
                Ok(Progress::Running) => {}
                Ok(Progress::Done) => return true,
                Ok(Progress::Failed) | Err(_) => return false,
            }
        }
    }
}
