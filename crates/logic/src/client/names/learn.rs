//! Names: what replies about them teach, and what the kernel may keep of them.

use crate::Ticket;
use crate::client::api::{Call, Done, Lifetime};
use crate::client::data::inline_data;
use crate::client::mutant::Mutant;
use crate::client::{Client, Running, Step};
use alloc::vec::Vec;
use wire::{
    Access, Attr, Caller, Entry, Fid, Kind, Name, Op, Outcome, Refusal, RequestId, Right, Time,
};

impl Client {
    /// A reply to an operation on names has come, with these grants that count.
    pub(crate) fn on_names(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Ticket, RequestId),
        op: &Op,
        (outcome, granted, bytes): (Outcome, Vec<Fid>, u32),
    ) {
        if self.comes_to_mount(step, (ticket, op), (&outcome, &granted)) {
            return;
        }
        let came = inline_data::came(op, (&outcome, &granted), bytes);
        let looked_up = self.looker(ticket, op);
        let found = matches!(outcome, Outcome::Entry(_));
        let done = match (op, outcome) {
            (Op::Lookup { .. }, Outcome::Entry(entry))
                if match granted.contains(&entry.fid) {
                    true => self.waits_for_page(ticket, entry.fid, entry.attr.size),
                    false => self.asked_again(step, (ticket, id), (entry.fid, &entry.attr)),
                } =>
            {
                return;
            }
            (Op::Lookup { dir, name }, Outcome::Entry(entry)) => {
                self.entry(step, (*dir, name), entry, (&granted, false))
            }
            (Op::Lookup { dir, name }, Outcome::Absent { dir: attr }) => {
                let kept = self.name_is((*dir, name), None, attr, &granted);
                Done::Absent {
                    lifetime: self.name_lifetime(kept),
                }
            }
            (Op::Make { .. }, Outcome::Entry(entry)) => self.made(step, op, (entry, &granted)),
            (Op::MakeNameless { open, .. }, Outcome::Entry(entry)) => {
                self.made_nameless(step, *open, (entry, &granted))
            }
            (Op::Link { dir, name, .. }, Outcome::Entry(entry)) => {
                self.linked(step, (*dir, name), (entry, &granted))
            }
            (
                Op::Unlink { dir, name } | Op::Rmdir { dir, name } | Op::Unmount { dir, name },
                Outcome::Removed {
                    fid,
                    attr,
                    dir: after,
                },
            ) => {
                self.node(*dir).renew_listing();
                self.name_is((*dir, name), None, after, &granted);
                self.lost_name(step, fid, attr);
                Done::Nothing
            }
            (Op::Rename { .. }, outcome @ Outcome::Renamed { .. }) => {
                return self.renamed(step, (ticket, id), op, (outcome, granted));
            }
            _ => Done::Refused(Refusal::Invalid),
        };
        self.finish(step, ticket, done);
        self.reserve_for(step, op);
        if let Some(brought) = came {
            self.bytes_came(step, brought);
        }
        match looked_up {
            Some((dir, caller)) if found => self.walk_missed(step, dir, &caller),
            Some((dir, caller)) => self.missed_name(step, dir, &caller),
            None => {}
        }
    }

    /// The directory of a look-up, and its caller.
    fn looker(&self, ticket: Ticket, op: &Op) -> Option<(Fid, Caller)> {
        let running = self.callers.calls.get(&ticket)?;
        match op {
            Op::Lookup { dir, .. } => Some((*dir, running.caller.clone())),
            _ => None,
        }
    }

    fn made(&mut self, step: &mut Step<'_>, op: &Op, (entry, granted): (Entry, &[Fid])) -> Done {
        let Op::Make {
            dir, name, open, ..
        } = op
        else {
            return Done::Refused(Refusal::Invalid);
        };
        let fid = entry.fid;
        let done = self.entry(step, (*dir, name), entry, (granted, true));
        let node = self.node(fid);
        node.untold.private = node.token.right == Right::Exclusive;
        if let Some(access) = open {
            node.opened(*access);
        }
        if node.untold.private && node.directory {
            // Nobody else has made anything in it.
            if node.dir.names.is_empty() {
                (node.dir.whole, node.dir.last) = (true, Some(0));
            }
            self.reserve_if_low(step);
        }
        done
    }

    /// A file was made that has no name: if it gets none it goes with its last descriptor.
    fn made_nameless(
        &mut self,
        step: &mut Step<'_>,
        access: Access,
        (entry, granted): (Entry, &[Fid]),
    ) -> Done {
        let Entry { fid, attr, .. } = entry;
        self.changed(fid, attr.clone(), granted.contains(&fid));
        let (attr, attr_lifetime) = self.to_say(fid, attr);
        let node = self.node(fid);
        node.kernel.is_told(step.now);
        node.untold.private = node.token.right == Right::Exclusive;
        node.unlinked = true;
        node.opened(access);
        Done::Entry {
            fid,
            attr,
            name_lifetime: Lifetime::None,
            attr_lifetime,
            cached: false,
        }
    }

    fn linked(
        &mut self,
        step: &mut Step<'_>,
        place: (Fid, &Name),
        (entry, granted): (Entry, &[Fid]),
    ) -> Done {
        // It may be the first name.
        self.node(entry.fid).unlinked &= entry.attr.nlink == 0;
        let mut done = self.entry(step, place, entry, (granted, true));
        if let Done::Entry { attr_lifetime, .. } = &mut done {
            // The kernel takes the attributes of a link over unconditionally.
            *attr_lifetime = Lifetime::None;
        }
        done
    }

    fn name_lifetime(&self, kept: bool) -> Lifetime {
        Self::lifetime(kept || self.options.mutant == Some(Mutant::NamesWithoutToken))
    }

    /// A name now names this. Kept only if a grant of the directory vouches for it.
    pub(crate) fn name_is(
        &mut self,
        (dir, name): (Fid, &Name),
        means: Option<(Fid, Kind)>,
        attr: Attr,
        granted: &[Fid],
    ) -> bool {
        let vouched = granted.contains(&dir);
        self.learn(dir, attr, vouched);
        let node = self.node(dir);
        if vouched && node.token.right >= Right::Shared && node.dir.doubtful == 0 {
            node.set_name(name, means);
        } else {
            node.dir.names.remove(name);
            node.not_whole();
        }
        let lasting = vouched && node.lasting();
        if let Some(node) = means.and_then(|(fid, _)| self.nodes.get_mut(&fid)) {
            node.is_in(dir);
        }
        self.count_name();
        lasting
    }

    fn entry(
        &mut self,
        step: &mut Step<'_>,
        (dir, name): (Fid, &Name),
        entry: Entry,
        (granted, changes): (&[Fid], bool),
    ) -> Done {
        let Entry {
            fid,
            attr,
            dir: dir_attr,
        } = entry;
        if changes {
            self.node(dir).renew_listing();
        }
        let kept = self.name_is((dir, name), Some((fid, attr.kind)), dir_attr, granted);
        if changes {
            self.changed(fid, attr.clone(), granted.contains(&fid));
        } else if granted.contains(&fid) {
            self.learn(fid, attr.clone(), true);
        }
        let (attr, attr_lifetime) = self.to_say(fid, attr);
        let node = self.node(fid);
        node.is_in(dir);
        node.kernel.is_told(step.now);
        node.directory |= attr.kind == Kind::Directory;
        let name_lifetime = self.name_lifetime(kept);
        Done::Entry {
            fid,
            attr,
            name_lifetime,
            attr_lifetime,
            cached: false,
        }
    }

    /// The answer of a call; of one that enters an object by its number, or has come to it through
    /// a mount point, it hands the kernel that.
    pub(crate) fn entered(&mut self, now: Time, running: &Running, done: Done) -> Done {
        let Done::Attr { attr, lifetime } = &done else {
            return done;
        };
        let fid = match &running.call {
            Call::Enter { fid } => fid,
            Call::Op(Op::Lookup { dir, name }) => {
                let told = (attr.clone(), *lifetime);
                let crossed = |root| self.crossed(now, (*dir, name), told, root);
                return running.crosses.map_or(done, crossed);
            }
            _ => return done,
        };
        let node = self.node(*fid);
        node.kernel.is_told(now);
        node.directory |= attr.kind == Kind::Directory;
        Done::Entry {
            fid: *fid,
            attr: attr.clone(),
            name_lifetime: Lifetime::None,
            attr_lifetime: *lifetime,
            cached: false,
        }
    }

    /// An object has lost a name: perhaps its last.
    fn lost_name(&mut self, step: &mut Step<'_>, fid: Fid, attr: Attr) {
        let gone = attr.nlink == 0;
        if self.nodes.contains_key(&fid) {
            self.changed(fid, attr, false);
            self.node(fid).kernel.size_moved(step.now);
            if gone {
                self.node(fid).unlinked = true;
                self.bury_if_unused(step, fid);
            }
            self.retire(step, fid);
        } else if gone {
            // The server may believe that a token is still here, and keep the file for it.
            self.disclaim(step, fid);
        }
    }

    /// Nothing is held here of an object that is not known. A grant of it may be on its way still,
    /// in the answer to a call that nobody waits for: what this gives back is void when it comes.
    fn disclaim(&mut self, step: &mut Step<'_>, fid: Fid) {
        let stamp = self.stamp();
        let hold = wire::Hold {
            stamp,
            ..wire::Hold::default()
        };
        let (epoch, right) = (self.granted, Right::None);
        self.forgotten.floor = self.forgotten.floor.max(epoch + 1);
        self.state_it(
            step,
            fid,
            stamp,
            wire::ToServer::Release {
                fid,
                epoch,
                right,
                hold,
            },
        );
    }

    fn renamed(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Ticket, RequestId),
        op: &Op,
        (outcome, granted): (Outcome, Vec<Fid>),
    ) {
        let Op::Rename {
            from,
            name,
            to,
            new,
            exchange,
            ..
        } = op
        else {
            return;
        };
        let whiteout = op.leaves_whiteout();
        let exchange = *exchange && !whiteout;
        let Outcome::Renamed {
            fid,
            attr,
            victim,
            from: from_attr,
            to: to_attr,
        } = outcome
        else {
            return;
        };
        self.node(*from).renew_listing();
        self.node(*to).renew_listing();
        let victim_fid = victim.as_ref().map(|(fid, _)| *fid);
        // Both names may have been names of one object: then nothing was moved, and nobody says so.
        // A rename that was done here is known.
        let several = attr.kind != Kind::Directory && attr.nlink > 1;
        let unsure = victim_fid.is_none() && several && !self.asked.requests.contains_key(&id);
        let left = victim
            .as_ref()
            .filter(|_| exchange)
            .map(|(fid, attr)| (*fid, attr.kind));
        // Which number a whiteout has is not said.
        let mut kept = if unsure || whiteout {
            let vouched = granted.contains(from);
            self.learn(*from, from_attr, vouched);
            let node = self.node(*from);
            node.dir.names.remove(name);
            node.not_whole();
            vouched
        } else {
            self.name_is((*from, name), left, from_attr, &granted)
        };
        kept &= self.name_is((*to, new), Some((fid, attr.kind)), to_attr, &granted);
        self.changed(fid, attr, granted.contains(&fid));
        let exchanged = victim_fid.filter(|_| exchange);
        self.kernel.moves([Some(fid), exchanged]);
        if let Some((victim, attr)) = victim {
            if exchange {
                self.changed(victim, attr, false);
            } else {
                self.lost_name(step, victim, attr);
            }
        }
        if !kept {
            self.uncover(op, exchange);
        }
        self.finish(step, ticket, Done::Nothing);
        self.kernel.uncovers(Vec::new());
    }

    /// The kernel moves a name with its old lifetime to a place where nothing covers it.
    fn uncover(&mut self, op: &Op, exchange: bool) {
        let Op::Rename {
            from,
            name,
            to,
            new,
            ..
        } = op
        else {
            return;
        };
        let moved = [(*from, name, *to, new), (*to, new, *from, name)];
        let moved = moved.into_iter().take(if exchange { 2 } else { 1 });
        let moved = moved.filter(|(dir, name, ..)| self.lasts(*dir, name));
        let moved = moved.map(|(_, _, dir, name)| (dir, name.clone()));
        self.kernel.uncovers(moved.collect());
    }
}
