//! The commands of scenarios that are about locks. Owners are numbers, and each has locked through
//! the descriptor of the same number.

use logic::client::Call;
use wire::{Fid, Lock, LockMode, LockOwner, LockWait, Op};

fn number<T: std::str::FromStr>(word: &str) -> T {
    let number = word.parse().ok();
    number.unwrap_or_else(|| panic!("`{word}` is no number"))
}

fn mode(word: &str) -> LockMode {
    match word {
        "shared" => LockMode::Shared,
        "exclusive" => LockMode::Exclusive,
        _ => panic!("`{word}` is no mode of a lock"),
    }
}

fn wait(word: &str) -> LockWait {
    match word {
        "try" => LockWait::Never,
        "wait" => LockWait::UnlessDeadlocked,
        "always" => LockWait::Always,
        _ => panic!("`{word}` is not what becomes of a request for a lock"),
    }
}

fn bytes(owner: &str, how: &str, first: &str, last: &str) -> Lock {
    Lock {
        owner: LockOwner::Bytes(number(owner)),
        mode: mode(how),
        first: number(first),
        last: number(last),
        pid: 1000 + number::<u32>(owner),
    }
}

/// `lock FILE OWNER MODE FIRST LAST try|wait|always`, `unlock FILE OWNER FIRST LAST`,
/// `test FILE OWNER MODE FIRST LAST`, `flock FILE OWNER MODE try|wait`, `funlock FILE OWNER`.
pub fn call(of: &dyn Fn(&str) -> Fid, words: &[&str]) -> Option<Call> {
    Some(match words {
        ["lock", file, owner, how, first, last, patience] => Call::Lock {
            fid: of(file),
            lock: bytes(owner, how, first, last),
            wait: wait(patience),
            handle: number(owner),
        },
        ["flock", file, owner, how, patience] => Call::Lock {
            fid: of(file),
            lock: Lock {
                owner: LockOwner::Whole(number(owner)),
                mode: mode(how),
                first: 0,
                last: u64::MAX,
                pid: 1000 + number::<u32>(owner),
            },
            wait: wait(patience),
            handle: number(owner),
        },
        ["unlock", file, owner, first, last] => Call::Unlock {
            fid: of(file),
            owner: LockOwner::Bytes(number(owner)),
            first: number(first),
            last: number(last),
        },
        ["funlock", file, owner] => Call::Unlock {
            fid: of(file),
            owner: LockOwner::Whole(number(owner)),
            first: 0,
            last: u64::MAX,
        },
        ["test", file, owner, how, first, last] => Call::TestLock {
            fid: of(file),
            lock: bytes(owner, how, first, last),
        },
        _ => return None,
    })
}

fn range(first: u64, last: u64) -> String {
    match (first, last) {
        (0, u64::MAX) => "all".into(),
        (first, u64::MAX) => format!("{first}..end"),
        (first, last) => format!("{first}..{last}"),
    }
}

/// An owner.
pub fn owner(owner: LockOwner) -> String {
    match owner {
        LockOwner::Whole(number) => format!("file owner {number}"),
        LockOwner::Bytes(number) => format!("owner {number}"),
    }
}

/// Bytes that an owner has locked, or has not.
pub fn span(whose: LockOwner, first: u64, last: u64) -> String {
    format!("{} {}", owner(whose), range(first, last))
}

/// A lock.
pub fn lock(lock: &Lock) -> String {
    let text = span(lock.owner, lock.first, lock.last);
    format!("{text} {:?}", lock.mode)
}

/// A lock that is in the way.
pub fn in_the_way(found: Option<&Lock>) -> String {
    match found {
        Some(held) if held.pid == 0 => format!("in the way: {}", lock(held)),
        Some(held) => format!("in the way: {} by process {}", lock(held), held.pid),
        None => "nothing in the way".into(),
    }
}

/// A request about locks.
pub fn op(op: &Op, of: impl Fn(&Fid) -> String) -> String {
    let kind = op.kind();
    match op {
        Op::Lock {
            fid,
            lock: wanted,
            wait,
        } => format!("{kind} {} {}, {wait:?}", of(fid), lock(wanted)),
        Op::TestLock { fid, lock: wanted } => format!("{kind} {} {}", of(fid), lock(wanted)),
        Op::Unlock {
            fid,
            owner,
            first,
            last,
        } => format!("{kind} {} {}", of(fid), span(*owner, *first, *last)),
        Op::StopWaiting { request } => format!("{kind} #{request}"),
        Op::GiveLocks {
            fid,
            upto,
            decided,
            held,
        } => {
            let held = given(held.as_deref());
            format!(
                "{kind} {} up to @{upto}: {held}, {decided} decided",
                of(fid)
            )
        }
        _ => kind.to_owned(),
    }
}

/// The locks of a client on a file about whose locks it decides no more.
fn given(held: Option<&[Lock]>) -> String {
    match held {
        None => "as known".into(),
        Some([]) => "nothing".into(),
        Some(held) => held.iter().map(lock).collect::<Vec<_>>().join(" and "),
    }
}
