//! Threads that were told to begin a system call again, or may have been: each until it has.
//!
//! Guarantee: of a thread that is said not to have an object in hand this is so.
//!
//! Linux begins each system call again at most once (`retry_estale`), and asks for each name on the
//! way then, whatever it knows of it (`LOOKUP_REVAL`). So, of a thread that was refused and asks
//! for names alone, all of which it is given, it is known which objects it has in hand, until it
//! comes again to the place at which it was refused.
//!
//! A refusal does not make it begin again if it asked whether a name still holds that it knew: it
//! drops that name, and looks it up at once (`fuse_dentry_revalidate`). So a thread that asks first
//! for a name that it may have known, and at which it was refused, may still have anything in hand.

use super::replies::{Replies, is_background};
use crate::client::api::Call;
use alloc::vec::Vec;
use wire::{Fid, Name, Op, Time};

/// How many threads may have to begin again. If there are more, no thread is refused
/// for that reason until those that are not known have begun again.
const RETRYING_THREADS_MAX: usize = 1024;
/// A thread that has asked for nothing for so long has nothing to begin again. Between two of its
/// questions there is only the kernel's walk.
const RETRY_WITHIN_NS: Time = 60_000_000_000;
/// How many names a second walk may come by and be followed.
const WALK_MAX: usize = 64;

/// A system call that a thread may be beginning again.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    /// When the thread last asked for something.
    asked: Time,
    /// The change that it is, if that is known.
    op: Option<Op>,
    /// The names at which it was refused.
    places: Vec<(Fid, Name)>,
    /// It may have known the name that it looked up.
    knew: bool,
    /// The objects that it has been given since; `None`: it may be at another system call by now.
    handed: Option<Vec<Fid>>,
}

impl Replies {
    /// A thread asks for something: with what may it have been beginning again? That is over if
    /// this is a change of names; else it goes on.
    pub(super) fn retries(
        &mut self,
        now: Time,
        thread: u32,
        (call, changes_names): (&Call, bool),
    ) -> Option<Option<Op>> {
        if !changes_names {
            self.goes_on(now, thread);
            self.strays(thread, call);
            return None;
        }
        let retry = self.threads.get_mut(&thread)?.retry.take()?;
        assert!(
            self.retrying > 0,
            "no thread begins again, and yet {thread} does"
        );
        self.retrying -= 1;
        self.forget_idle(thread);
        (now < retry.asked + RETRY_WITHIN_NS).then_some(retry.op)
    }

    /// It is still on its way, however long a look-up has taken.
    pub(super) fn goes_on(&mut self, now: Time, thread: u32) {
        if let Some(retry) = self.retry_of(thread)
            && now < retry.asked + RETRY_WITHIN_NS
        {
            retry.asked = now;
        }
    }

    /// A thread that asks for anything but names, and attributes on the way, may be at another
    /// system call.
    fn strays(&mut self, thread: u32, call: &Call) {
        let walks = matches!(call, Call::Op(Op::Lookup { .. } | Op::GetAttr { .. }));
        if !walks
            && !is_background(call)
            && let Some(retry) = self.retry_of(thread)
        {
            retry.handed = None;
        }
    }

    /// Has a thread walked to this name once more, at which it was refused?
    pub(super) fn has_come_again(&mut self, thread: u32, dir: Fid, name: &Name) -> bool {
        let Some(retry) = self.retry_of(thread) else {
            return false;
        };
        let place = |(at, called): &(Fid, Name)| *at == dir && called == name;
        let Some(place) = retry.places.iter().position(place) else {
            return false;
        };
        retry.places.remove(place);
        // It has not begun again if this is its first question since.
        if retry.knew && retry.handed.as_ref().is_some_and(Vec::is_empty) {
            retry.handed = None;
        }
        retry.handed.is_some()
    }

    /// A look-up is answered, perhaps of a second walk: with this object, or with none.
    pub(super) fn is_handed(&mut self, thread: u32, found: Option<Fid>) {
        let Some(retry) = self.retry_of(thread) else {
            return;
        };
        let over = retry.places.is_empty();
        retry.handed = match (retry.handed.take(), found) {
            (Some(mut handed), Some(fid)) if !over && handed.len() < WALK_MAX => {
                handed.push(fid);
                Some(handed)
            }
            _ => None,
        };
    }

    /// May a thread that walks once more have this object in hand?
    pub(super) fn may_have_in_hand(&self, thread: u32, fid: Fid) -> bool {
        let retry = self.threads.get(&thread).and_then(|of| of.retry.as_ref());
        let handed = retry.and_then(|retry| retry.handed.as_ref());
        handed.is_none_or(|handed| handed.contains(&fid))
    }

    /// May a thread be beginning again? Not known of thread 0, and so not said.
    pub(super) fn may_be_retrying(&self, thread: u32) -> bool {
        let known = self.threads.get(&thread);
        known.is_some_and(|known| known.retry.is_some())
    }

    /// A reply makes its thread begin again, or may.
    pub(super) fn retry(
        &mut self,
        now: Time,
        thread: u32,
        (op, places, knew): (Option<Op>, Vec<(Fid, Name)>, bool),
    ) {
        if self.retrying >= RETRYING_THREADS_MAX {
            self.forget_retries(now);
        }
        if self.retrying >= RETRYING_THREADS_MAX {
            self.others_retry_until = now + RETRY_WITHIN_NS;
            return;
        }
        let known = self.threads.entry(thread).or_default();
        self.retrying += usize::from(known.retry.is_none());
        known.retry = Some(Retry {
            asked: now,
            op,
            handed: (!places.is_empty()).then(Vec::new),
            places,
            knew,
        });
    }

    fn forget_retries(&mut self, now: Time) {
        let mut left = 0;
        self.threads.retain(|_, known| {
            let recent = |retry: &Retry| now < retry.asked + RETRY_WITHIN_NS;
            known.retry = known.retry.take().filter(recent);
            left += usize::from(known.retry.is_some());
            known.retry.is_some() || known.has_waiters()
        });
        self.retrying = left;
    }

    /// May there be threads that are beginning again and are not known?
    pub(super) fn others_retry(&self, now: Time) -> bool {
        now < self.others_retry_until
    }

    fn retry_of(&mut self, thread: u32) -> Option<&mut Retry> {
        self.threads.get_mut(&thread)?.retry.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid {
        volume: 1,
        vnode: 1,
        uniq: 1,
    };
    const FILE: Fid = Fid { vnode: 2, ..DIR };
    const OTHER: Fid = Fid { vnode: 3, ..DIR };

    fn name(name: &str) -> Name {
        Name::new(name.as_bytes()).expect("it is a name")
    }

    fn looks(name: &str) -> Call {
        Call::Op(Op::Lookup {
            dir: DIR,
            name: self::name(name),
        })
    }

    /// A rename was refused when it looked for its new name.
    fn refused_at_new() -> Replies {
        let mut ledger = Replies::default();
        ledger.retry(0, 7, (None, alloc::vec![(DIR, name("new"))], false));
        ledger
    }

    /// The thread asks for a name, and is given the object that has it.
    fn walks(ledger: &mut Replies, name: &str, fid: Fid) -> bool {
        ledger.retries(1, 7, (&looks(name), false));
        let again = ledger.has_come_again(7, DIR, &self::name(name));
        ledger.is_handed(7, Some(fid));
        again
    }

    #[test]
    fn an_object_found_on_the_way_may_be_in_hand_and_no_other() {
        let mut ledger = refused_at_new();
        assert!(!walks(&mut ledger, "old", FILE));
        ledger.retries(1, 7, (&looks("new"), false));
        assert!(ledger.has_come_again(7, DIR, &name("new")));
        assert!(ledger.may_have_in_hand(7, FILE));
        assert!(!ledger.may_have_in_hand(7, OTHER));
        assert!(ledger.may_have_in_hand(8, OTHER), "it is not known");
    }

    #[test]
    fn a_name_that_was_known_is_looked_up_without_beginning_again() {
        let refused = || {
            let mut ledger = Replies::default();
            ledger.retry(0, 7, (None, alloc::vec![(DIR, name("new"))], true));
            ledger
        };
        let mut ledger = refused();
        ledger.retries(1, 7, (&looks("new"), false));
        assert!(!ledger.has_come_again(7, DIR, &name("new")));
        assert!(ledger.may_have_in_hand(7, OTHER));
        assert!(ledger.may_be_retrying(7), "or it has begun again");

        let mut ledger = refused();
        assert!(!walks(&mut ledger, "old", FILE));
        assert!(walks(&mut ledger, "new", OTHER), "it has begun again");
    }

    #[test]
    fn behind_the_place_it_may_be_another_system_call() {
        let mut ledger = refused_at_new();
        assert!(walks(&mut ledger, "new", FILE));
        assert!(!walks(&mut ledger, "new", FILE));
        assert!(ledger.may_have_in_hand(7, OTHER));
    }

    #[test]
    fn a_thread_that_finds_nothing_or_does_something_else_may_be_at_another_one() {
        let mut ledger = refused_at_new();
        ledger.is_handed(7, None);
        assert!(!walks(&mut ledger, "new", FILE));

        let mut ledger = refused_at_new();
        ledger.retries(1, 7, (&Call::Seek { fid: FILE }, false));
        assert!(!walks(&mut ledger, "new", FILE));
    }
}
