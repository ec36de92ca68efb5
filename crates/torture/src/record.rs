//! The bytes of records. Each word of 8 bytes names its writer and the number of the record among
//! the writer's, and carries a checksum over that and its place: so every word of a torn or
//! misplaced record tells where it comes from. Zeros are the value 0.

use crate::history::Run;

/// Bytes of a word.
pub(crate) const WORD: usize = 8;
/// Bits of a word that are its value; the others are the checksum.
const VALUE_BITS: u32 = 48;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
/// Bytes of a record of a log.
pub(crate) const LOG_RECORD: usize = 64;

fn check(value: u64, place: u64) -> u16 {
    let mut hash = value ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    // Never 0, so that zeros in the middle of a word cannot pass.
    ((hash >> 48) as u16) | 1
}

/// The value of a process's record: unique in a run, never 0 or 1.
pub(crate) fn value(process: u32, counter: u32) -> u64 {
    ((u64::from(process) + 1) << 32) | u64::from(counter)
}

/// Bits of a time that count; the others say whose it is.
const TIME_BITS: u32 = 20;

/// A value as seconds since the epoch, if it fits into what every file system can keep.
pub(crate) fn seconds(value: u64) -> Option<i64> {
    let (process, counter) = (value >> 32, value & u64::from(u32::MAX));
    let fits = counter < 1 << TIME_BITS && process < 1 << (31 - TIME_BITS);
    fits.then_some(((process << TIME_BITS) | counter) as i64)
}

/// The value behind a time.
pub(crate) fn of_seconds(seconds: i64) -> Option<u64> {
    let seconds = u64::try_from(seconds).ok()?;
    let (process, counter) = (seconds >> TIME_BITS, seconds & ((1 << TIME_BITS) - 1));
    (seconds == 0 || process > 0).then_some((process << 32) | counter)
}

/// The word of a value at a place.
fn word_of(value: u64, place: u64) -> [u8; WORD] {
    (value & VALUE_MASK | u64::from(check(value, place)) << VALUE_BITS).to_le_bytes()
}

/// A record of `length` bytes at a place (of its file and offset).
pub(crate) fn encode(value: u64, place: u64, length: usize) -> Vec<u8> {
    let words = (length / WORD) as u64;
    (place..place + words)
        .flat_map(|place| word_of(value, place))
        .collect()
}

fn word(bytes: &[u8], place: u64) -> Option<u64> {
    let word = u64::from_le_bytes(bytes.try_into().ok()?);
    if word == 0 {
        return Some(0);
    }
    let value = word & VALUE_MASK;
    ((word >> VALUE_BITS) as u16 == check(value, place)).then_some(value)
}

/// Whether a word was read between two bytes of a write: its first bytes are those of the word
/// that the value before it would have there, its last bytes those of the value after it. Linux
/// copies by bytes where the processor does that fast. At the record's begin and end one of both
/// values is not known, so the bytes of the other one must have a part of its checksum.
fn is_cut(bytes: &[u8], place: u64, before: Option<u64>, after: Option<u64>) -> bool {
    let there = |value: u64| match value {
        0 => [0; WORD],
        value => word_of(value, place),
    };
    let (before, after) = (before.map(there), after.map(there));
    let begins = |cut: usize| before.is_none_or(|it| bytes[..cut] == it[..cut]);
    let ends = |cut: usize| after.is_none_or(|it| bytes[cut..] == it[cut..]);
    let mut cuts = match (before, after) {
        (Some(_), Some(_)) => 1..WORD,
        (None, Some(_)) => 1..WORD - 1,
        (Some(_), None) => WORD - 1..WORD,
        (None, None) => 0..0,
    };
    cuts.any(|cut| begins(cut) && ends(cut))
}

/// The values in a record, or what is wrong with it. A word that was read while it was written
/// counts for the value before it: its write goes on, so both values are right answers.
pub(crate) fn decode(bytes: &[u8], place: u64) -> Result<Vec<Run>, String> {
    let words = bytes.chunks(WORD).zip(place..);
    let values: Vec<_> = words.map(|(bytes, place)| word(bytes, place)).collect();
    let mut runs: Vec<Run> = Vec::new();
    for (at, bytes) in bytes.chunks(WORD).enumerate() {
        let before = at.checked_sub(1).and_then(|at| values[at]);
        let after = values.get(at + 1).copied().flatten();
        let cut = || is_cut(bytes, place + at as u64, before, after);
        let value = values[at].or_else(|| before.or(after).filter(|_| cut()));
        let Some(value) = value else {
            return Err(format!(
                "read bytes that nobody wrote there: {bytes:02x?} at byte {} of the record",
                at * WORD
            ));
        };
        match runs.last_mut() {
            Some(run) if run.value == value => run.words += 1,
            _ => runs.push(Run { words: 1, value }),
        }
    }
    Ok(runs)
}

/// The records of a log, or what is wrong with it.
pub(crate) fn decode_log(bytes: &[u8], place: u64) -> Result<Vec<u64>, String> {
    let mut values = Vec::with_capacity(bytes.len() / LOG_RECORD);
    for (at, record) in bytes.chunks(LOG_RECORD).enumerate() {
        let runs = match record.len() {
            LOG_RECORD => decode(record, place)?,
            _ => Vec::new(),
        };
        match runs.as_slice() {
            [run] if run.value != 0 => values.push(run.value),
            [_] => return Err(format!("read log: record {at} is a hole of zeros")),
            _ => return Err(format!("read log: record {at} is torn")),
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_record_tells_its_value_and_where_it_is_torn() {
        let (one, two) = (value(0, 7), value(3, 1));
        let mut bytes = encode(one, 64, 512);
        let run = |words, value| Run { words, value };
        assert_eq!(decode(&bytes, 64).unwrap(), [run(64, one)]);
        bytes[256..].copy_from_slice(&encode(two, 64, 512)[256..]);
        assert_eq!(decode(&bytes, 64).unwrap(), [run(32, one), run(32, two)]);
        assert_eq!(decode(&[0; 512], 64).unwrap(), [run(64, 0)]);
        assert!(decode(&bytes, 65).is_err(), "at another place");
        bytes[9] ^= 1;
        assert!(decode(&bytes, 64).unwrap_err().contains("byte 8"));
    }

    #[test]
    fn a_word_may_be_cut_between_two_writes_only() {
        let (old, new) = (value(1, 590), value(0, 602));
        let (before, after) = (encode(new, 64, 512), encode(old, 64, 512));
        for cut in 1..512 {
            let bytes = [&before[..cut], &after[cut..]].concat();
            // At both ends the word must have something of the known value's checksum.
            let known = cut != 7 && !(505..511).contains(&cut);
            let runs = decode(&bytes, 64);
            let words = |runs: &[Run]| runs.iter().map(|run| run.words).sum::<u32>();
            assert_eq!(
                runs.as_deref().is_ok_and(|it| words(it) == 64),
                known,
                "{cut}: {runs:?}"
            );
        }
        let mut bytes = [&before[..348], &after[348..]].concat();
        bytes[350] ^= 1;
        assert!(decode(&bytes, 64).unwrap_err().contains("byte 344"));
    }

    #[test]
    fn a_time_tells_its_value() {
        for (process, counter) in [(0, 1), (5, 77), (2046, (1 << 20) - 1)] {
            let value = value(process, counter);
            assert_eq!(of_seconds(seconds(value).unwrap()), Some(value));
        }
        assert!(seconds(value(0, 1 << 20)).is_none() && seconds(value(2047, 1)).is_none());
        assert_eq!(
            (of_seconds(0), of_seconds(77), of_seconds(-1)),
            (Some(0), None, None)
        );
    }

    #[test]
    fn a_log_shows_holes_and_torn_records() {
        let mut log = encode(value(0, 1), 9, LOG_RECORD);
        log.extend(encode(value(1, 1), 9, LOG_RECORD));
        assert_eq!(decode_log(&log, 9).unwrap(), [value(0, 1), value(1, 1)]);
        assert!(decode_log(&log[..100], 9).unwrap_err().contains("torn"));
        log[..LOG_RECORD].fill(0);
        assert!(decode_log(&log, 9).unwrap_err().contains("hole"));
    }
}
