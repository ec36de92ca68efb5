//! Numbers for what is made in directories of this client's own: given by the server beforehand.

use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use crate::footprint::Footprint;
use alloc::vec::Vec;
use wire::{Caller, Fid, Hold, Op, Outcome, Right, Time};

/// Numbers for what is made: how many are asked for, the first time and later.
const FIRST_NUMBERS: u32 = 4096;
const MORE_NUMBERS: u32 = wire::limits::NUMBERS;
/// How long after there were none they are asked for again.
const ASK_AGAIN_NS: Time = 1_000_000_000;

impl Client {
    /// A number for what is made.
    pub(crate) fn take_number(&mut self) -> Option<u64> {
        let (first, left) = self.delegation.numbers.front_mut()?;
        let number = *first;
        (*first, *left) = (*first + 1, *left - 1);
        if *left == 0 {
            self.delegation.numbers.pop_front();
        }
        Some(number)
    }

    /// Asks for numbers if a directory that this is about is this client's own.
    pub(crate) fn reserve_for(&mut self, step: &mut Step<'_>, op: &Op) {
        let own = |dir: Fid| {
            let node = self.nodes.get(&dir);
            node.is_some_and(|node| node.token.right == Right::Exclusive)
        };
        if Footprint::new(op).dirs().into_iter().flatten().any(own) {
            self.reserve_if_low(step);
            self.ask_for_room_of(step, op);
        }
    }

    /// Asks for numbers if few are left, once there is a directory to make something in.
    pub(crate) fn reserve_if_low(&mut self, step: &mut Step<'_>) {
        let left: u32 = self.delegation.numbers.iter().map(|(_, left)| left).sum();
        let delegation = &mut self.delegation;
        let free = !delegation.asked && step.now >= delegation.ask_again;
        if left >= FIRST_NUMBERS / 2 || !free || self.options.keep_ns.is_none() {
            return;
        }
        let count = delegation.count.max(FIRST_NUMBERS);
        (delegation.asked, delegation.count) = (true, count);
        let (op, caller) = (Op::Reserve { count }, Caller::default());
        let asked = (op, caller, Hold::default());
        self.request(step, asked, Vec::new(), Why::Numbers);
    }

    /// Numbers have come, or none: there may be room for fewer.
    pub(crate) fn on_numbers(&mut self, now: Time, outcome: &Outcome) {
        let delegation = &mut self.delegation;
        delegation.asked = false;
        match *outcome {
            Outcome::Numbers { first, count } if count > 0 => {
                delegation.numbers.push_back((first, count));
                delegation.count = MORE_NUMBERS;
            }
            _ => {
                delegation.count = FIRST_NUMBERS;
                delegation.ask_again = now + ASK_AGAIN_NS;
            }
        }
    }
}
