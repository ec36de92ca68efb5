//! A part of the state by itself: a client with its kernel, the server with its disk, the judge.
//! Its next state, and what leaves it, follow from its state and the event alone; and of the parts
//! there are far fewer different states than of the whole. So each step of a part is taken once,
//! and looked up where the rest of the world is another.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::rc::Rc;
use wire::Time;

/// The failure in a state.
pub type Wrong = String;

/// A part of the state.
pub trait Machine: Clone + Debug {
    /// Something that happens to it.
    type Event: Clone + Eq + Hash;
    /// Something that leaves it.
    type Effect;

    /// Takes an event in.
    fn take(&mut self, now: Time, event: &Self::Event) -> Result<Vec<Self::Effect>, Wrong>;

    /// Everything that invariants over several parts look at, as a number that tells it apart.
    fn sight(&self) -> u64 {
        0
    }
}

/// One state of a part.
#[derive(Debug)]
pub struct Known<M> {
    machine: M,
    /// Tells the state from all others.
    pub mark: u64,
    pub sight: u64,
}

impl<M> Deref for Known<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.machine
    }
}

/// A state that many states of the whole share.
pub type Part<M> = Rc<Known<M>>;

/// The state behind a step, and what left.
type Taken<M> = (Part<M>, Rc<[<M as Machine>::Effect]>);

/// All states of one sort of part that were met, and the steps between them.
pub struct Memo<M: Machine> {
    known: HashMap<u64, Part<M>>,
    steps: HashMap<(u64, Time, M::Event), Taken<M>>,
}

thread_local! {
    /// The text of one part: hashed at once, since a hash of many small pieces takes longer.
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A number that tells values apart.
pub fn mark(value: &impl Debug) -> u64 {
    TEXT.with_borrow_mut(|text| {
        text.clear();
        write!(text, "{value:?}").expect("a string takes any text");
        let mut hasher = DefaultHasher::new();
        hasher.write(text.as_bytes());
        hasher.finish()
    })
}

impl<M: Machine> Memo<M> {
    pub fn new() -> Self {
        let (known, steps) = (HashMap::new(), HashMap::new());
        Self { known, steps }
    }

    /// The one copy of this state.
    pub fn part(&mut self, machine: M) -> Part<M> {
        let mark = mark(&machine);
        let known = self.known.entry(mark).or_insert_with(|| {
            let sight = machine.sight();
            Rc::new(Known {
                machine,
                mark,
                sight,
            })
        });
        known.clone()
    }

    /// Puts the state behind the event in the place of the one before it. Returns what left.
    pub fn step(
        &mut self,
        part: &mut Part<M>,
        now: Time,
        event: M::Event,
    ) -> Result<Rc<[M::Effect]>, Wrong> {
        let step = (part.mark, now, event);
        if let Some((after, effects)) = self.steps.get(&step) {
            *part = after.clone();
            return Ok(effects.clone());
        }
        let mut machine = part.machine.clone();
        let effects: Rc<[M::Effect]> = machine.take(now, &step.2)?.into();
        *part = self.part(machine);
        self.steps.insert(step, (part.clone(), effects.clone()));
        Ok(effects)
    }
}
