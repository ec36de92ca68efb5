//! Conflicts: the clients that must give up, report or confirm something before a request is done.
//!
//! A request's [`Plan`] says what it looks at and what it changes.

use super::plan::{Plan, View};
use crate::server::Server;
use crate::server::mutant::Mutant;
use crate::server::table::{File, Holder, Unconfirmed, Waiting};
use alloc::vec;
use alloc::vec::Vec;
use wire::{Fid, Name, RequestId, Right, SessionId, What};

/// Something that a client must be asked for.
pub(crate) struct Need {
    pub(crate) session: SessionId,
    pub(crate) fid: Fid,
    pub(crate) what: What,
}

/// A change that must be confirmed.
pub(crate) struct Confirm {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    /// For a request that looks at all of the object, not at one name in it.
    pub(crate) whole: bool,
}

/// The transient rights that a request leaves to their holders.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spares {
    /// None: the caller's own machine must drop its kernel's pages, too.
    Nothing,
    /// That of the caller's machine.
    Own,
    /// All: no byte is changed. A read of locked pages that asks again whenever others take these
    /// back would never end while the change waits for a name; and a look-up of that name, which
    /// holds the lock that its machine must have to drop it, may wait for the pages.
    Pages,
}

/// One holder of one object, if not all are looked at.
pub(crate) type Only = Option<(SessionId, Fid)>;

/// Recalls and questions that must be answered, and changes that must be confirmed.
pub(crate) type Needs = (Vec<Need>, Vec<Confirm>);

impl Server {
    /// The questions to clients, and the changes to confirm, before the request is done.
    pub(crate) fn needs(&self, waiting: &Waiting, plan: &Plan) -> Needs {
        self.cost.judge();
        let mut needs = Vec::new();
        self.find_needs(waiting, plan, None, &mut needs);
        (needs, self.unconfirmed(waiting.session, plan))
    }

    /// The questions to one client about one object.
    pub(crate) fn needs_of(
        &self,
        waiting: &Waiting,
        plan: &Plan,
        only: (SessionId, Fid),
    ) -> Vec<Need> {
        let mut needs = Vec::new();
        self.find_needs(waiting, plan, Some(only), &mut needs);
        needs
    }

    fn find_needs(&self, waiting: &Waiting, plan: &Plan, only: Only, needs: &mut Vec<Need>) {
        for dir in &plan.looks {
            self.need_right(waiting, (*dir, Right::Shared), Spares::Own, (only, needs));
        }
        for (dir, names) in &plan.names {
            self.need_names(waiting, (*dir, names), (only, needs));
        }
        for (fid, keep) in &plan.changes {
            let spares = if plan.leaves_pages(*fid) {
                Spares::Pages
            } else {
                Spares::Own
            };
            self.need_right(waiting, (*fid, *keep), spares, (only, needs));
            if *keep == Right::Shared && !plan.names_in(*fid) {
                self.need_names(waiting, (*fid, &[]), (only, needs));
            }
        }
        if let Some(fid) = plan.resizes {
            self.need_shown(waiting, fid, (only, needs));
        }
        for fid in &plan.shows {
            self.need_attr(waiting, *fid, (only, needs));
        }
        if let Some(used) = plan.uses {
            let spares = if plan.own_pages {
                Spares::Nothing
            } else {
                Spares::Own
            };
            self.need_right(waiting, used, spares, (only, needs));
        }
        if let Some(fid) = plan.reads {
            self.need_right(waiting, (fid, Right::Shared), Spares::Own, (only, needs));
        }
        self.need_gathered(plan, (only, needs));
        if self.grace.lost_changes() {
            self.need_doubted(waiting, plan, (only, needs));
        }
    }

    /// Others are to give up what may have been made of lost changes; of a directory also the
    /// caller's own machine, whose kernel drops its names without a lock that the caller may hold.
    fn need_doubted(&self, waiting: &Waiting, plan: &Plan, (only, needs): (Only, &mut Vec<Need>)) {
        for fid in plan.fids() {
            let holders = self.holders(fid, only);
            needs.extend(holders.filter_map(|(session, holder)| {
                let most = holder.doubted?;
                let own = session == waiting.session && most == Right::None;
                let what = What::Keep(most);
                (!own).then_some(Need { session, fid, what })
            }));
        }
    }

    /// The holders of an object, or one of them.
    pub(crate) fn holders(
        &self,
        fid: Fid,
        only: Only,
    ) -> impl Iterator<Item = (SessionId, &Holder)> {
        let file = self.files.get(&fid);
        let file = file.filter(|_| only.is_none_or(|(_, of)| of == fid));
        let one = only.and_then(|(session, _)| Some((session, file?.holders.get(&session)?)));
        let all = file.filter(|_| only.is_none()).into_iter();
        let all = all.flat_map(|file| file.holders.iter().map(|(id, holder)| (*id, holder)));
        one.into_iter().chain(all)
    }

    /// Others are to drop these names, and the attributes of the directory.
    fn need_names(
        &self,
        waiting: &Waiting,
        (dir, names): (Fid, &[Name]),
        (only, needs): (Only, &mut Vec<Need>),
    ) {
        if self.options.mutant == Some(Mutant::ForgetsNames) {
            return;
        }
        for (session, holder) in self.holders(dir, only) {
            self.cost.look();
            let at = (session, dir);
            let missing = |name: &&Name| !waiting.has_dropped(at, name);
            let attributes = names.is_empty()
                && holder.right == Right::Shared
                && !waiting.stripped.contains(&at);
            // Transient too: names told without a token may be in the kernel's hand (see `told`).
            // The client to which the directory is delegated is asked when it has given that up:
            // till then it may make the names again.
            let holds = session != waiting.session
                && holder.right > Right::None
                && holder.right < Right::Exclusive;
            if !holds || !(attributes || names.iter().any(|name| missing(&name))) {
                continue;
            }
            let names = names.iter().filter(missing).cloned().collect();
            needs.push(Need {
                session,
                fid: dir,
                what: What::Names(names),
            });
        }
    }

    /// Others may keep at most this right.
    fn need_right(
        &self,
        waiting: &Waiting,
        (fid, keep): (Fid, Right),
        spares: Spares,
        (only, needs): (Only, &mut Vec<Need>),
    ) {
        for (session, holder) in self.holders(fid, only) {
            self.cost.look();
            let own = session == waiting.session;
            let spared = match self.options.mutant {
                Some(Mutant::IgnoresExclusive) => keep == Right::Shared,
                Some(Mutant::ForgetsTransients) => holder.right == Right::Transient,
                _ => false,
            };
            let only_pages = holder.right == Right::Transient;
            let in_the_way = if own {
                only_pages && spares == Spares::Nothing
            } else {
                holder.right > keep
                    && !(only_pages && spares == Spares::Pages)
                    && !self.goes_on_reading((session, holder), fid)
            };
            if in_the_way && !spared {
                needs.push(Need {
                    session,
                    fid,
                    what: What::Keep(keep),
                });
            }
        }
    }

    /// Was it given pages of an object that it has changed, and has it not confirmed that? It is
    /// waited for anyway, and asked for the pages when it has: its call may not end before a read
    /// of the same machine does, which asks again whenever pages are taken back before they come.
    fn goes_on_reading(&self, (session, holder): (SessionId, &Holder), fid: Fid) -> bool {
        let asks_early = self.options.mutant == Some(Mutant::SkipsConfirmation);
        holder.right == Right::Transient && !asks_early && self.changed_by(session, fid)
    }

    fn need_attr(&self, waiting: &Waiting, fid: Fid, (only, needs): (Only, &mut Vec<Need>)) {
        let ignored = self.options.mutant == Some(Mutant::IgnoresExclusive);
        if ignored || waiting.attrs.contains_key(&fid) {
            return;
        }
        for (session, holder) in self.holders(fid, only) {
            if session != waiting.session && holder.right == Right::Exclusive {
                needs.push(Need {
                    session,
                    fid,
                    what: What::Attr,
                });
            }
        }
    }

    pub(crate) fn unconfirmed(&self, session: SessionId, plan: &Plan) -> Vec<Confirm> {
        if self.options.mutant == Some(Mutant::SkipsConfirmation) {
            return vec![];
        }
        let mut confirms = Vec::new();
        for (fid, view) in &plan.views {
            let Some(file) = self.files.get(fid) else {
                continue;
            };
            let waits = |change: &&Unconfirmed| change.session != session || plan.freezes.is_some();
            for change in file.unconfirmed.iter().filter(waits) {
                if view.shows(change.name.as_ref()) {
                    confirms.push(Confirm {
                        session: change.session,
                        request: change.request,
                        whole: matches!(view, View::Whole),
                    });
                }
            }
        }
        confirms
    }

    /// Has this client changed this object without having confirmed it?
    pub(crate) fn changed_by(&self, session: SessionId, fid: Fid) -> bool {
        let file: Option<&File> = self.files.get(&fid);
        file.is_some_and(|file| {
            file.unconfirmed
                .iter()
                .any(|change| change.session == session)
        })
    }

    /// Have others changed this object without having confirmed it?
    pub(crate) fn changed_by_others(&self, session: SessionId, fid: Fid) -> bool {
        let file: Option<&File> = self.files.get(&fid);
        file.is_some_and(|file| {
            file.unconfirmed
                .iter()
                .any(|change| change.session != session)
        })
    }
}
