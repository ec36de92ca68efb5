//! Changes that the server has made, answered, and may still lose: it has not said that they are
//! stable. They are kept with their bytes, and asked for again when its machine has lost its power.
//!
//! Guarantees: a change is kept from its answer until its record is stable, and the bytes of a
//! write from the moment at which it leaves, as they were then. After a failure all that is lost is
//! asked for again with the same numbers, in its order, before anything else is: an answered change
//! stays made. Memory is bounded by a part of the cache: of more the server is asked to make it
//! stable, and no more is written back before it has.

use super::LinkState;
use super::asked::Why;
use crate::client::api::Output;
use crate::client::mutant::Mutant;
use crate::client::notices::Event;
use crate::client::piece::Piece;
use crate::client::{Client, Step};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use wire::limits::{AGAIN, BLOCK_BYTES};
use wire::{
    Again, Caller, Chosen, Fid, Hold, Logged, Op, Outcome, Place, Refusal, Reply, Request,
    RequestId, Time, ToClient, ToServer, Welcome,
};

/// Of more changes than these the server is asked to make them stable.
const UNSTABLE_CHANGES_MAX: usize = 16_384;
/// The same of bytes, as a part of the cache; of twice as many no more are written back.
const UNSTABLE_CACHE_PART: u64 = 4;
/// Most bytes under way of what is asked for again, if it is more than one change.
const REPLAY_BYTES_MAX: u64 = 256 << 10;

/// A change that the server may lose.
#[derive(Clone, Debug)]
struct UnstableChange {
    request: Request,
    /// When it was made, and which numbers what it made has.
    at: Time,
    chosen: Chosen,
    /// The objects that the names named which it took away.
    named: [Option<Fid>; 2],
    /// Where it is now in the server's log.
    now: Place,
    /// Bytes that are kept with it.
    bytes: u64,
}

/// The changes that are being asked for again.
#[derive(Clone, Debug, Default)]
struct ReplayUnderWay {
    /// Places of the changes that have not left yet, in their order.
    queue: VecDeque<Place>,
    /// How many have left so far, or will have to.
    index: BTreeMap<Place, u32>,
    count: u32,
    /// Those that are not answered, and their bytes.
    under_way: BTreeMap<RequestId, Place>,
    bytes: u64,
    /// All that are not answered, whether they have left or not.
    owed: BTreeSet<RequestId>,
}

/// All of them, by where each was in the server's log at first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unstable {
    changes: BTreeMap<Place, UnstableChange>,
    bytes: u64,
    /// Up to where the log is known to be stable.
    stable: Place,
    /// The server has been asked to make what there is stable.
    pressed: bool,
    /// It has refused to.
    refused: bool,
    asking: ReplayUnderWay,
    /// Changes whose answers counted as lost, and are to come once more.
    early: BTreeSet<RequestId>,
}

impl Unstable {
    pub(crate) fn len(&self) -> u64 {
        self.changes.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes are those of the changes.
    fn check(&self) {
        assert!(
            !self.changes.is_empty() || self.bytes == 0,
            "bytes are kept of no change"
        );
        assert!(
            self.asking.under_way.len() <= self.asking.owed.len(),
            "more is under way than is owed"
        );
    }

    /// The first request that is asked for again and not answered.
    pub(crate) fn first_owed(&self) -> Option<RequestId> {
        self.asking.owed.first().copied()
    }

    /// How many changes are asked for again since the server has restarted.
    pub(crate) fn count(&self) -> u32 {
        self.asking.count
    }
}

/// The bytes that travel beside a request.
fn bytes(op: &Op) -> u64 {
    match op {
        Op::Write { len, .. } => u64::from(*len),
        _ => 0,
    }
}

/// The size of a kept operation: the bytes beside it, and those within it.
fn kept_bytes(op: &Op) -> u64 {
    match op {
        Op::Restore { chunk, .. } => (chunk.bytes.0.len() + 64 * chunk.pieces.len()) as u64,
        _ => bytes(op),
    }
}

/// The objects whose names a change took away.
fn named(outcome: &Outcome) -> [Option<Fid>; 2] {
    match outcome {
        Outcome::Removed { fid, .. } => [Some(*fid), None],
        Outcome::Renamed { fid, victim, .. } => {
            [Some(*fid), victim.as_ref().map(|(victim, _)| *victim)]
        }
        _ => [None; 2],
    }
}

/// The room may let go of the bytes of a request.
fn let_go(step: &mut Step<'_>, request: &Request) {
    if bytes(&request.op) > 0 {
        let request = request.id;
        step.out.push(Output::Forget { request });
    }
}

/// Is what was answered at this place left?
fn is_left(welcome: &Welcome, place: Place) -> bool {
    let same = |run: &&Place| run.boot == place.boot;
    let left = welcome.left.iter().find(same);
    place.boot == welcome.boot || left.is_some_and(|run| place.record <= run.record)
}

impl Client {
    /// A request is about to leave, perhaps once more: its bytes are those of now, or of then.
    pub(crate) fn keep_bytes(&mut self, step: &mut Step<'_>, id: RequestId) {
        let Some(sent) = self.asked.requests.get_mut(&id) else {
            return;
        };
        if !sent.said && bytes(&sent.request.op) > 0 {
            let kept = vec![Piece::Kept { request: id }];
            let bulk = core::mem::replace(&mut sent.bulk, kept);
            step.out.push(Output::Keep { request: id, bulk });
        }
    }

    /// A request has been answered, or never will be: its bytes are kept for no repetition.
    pub(crate) fn let_bytes_go(&self, step: &mut Step<'_>, sent: &super::asked::Sent) {
        if sent.said {
            let_go(step, &sent.request);
        }
    }

    /// An answer is not taken in yet, and counts as lost. The server has made the change all the
    /// same, and shows it: if it loses it, it is to make it again as it was.
    pub(crate) fn keep_early_change(&mut self, step: &mut Step<'_>, id: RequestId, reply: &Reply) {
        let Some(request) = self
            .asked
            .requests
            .get(&id)
            .map(|sent| sent.request.clone())
        else {
            return;
        };
        if request.op.changes() && reply.logged.is_some() && bytes(&request.op) == 0 {
            self.keep_change(step, &request, reply);
            self.unstable.early.insert(id);
        }
    }

    /// A request has been answered: if it is a change that the server may lose, it is kept.
    pub(crate) fn keep_change(&mut self, step: &mut Step<'_>, request: &Request, reply: &Reply) {
        let same = |kept: &UnstableChange| kept.request.id == request.id;
        if self.unstable.early.remove(&request.id) && self.unstable.changes.values().any(same) {
            return;
        }
        let forgets = self.options.mutant == Some(Mutant::ForgetsUnstable);
        let logged = reply.logged.filter(|_| !forgets);
        let Some(Logged { record, at }) = logged else {
            return let_go(step, request);
        };
        let boot = self.session.boot;
        let place = Place { boot, record };
        if place <= self.unstable.stable || matches!(request.op, Op::Reserve { .. }) {
            return let_go(step, request);
        }
        let mut request = request.clone();
        let mut chosen = request
            .delegated
            .take()
            .map_or(Chosen::default(), |of| of.chosen);
        match (&mut request.op, &reply.outcome) {
            (Op::Make { .. } | Op::MakeNameless { .. }, Outcome::Entry(entry)) => {
                chosen.vnode = entry.fid.vnode;
            }
            // Where it came to be is where it belongs, whatever is there at the time.
            (
                Op::Write { offset, mode, .. },
                Outcome::Written {
                    offset: written, ..
                },
            ) if *mode == wire::WriteMode::Append => {
                (*offset, *mode) = (*written, wire::WriteMode::At);
            }
            _ => {}
        }
        (request.after, request.keeps, request.ahead) = (0, false, 0);
        let bytes = kept_bytes(&request.op);
        self.unstable.bytes += bytes;
        let kept = UnstableChange {
            request,
            at,
            chosen,
            named: named(&reply.outcome),
            now: place,
            bytes,
        };
        // A server may say the same place twice, wrongly; the count stays right.
        if let Some(before) = self.unstable.changes.insert(place, kept) {
            self.unstable.bytes -= before.bytes;
        }
        self.press(step);
    }

    /// The most bytes that are kept before the server is asked to make them stable.
    fn bearable(&self) -> u64 {
        self.cache.slots() * u64::from(BLOCK_BYTES) / UNSTABLE_CACHE_PART
    }

    /// Is so much kept that no more is to be written back?
    pub(crate) fn is_pressed(&self) -> bool {
        self.unstable.bytes > 2 * self.bearable()
    }

    /// Has the server make stable what there is, if it is too much.
    pub(crate) fn press(&mut self, step: &mut Step<'_>) {
        let many = self.unstable.changes.len() > UNSTABLE_CHANGES_MAX;
        if many || self.unstable.bytes > self.bearable() {
            self.ask_for_stability(step);
        }
    }

    fn ask_for_stability(&mut self, step: &mut Step<'_>) {
        let Some(fid) = self.root.filter(|_| !self.unstable.pressed) else {
            return;
        };
        self.unstable.pressed = true;
        let what = (Op::Sync { fid }, Caller::default(), Hold::default());
        self.request(step, what, Vec::new(), Why::Stable);
    }

    /// The server has made stable what there was, or cannot.
    pub(crate) fn on_pressed(&mut self, step: &mut Step<'_>, outcome: &Outcome) {
        self.unstable.pressed = false;
        self.unstable.refused = matches!(outcome, Outcome::Refused(_));
        if !self.unstable.refused {
            self.press(step);
        }
        self.next_cleaner(step);
    }

    /// A message may say up to which record the server's log is stable.
    pub(crate) fn note_stable(&mut self, step: &mut Step<'_>, message: &ToClient) {
        if let ToClient::Reply { stable, .. } | ToClient::Alive { stable, .. } = message {
            self.settle(step, *stable);
        }
    }

    fn settle(&mut self, step: &mut Step<'_>, record: u64) {
        let boot = self.session.boot;
        let stable = Place { boot, record }.max(self.unstable.stable);
        if stable == self.unstable.stable {
            return;
        }
        self.unstable.stable = stable;
        let mut any = false;
        // Changes that were made again are in the log in the same order, behind all that was not
        // lost.
        while let Some(first) = self.unstable.changes.first_entry() {
            let now = first.get().now;
            if now.boot != boot || now.record > record {
                break;
            }
            let kept = first.remove();
            self.unstable.bytes -= kept.bytes;
            let_go(step, &kept.request);
            any = true;
        }
        self.unstable.check();
        if any {
            self.next_cleaner(step);
        }
    }

    /// May the session end? The server must make stable first all changes that it might lose:
    /// nobody will ask for them again.
    pub(crate) fn is_settled(&mut self, step: &mut Step<'_>) -> bool {
        let settled = self.unstable.changes.is_empty() || self.unstable.refused;
        if !settled {
            self.ask_for_stability(step);
        }
        settled
    }

    /// Another run of the server begins: the changes that are left are stable, the others are asked
    /// for again.
    pub(crate) fn look_what_is_left(&mut self, step: &mut Step<'_>, welcome: &Welcome) {
        let unstable = &mut self.unstable;
        let (left, lost): (
            BTreeMap<Place, UnstableChange>,
            BTreeMap<Place, UnstableChange>,
        ) = core::mem::take(&mut unstable.changes)
            .into_iter()
            .partition(|(_, kept)| is_left(welcome, kept.now));
        for kept in left.values() {
            unstable.bytes -= kept.bytes;
            let_go(step, &kept.request);
        }
        unstable.asking = ReplayUnderWay {
            queue: lost.keys().copied().collect(),
            index: lost.keys().copied().zip(0..).collect(),
            count: lost.len() as u32,
            owed: lost.values().map(|kept| kept.request.id).collect(),
            ..ReplayUnderWay::default()
        };
        unstable.changes = lost;
    }

    /// On a new connection: asks for what is lost, also for what was asked for on the last one.
    pub(crate) fn ask_again(&mut self, step: &mut Step<'_>) {
        let places: Vec<Place> = self.unstable.asking.under_way.values().copied().collect();
        for place in places {
            self.send_again(step, place);
        }
        self.ask_more(step);
    }

    fn ask_more(&mut self, step: &mut Step<'_>) {
        while self.session.state == LinkState::Up {
            let asking = &mut self.unstable.asking;
            let Some(place) = asking.queue.front().copied() else {
                return;
            };
            let Some(kept) = self.unstable.changes.get(&place) else {
                asking.queue.pop_front();
                continue;
            };
            let few = asking.under_way.len() < AGAIN as usize;
            let fits = asking.bytes + kept.bytes <= REPLAY_BYTES_MAX || asking.under_way.is_empty();
            if !few || !fits {
                return;
            }
            asking.queue.pop_front();
            asking.under_way.insert(kept.request.id, place);
            asking.bytes += kept.bytes;
            self.send_again(step, place);
        }
    }

    fn send_again(&mut self, step: &mut Step<'_>, place: Place) {
        let acked = self.acked();
        let asking = &self.unstable.asking;
        let kept = self.unstable.changes.get(&place);
        let (Some(kept), Some(&index)) = (kept, asking.index.get(&place)) else {
            return;
        };
        let mut request = kept.request.clone();
        request.acked = acked;
        request.clock = self.clock.last_shown();
        let late = self.options.mutant == Some(Mutant::AsksAgainAsNew);
        request.again = Some(Box::new(Again {
            place,
            index,
            at: if late { Time::MAX } else { kept.at },
            chosen: if late { Chosen::default() } else { kept.chosen },
            named: kept.named,
        }));
        let kept = Piece::Kept {
            request: request.id,
        };
        let bulk = match bytes(&request.op) {
            0 => Vec::new(),
            _ => vec![kept],
        };
        let message = Box::new(ToServer::Request(request));
        step.out.push(Output::Send { message, bulk });
    }

    /// A change has been made again. False: that was not what was asked for.
    pub(crate) fn on_made_again(
        &mut self,
        step: &mut Step<'_>,
        id: RequestId,
        reply: &Reply,
    ) -> bool {
        let Some(place) = self.unstable.asking.under_way.remove(&id) else {
            return false;
        };
        self.unstable.asking.owed.remove(&id);
        let boot = self.session.boot;
        if let Some(kept) = self.unstable.changes.get_mut(&place) {
            self.unstable.asking.bytes -= kept.bytes;
            let refused = matches!(reply.outcome, Outcome::Refused(_));
            match reply.logged.filter(|_| !refused) {
                Some(Logged { record, .. }) => kept.now = Place { boot, record },
                None => {
                    // Refused, or made by an earlier run whose log is left up to there.
                    let kept = self.unstable.changes.remove(&place);
                    let kept = kept.expect("it has just been found");
                    self.unstable.bytes -= kept.bytes;
                    let_go(step, &kept.request);
                    if refused {
                        self.tell_lost(step, &[&kept.request]);
                    }
                }
            }
        }
        self.ask_more(step);
        true
    }

    /// The session is over. Changes that the server has made stable are none of the client's
    /// business any more; nobody can ask again for those that it has lost meanwhile.
    pub(crate) fn lose_unstable(&mut self, step: &mut Step<'_>, welcome: Option<&Welcome>) {
        let all = core::mem::take(&mut self.unstable);
        let lost =
            |kept: &&UnstableChange| welcome.is_some_and(|welcome| !is_left(welcome, kept.now));
        let lost: Vec<&Request> = all
            .changes
            .values()
            .filter(lost)
            .map(|kept| &kept.request)
            .collect();
        for kept in all.changes.values() {
            let_go(step, &kept.request);
        }
        self.tell_lost(step, &lost);
    }

    /// Says which changes are lost that were answered: each fsync of such a file fails.
    fn tell_lost(&mut self, step: &mut Step<'_>, lost: &[&Request]) {
        let mut count = 0;
        for request in lost {
            match request.op {
                Op::Write { fid, len, .. } => {
                    let bytes = u64::from(len);
                    step.out.push(Output::Event(Event::DataLost { fid, bytes }));
                    // Calls that wait for write-back go on; each fsync among them hears of it then.
                    self.write_errors.add(fid, Refusal::SessionLost);
                }
                _ => count += 1,
            }
        }
        if count > 0 {
            step.out.push(Output::Event(Event::ChangesLost { count }));
        }
    }
}
