//! The remaining part of a world: which of the machines, calls and faults that its seed draws take
//! part.
//!
//! Guarantees: leaving one thing out changes nothing that the seed draws for the others; the text
//! of an [`Only`] is short, can be typed, needs no quotes in a shell, and reads back as the same.
//! `docs/simulation.md` says how it is written.

use crate::inject::{DiskStrike, Strike};
use crate::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::str::FromStr;

/// Numbers of things, from 1 on.
type Numbers = BTreeSet<u32>;
/// A machine and one of its programs.
pub(crate) type ProgramId = (u32, u32);
/// A machine, one of its programs, and one of its calls.
pub(crate) type CallId = (u32, u32, u32);

/// No world has as many of anything.
const MOST: u32 = 100_000;

/// Something of a world that goes on all the time, and can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extra {
    /// Clocks that run fast or slow.
    Drift,
    /// Messages that overtake others.
    Overtaking,
    /// Kernels that are short of memory.
    Pressure,
    /// Programs that lock.
    Locks,
    /// Watching programs.
    Watches,
    /// Makers of snapshots.
    Snapshots,
}

impl Extra {
    pub(crate) const ALL: [Self; 6] = [
        Self::Drift,
        Self::Overtaking,
        Self::Pressure,
        Self::Locks,
        Self::Watches,
        Self::Snapshots,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Drift => "drift",
            Self::Overtaking => "overtaking",
            Self::Pressure => "pressure",
            Self::Locks => "locks",
            Self::Watches => "watches",
            Self::Snapshots => "snapshots",
        }
    }
}

/// Which things of a world take part; the default: everything. Numbers are the seed's: a part that
/// is left keeps the number that it has in the whole world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// The machines of the beginning; a machine that takes the place of another one later always
    /// takes part.
    pub(crate) machines: Option<Numbers>,
    pub(crate) calls: Option<BTreeMap<ProgramId, Numbers>>,
    /// Those that are scheduled, in the order of the plan.
    pub(crate) faults: Option<Numbers>,
    /// Messages lost, of those that would be, as they happen.
    pub(crate) lost: Option<Numbers>,
    /// Messages that arrive twice, likewise.
    pub(crate) twice: Option<Numbers>,
    pub(crate) without: BTreeSet<Extra>,
    /// Not 0: everything that is drawn while the world runs is drawn differently.
    pub(crate) salt: u32,
    /// A further fault, and the number of the message, among those sent while faults happen, at
    /// which it strikes.
    pub(crate) also: Option<(Strike, u32)>,
    /// Which call of the server's disk fails besides, and how.
    pub(crate) disk: Option<(DiskStrike, u32)>,
}

fn has(numbers: Option<&Numbers>, number: u32) -> bool {
    numbers.is_none_or(|numbers| numbers.contains(&number))
}

impl Only {
    /// The world without its faults, where one thing goes wrong at the message of this number.
    pub fn strike(strike: Strike, message: u32) -> Self {
        Self {
            also: Some((strike, message)),
            ..Self::faultless()
        }
    }

    /// The world without its faults, where this call of the server's disk fails.
    pub fn disk_strike(strike: DiskStrike, call: u32) -> Self {
        Self {
            disk: Some((strike, call)),
            ..Self::faultless()
        }
    }

    /// The whole world, where all that is drawn while it runs is drawn differently.
    pub fn salt(salt: u32) -> Self {
        Self {
            salt,
            ..Self::default()
        }
    }

    fn faultless() -> Self {
        let none = || Some(Numbers::new());
        Self {
            faults: none(),
            lost: none(),
            twice: none(),
            ..Self::default()
        }
    }

    pub(crate) fn has_machine(&self, machine: u32) -> bool {
        has(self.machines.as_ref(), machine)
    }

    pub(crate) fn has_call(&self, (machine, program, call): CallId) -> bool {
        let of = |calls: &BTreeMap<ProgramId, Numbers>| {
            let calls = calls.get(&(machine, program));
            calls.is_some_and(|calls| calls.contains(&call))
        };
        self.calls.as_ref().is_none_or(of)
    }

    /// The last call of a program, of so many.
    pub(crate) fn last_call(&self, program: ProgramId, calls: u32) -> u32 {
        let Some(only) = &self.calls else {
            return calls;
        };
        let last = only.get(&program).and_then(|only| only.last().copied());
        last.unwrap_or(0).min(calls)
    }

    pub(crate) fn is_lost(&self, number: u32) -> bool {
        has(self.lost.as_ref(), number)
    }

    pub(crate) fn is_twice(&self, number: u32) -> bool {
        has(self.twice.as_ref(), number)
    }

    pub(crate) fn has(&self, extra: Extra) -> bool {
        !self.without.contains(&extra)
    }

    /// Takes out of a plan what does not take part. The faults that are left, by their number.
    pub(crate) fn apply(&self, plan: &mut Plan) -> Vec<u32> {
        let left: Vec<u32> = (1..=plan.faults.len() as u32)
            .filter(|&number| has(self.faults.as_ref(), number))
            .collect();
        plan.faults = left
            .iter()
            .map(|&number| plan.faults[number as usize - 1])
            .collect();
        let none = |numbers: &Option<Numbers>| numbers.as_ref().is_some_and(Numbers::is_empty);
        if none(&self.lost) {
            plan.weather.loss_permille = 0;
        }
        if none(&self.twice) {
            plan.weather.repeat_permille = 0;
        }
        (plan.strike, plan.disk_strike) = (self.also, self.disk);
        if !self.has(Extra::Overtaking) {
            plan.weather.overtakes = false;
        }
        if !self.has(Extra::Drift) {
            plan.drift_ppm = Default::default();
        }
        left
    }

    /// Is what it names there?
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), OnlyError> {
        let most = |numbers: &Option<Numbers>| numbers.as_ref().and_then(|n| n.last().copied());
        let ids = self.calls.iter().flatten();
        let program = ids.clone().map(|(id, _)| id.1).max();
        let call = ids.filter_map(|(_, calls)| calls.last().copied()).max();
        let faults = plan.faults.len() as u32;
        for (what, named, there) in [
            ("machine", most(&self.machines), plan.clients),
            ("program", program, plan.programs),
            ("call", call, plan.operations),
            ("fault", most(&self.faults), faults),
        ] {
            if let Some(named) = named.filter(|&named| named > there) {
                return Err(OnlyError(format!(
                    "{what} {named} is not there: the world of this seed and size has {there}"
                )));
            }
        }
        Ok(())
    }
}

/// Why a text says nothing about what is left of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnlyError(String);

impl fmt::Display for OnlyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OnlyError {}

const NONE: &str = "none";

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut numbers = |name: &str, numbers: &Option<Numbers>| {
            parts.extend(numbers.as_ref().map(|n| format!("{name}={}", text(n))));
        };
        numbers("machines", &self.machines);
        numbers("faults", &self.faults);
        numbers("lost", &self.lost);
        numbers("twice", &self.twice);
        if !self.without.is_empty() {
            let names: Vec<&str> = self.without.iter().map(|extra| extra.name()).collect();
            parts.push(format!("without={}", names.join(",")));
        }
        if let Some((strike, message)) = self.also {
            parts.push(format!("also={}:{message}", strike.name()));
        }
        if let Some((strike, call)) = self.disk {
            parts.push(format!("disk={}:{call}", strike.name()));
        }
        if self.salt > 0 {
            parts.push(format!("salt={}", self.salt));
        }
        if let Some(calls) = &self.calls {
            let of = |((machine, program), calls): (&ProgramId, &Numbers)| {
                format!("{machine}.{program}:{}", text(calls))
            };
            let calls: Vec<String> = calls.iter().map(of).collect();
            let calls = if calls.is_empty() {
                NONE.into()
            } else {
                calls.join("+")
            };
            parts.push(format!("calls={calls}"));
        }
        if parts.is_empty() {
            parts.push("all".into());
        }
        f.write_str(&parts.join("/"))
    }
}

/// Numbers as people write them: `1,4-7`.
fn text(numbers: &Numbers) -> String {
    let mut text = String::new();
    let mut left = numbers.iter().copied().peekable();
    while let Some(from) = left.next() {
        let mut to = from;
        while let Some(next) = left.next_if(|&next| next == to + 1) {
            to = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = match to - from {
            0 => write!(text, "{comma}{from}"),
            1 => write!(text, "{comma}{from},{to}"),
            _ => write!(text, "{comma}{from}-{to}"),
        };
    }
    if text.is_empty() { NONE.into() } else { text }
}

impl FromStr for Only {
    type Err = OnlyError;

    fn from_str(text: &str) -> Result<Self, OnlyError> {
        let mut only = Self::default();
        if text == "all" {
            return Ok(only);
        }
        let mut met = BTreeSet::new();
        for part in text.split('/') {
            let (name, value) = part.split_once('=').ok_or_else(|| unknown(part))?;
            if !met.insert(name) {
                return Err(OnlyError(format!("`{name}` is there twice")));
            }
            match name {
                "machines" => only.machines = Some(machines(value)?),
                "faults" => only.faults = Some(numbers(value)?),
                "lost" => only.lost = Some(numbers(value)?),
                "twice" => only.twice = Some(numbers(value)?),
                "without" => only.without = extras(value)?,
                "also" => {
                    only.also = Some(nth(value, (Strike::ALL, Strike::name))?);
                }
                "disk" => {
                    only.disk = Some(nth(value, (DiskStrike::ALL, DiskStrike::name))?);
                }
                "salt" => only.salt = number(value)?,
                "calls" => only.calls = Some(calls(value)?),
                _ => return Err(unknown(part)),
            }
        }
        Ok(only)
    }
}

fn unknown(part: &str) -> OnlyError {
    OnlyError(format!(
        "`{part}` is no part: parts are machines=, faults=, lost=, twice=, without=, also=, \
         disk=, salt= and calls=, with a / between two of them"
    ))
}

fn number(text: &str) -> Result<u32, OnlyError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    let number = number.filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| OnlyError(format!("`{text}` is no number from 1 to {MOST}")))
}

fn numbers(text: &str) -> Result<Numbers, OnlyError> {
    let mut all = Numbers::new();
    if text == NONE {
        return Ok(all);
    }
    for piece in text.split(',') {
        let (from, to) = piece.split_once('-').unwrap_or((piece, piece));
        let (from, to) = (number(from)?, number(to)?);
        if from > to {
            return Err(OnlyError(format!("`{piece}` ends before it begins")));
        }
        all.extend(from..=to);
    }
    Ok(all)
}

fn machines(text: &str) -> Result<Numbers, OnlyError> {
    let machines = numbers(text)?;
    if machines.contains(&1) {
        return Ok(machines);
    }
    Err(OnlyError(
        "machine 1 makes the tree, and cannot be left out (its calls can)".into(),
    ))
}

fn extras(text: &str) -> Result<BTreeSet<Extra>, OnlyError> {
    let named = |name: &str| {
        let found = Extra::ALL.into_iter().find(|extra| extra.name() == name);
        let error = || format!("`{name}` cannot be left out: drift, overtaking, pressure can");
        found.ok_or_else(|| OnlyError(error()))
    };
    text.split(',').map(named).collect()
}

/// One of these and a number: `restart:17`.
fn nth<S: Copy, const N: usize>(
    text: &str,
    (all, name): ([S; N], impl Fn(S) -> &'static str),
) -> Result<(S, u32), OnlyError> {
    let found = text.split_once(':').and_then(|(named, number)| {
        let strike = all.into_iter().find(|strike| name(*strike) == named);
        Some((strike?, number))
    });
    let (strike, text) = found.ok_or_else(|| {
        let names: Vec<&str> = all.into_iter().map(name).collect();
        OnlyError(format!(
            "`{text}` is nothing that can go wrong: {}:NUMBER is, and {}",
            names[0],
            names[1..].join(", ")
        ))
    })?;
    Ok((strike, number(text)?))
}

fn calls(text: &str) -> Result<BTreeMap<ProgramId, Numbers>, OnlyError> {
    let mut all = BTreeMap::new();
    if text == NONE {
        return Ok(all);
    }
    for piece in text.split('+') {
        let parts = piece.split_once(':');
        let parts = parts.and_then(|(program, calls)| Some((program.split_once('.')?, calls)));
        let ((machine, program), calls) = parts.ok_or_else(|| {
            OnlyError(format!(
                "`{piece}` does not name calls: MACHINE.PROGRAM:NUMBERS does, as in 2.1:3,5-7"
            ))
        })?;
        let id = (number(machine)?, number(program)?);
        if all.insert(id, numbers(calls)?).is_some() {
            return Err(OnlyError(format!("`{machine}.{program}` is there twice")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in [
            "all",
            "salt=7",
            "calls=none",
            "faults=none/also=vanish:12",
            "also=cut:3/disk=half:7",
            "machines=1,3/faults=none/lost=2/twice=1,2,4-6/without=drift,pressure/salt=3/\
             calls=1.1:3,7-9+3.2:1",
        ] {
            let only: Only = text.parse().expect(text);
            assert_eq!(only.to_string(), text);
        }
        // Written otherwise, and the same.
        let only: Only = "calls=2.1:3,1,2/lost=4-4".parse().expect("it is right");
        assert_eq!(only.to_string(), "lost=4/calls=2.1:1-3");
        assert_eq!("all".parse(), Ok(Only::default()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, told) in [
            ("", "`` is no part: parts are machines="),
            ("fault=1", "`fault=1` is no part"),
            ("faults=1/", "`` is no part"),
            ("faults=1/faults=2", "`faults` is there twice"),
            ("faults=", "`` is no number"),
            ("faults=0", "`0` is no number from 1"),
            ("faults=+1", "`+1` is no number"),
            ("faults=1-4000000000", "`4000000000` is no number"),
            ("faults=3-1", "`3-1` ends before it begins"),
            ("machines=2", "machine 1 makes the tree"),
            ("without=rain", "`rain` cannot be left out: drift"),
            (
                "also=rain:1",
                "`rain:1` is nothing that can go wrong: repeat",
            ),
            ("also=cut", "`cut` is nothing that can go wrong"),
            ("also=cut:0", "`0` is no number"),
            ("calls=1:2", "`1:2` does not name calls"),
            ("calls=1.1:2+1.1:3", "`1.1` is there twice"),
        ] {
            let error = text.parse::<Only>().expect_err(text);
            assert!(error.to_string().starts_with(told), "{text}: {error}");
        }
    }
}
