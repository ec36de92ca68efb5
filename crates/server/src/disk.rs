//! The store as the machine sees it: fids and numbers of bulks in, outcomes out.

use crate::bulks::Bulks;
use crate::held::HeldLog;
use crate::sharing::Share;
use logic::server::{Bulk, By, Disk, On};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Apply, Store};
use wire::{
    Attr, Caller, Digest, Fid, MachineId, Name, Op, Origin, Outcome, Refusal, RequestId, Right,
    RoomOfDisk, SessionId, Time, VolumeInfo,
};

/// The store, the bytes beside messages, and whether something was applied.
pub(crate) struct StoreDisk<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) bulks: &'a mut Bulks,
    pub(crate) held: &'a mut HeldLog,
    /// Something was logged: it must leave the process before the next message does.
    pub(crate) logged: &'a mut bool,
    /// It must be stable before.
    pub(crate) firm: &'a mut bool,
    /// The promises of other stores on the same disk, if there are some.
    pub(crate) share: Option<&'a Share>,
}

impl StoreDisk<'_> {
    /// Bytes of logs that other stores have promised.
    fn promised_elsewhere(&self) -> u64 {
        self.share.map_or(0, Share::of_others)
    }
}

impl Disk for StoreDisk<'_> {
    fn wall(&self) -> Time {
        net::clock::wall_ns()
    }

    fn apply(
        &mut self,
        now: Time,
        op: &Op,
        By {
            caller,
            origin,
            delegated,
            again: _,
            promised,
        }: By<'_>,
        bulk: Bulk,
    ) -> Outcome {
        let data = self.bulks.take(bulk);
        *self.logged |= op.changes();
        let apply = Apply {
            op,
            caller,
            now,
            origin,
            data: &data,
            delegated,
        };
        let promised = promised.map(|promised| RoomOfDisk {
            log_bytes: promised.log_bytes.saturating_add(self.promised_elsewhere()),
            ..promised
        });
        let outcome = self.store.apply_beside(apply, promised);
        match outcome {
            Outcome::Refused(Refusal::NoSpace | Refusal::Quota) => self.bulks.put_back(bulk, data),
            _ => net::spare::give(data),
        }
        outcome
    }

    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> (Outcome, Bulk) {
        let mut bytes = net::spare::take(len as usize);
        let outcome = self.store.read(fid, offset, len, &mut bytes);
        let bulk = match outcome {
            Outcome::Read { .. } => self.bulks.keep(bytes),
            _ => 0,
        };
        (outcome, bulk)
    }

    fn digests(&self, bulk: Bulk) -> Vec<Digest> {
        const BLOCK: usize = wire::limits::BLOCK_BYTES as usize;
        let digest = |block: &[u8]| {
            if block.len() == BLOCK {
                return Digest(net::digest_of(block));
            }
            let mut whole = [0; BLOCK];
            whole[..block.len()].copy_from_slice(block);
            Digest(net::digest_of(&whole))
        };
        self.bulks.get(bulk).chunks(BLOCK).map(digest).collect()
    }

    fn read_whole(&mut self, files: &[(Fid, u32)]) -> (Vec<u32>, Bulk) {
        let total = files.iter().map(|(_, size)| *size as usize).sum();
        let (mut all, mut bytes) = (Vec::with_capacity(total), Vec::new());
        let read = |&(fid, size): &(Fid, u32)| match self.store.read(fid, 0, size, &mut bytes) {
            Outcome::Read { len, size: end } if len == size && end == u64::from(size) => {
                all.extend_from_slice(&bytes);
                len
            }
            _ => 0,
        };
        let lens = files.iter().map(read).collect();
        (lens, self.bulks.keep(all))
    }

    fn answer(&self, origin: Origin) -> Option<Outcome> {
        self.store.answer(origin)
    }

    fn lookup(&self, dir: Fid, name: &Name) -> Result<Option<Fid>, Refusal> {
        self.store.lookup(dir, name)
    }

    fn attr(&self, fid: Fid) -> Result<Option<Attr>, Refusal> {
        let mut attr = self.store.attr(fid)?;
        if let Some(attr) = &mut attr {
            self.store.show_attr(fid, attr);
        }
        Ok(attr)
    }

    fn bare(&self, fid: Fid) -> bool {
        self.store.is_bare(fid) && !self.store.is_governed(fid)
    }

    fn show(&self, on: On<'_>, op: &Op, outcome: &mut Outcome) {
        let here = self.store.members().on(on.machine, on.name);
        self.store.show(here, op, outcome);
    }

    fn governed(&self, fid: Fid) -> bool {
        self.store.is_governed(fid)
    }

    fn may_lock(&self, caller: &Caller, fid: Fid) -> bool {
        self.store.may_lock(caller, fid)
    }

    fn join_groups(&self, on: Option<On<'_>>, caller: &mut Caller) {
        let members = self.store.members();
        let here = on.map_or(members.everywhere(), |on| members.on(on.machine, on.name));
        here.join(caller);
    }

    fn allows(&self, caller: &Caller, fid: Fid, bit: u16) -> Result<bool, Refusal> {
        self.store.allows(caller, fid, bit)
    }

    fn place(&self, fid: Fid) -> Result<Option<(Fid, Name)>, Refusal> {
        self.store.place(fid)
    }

    fn dirs(&self, fid: Fid) -> Result<Vec<Fid>, Refusal> {
        self.store.dirs(fid)
    }

    fn orphans(&self) -> Vec<Fid> {
        self.store.orphans()
    }

    fn volumes(&self) -> Vec<VolumeInfo> {
        self.store.volumes()
    }

    fn volume_name(&self, volume: u32) -> Option<Name> {
        self.store.volume_name(volume)
    }

    fn changed_by_release(&self, half: u32) -> Option<Arc<BTreeSet<Fid>>> {
        self.store.changed_by_release(half)
    }

    fn room(&self, volume: u32) -> RoomOfDisk {
        let room = self.store.room(volume);
        RoomOfDisk {
            log_bytes: room.log_bytes.saturating_sub(self.promised_elsewhere()),
            ..room
        }
    }

    fn open_session(&mut self, session: SessionId, machine: MachineId) {
        *self.logged = true;
        self.store.open_session(session, machine);
    }

    fn note_time(&mut self, shown: Time) {
        *self.logged = true;
        self.store.note_time(shown);
    }

    fn newest(&self) -> Time {
        self.store.newest()
    }

    fn note_held(&mut self, (session, fid): (SessionId, Fid), most: Right, less: bool) {
        self.held.note((session, fid, most), less);
    }

    fn note_away(&mut self, session: SessionId, away: bool) {
        *self.logged = true;
        self.store.note_away(session, away);
    }

    fn close_session(&mut self, session: SessionId) {
        *self.logged = true;
        self.store.close_session(session);
    }

    fn logged(&self) -> u64 {
        self.store.changed_record()
    }

    fn stable(&self) -> u64 {
        self.store.stable_record()
    }

    fn make_firm(&mut self) {
        *self.firm = true;
    }

    fn forget_answers(&mut self, session: SessionId, below: RequestId) {
        // Written along with the next change: forgetting late harms nobody.
        self.store.forget_answers(session, below);
    }
}
