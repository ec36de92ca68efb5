//! The names under which is kept what conflicts: beside what it conflicts with, and saying whose it
//! is and from when.

use alloc::vec::Vec;
use wire::limits::NAME_BYTES;
use wire::{Name, Time};

const SECOND: Time = 1_000_000_000;
const DAY: u64 = 86_400;
/// The mark between a name and the rest.
const MARK: &[u8] = b".conflict-";
/// Most bytes of a host's name.
const HOST_BYTES: usize = 64;

/// `NAME.conflict-HOST-2026-11-25T04:30:00Z`, and for every further one of this moment a number
/// behind it. A name that would be too long loses its end.
pub(crate) fn name(of: &[u8], host: &[u8], at: Time, number: u32) -> Name {
    let mut tail = MARK.to_vec();
    tail.extend(host_of(host));
    tail.push(b'-');
    tail.extend(moment(at / SECOND));
    if number > 0 {
        tail.push(b'-');
        tail.extend(decimal(u64::from(number) + 1, 1));
    }
    let room = NAME_BYTES - tail.len();
    let mut all: Vec<u8> = shortened(of, room).to_vec();
    all.extend(tail);
    Name::new(&all).expect("it is neither empty nor too long, and has no bytes that names have not")
}

/// The first part of a name that is no longer than this. It ends with a whole letter if the name is
/// UTF-8, and may be of any bytes.
fn shortened(name: &[u8], most: usize) -> &[u8] {
    let Some(beyond) = name.get(most) else {
        return name;
    };
    let continues = |byte: &u8| byte & 0xc0 == 0x80;
    let within = name[..most].iter().rev().take_while(|byte| continues(byte));
    match within.count() {
        more if continues(beyond) && more < 3 => &name[..most.saturating_sub(more + 1)],
        _ => &name[..most],
    }
}

/// The host in a client's name for people (`HOST:MOUNT POINT`), with what a name may have of it.
fn host_of(name: &[u8]) -> Vec<u8> {
    let host = name.split(|byte| *byte == b':').next().unwrap_or(name);
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let host: Vec<u8> = host
        .iter()
        .copied()
        .filter(plain)
        .take(HOST_BYTES)
        .collect();
    if host.is_empty() {
        b"unknown".to_vec()
    } else {
        host
    }
}

fn moment(seconds: u64) -> Vec<u8> {
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute) = (seconds % DAY / 3_600, seconds % 3_600 / 60);
    let mut text = decimal(year, 4);
    let rest = [
        (b'-', month),
        (b'-', day),
        (b'T', hour),
        (b':', minute),
        (b':', seconds % 60),
    ];
    for (before, number) in rest {
        text.push(before);
        text.extend(decimal(number, 2));
    }
    text.push(b'Z');
    text
}

/// A date of the Gregorian calendar, by the days since 1970. Years begin in March here, so that a
/// leap day is a year's last one.
fn date(days: u64) -> (u64, u64, u64) {
    const TO_1970: u64 = 719_468;
    const ERA: u64 = 146_097;
    let (era, of_era) = ((days + TO_1970) / ERA, (days + TO_1970) % ERA);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// A number with so many digits at least.
fn decimal(mut number: u64, digits: usize) -> Vec<u8> {
    let mut text = Vec::new();
    while number > 0 || text.len() < digits {
        text.push(b'0' + (number % 10) as u8);
        number /= 10;
    }
    text.reverse();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &Name) -> &str {
        core::str::from_utf8(name.as_bytes()).expect("it is UTF-8")
    }

    #[test]
    fn a_name_says_host_and_time() {
        let at = 1_795_581_000 * SECOND + 5;
        let first = name(b"report.txt", b"west:/mnt/a", at, 0);
        assert_eq!(
            text(&first),
            "report.txt.conflict-west-2026-11-25T04:30:00Z"
        );
        let second = name(b"report.txt", b"west:/mnt/a", at, 1);
        assert_eq!(
            text(&second),
            "report.txt.conflict-west-2026-11-25T04:30:00Z-2"
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(moment(seconds), expected.as_bytes());
        }
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_whole_letters() {
        let long = "ä".repeat(127);
        let made = name(long.as_bytes(), b"", 0, 0);
        assert!(made.as_bytes().len() <= NAME_BYTES);
        assert!(text(&made).ends_with("ä.conflict-unknown-1970-01-01T00:00:00Z"));
        for bytes in [[0x80; NAME_BYTES], [0xff; NAME_BYTES]] {
            let made = name(&bytes, b"west", 0, 0);
            assert!(made.as_bytes().starts_with(&bytes[..200]), "of any bytes");
        }
        assert!(
            name(b"x", &[b'h'; 500], Time::MAX, u32::MAX)
                .as_bytes()
                .len()
                <= NAME_BYTES
        );
    }
}
