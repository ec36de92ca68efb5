//! Bytes and times as text.

use std::fmt::Write;

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of such a text.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
    if !digits || !text.len().is_multiple_of(2) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}

/// 256 random bits.
pub(crate) fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&net::entropy::seed().to_ne_bytes());
    }
    bytes
}

/// The SHA-256 of some bytes, in hexadecimal.
pub(crate) fn hash(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref())
}

/// Seconds since 1970, by the clock of this machine.
pub(crate) fn now_s() -> u64 {
    net::clock::wall_ns() / 1_000_000_000
}

/// Reads the name of a machine: letters, digits, dots and dashes.
///
/// # Errors
/// It is no name.
pub fn machine_name(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
        return Err(format!(
            "{text:?} is no name of a machine: letters, digits, dots and dashes, 64 at most"
        ));
    }
    Ok(text.to_ascii_lowercase())
}

/// Reads the name of a user: small letters, digits, dots, dashes, underscores.
///
/// # Errors
/// It is no name.
pub fn user_name(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
        return Err(format!(
            "{text:?} is no name of a user: small letters, digits, dots and dashes, 64 at most"
        ));
    }
    Ok(text.to_owned())
}

/// Reads the name of a group: that of a user's own with his name before a colon.
///
/// # Errors
/// It is no name.
pub fn group_name(text: &str) -> Result<String, String> {
    let mut parts = text.splitn(2, ':');
    let sound = parts.all(|part| user_name(part).is_ok());
    let number = text.parse::<u32>().is_ok();
    match sound && !number {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is no name of a group: small letters, digits, dots and dashes, of your own \
             groups behind your name and a colon, `ann:friends`"
        )),
    }
}

/// The rights of a machine, in words.
pub struct Words<'a>(pub &'a crate::Machine);

impl std::fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let wire::Rights {
            trusted,
            root,
            write,
            uids,
            ..
        } = &self.0.rights;
        f.write_str(if *write { "read-write" } else { "read-only" })?;
        f.write_str(match (*trusted, *root) {
            (false, _) => ", users log in",
            (true, true) => ", root",
            (true, false) => ", root squashed",
        })?;
        f.write_str(if uids.is_empty() {
            ", all users"
        } else {
            ", users "
        })?;
        for (at, (first, last)) in uids.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        match self.0.parts.is_empty() {
            true => Ok(()),
            false => write!(f, ", only {}", self.0.parts.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hexadecimal_goes_there_and_back() {
        let secret = secret();
        assert_eq!(unhex(&hex(&secret)).unwrap(), secret);
        assert_ne!(secret, self::secret());
        for wrong in ["a", "zz", "äää", "+1"] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_machines_are_plain() {
        assert_eq!(machine_name("Build-7.example").unwrap(), "build-7.example");
        for wrong in ["", "a b", "a/b", "ä", &"x".repeat(65), "a\n"] {
            assert!(machine_name(wrong).is_err(), "{wrong}");
        }
    }
}
