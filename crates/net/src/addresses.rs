//! Where servers are, as people write it: `host:port`, several with commas between them.
//!
//! Guarantees: each parsed address has a host and a port; names are resolved at each attempt to
//! connect, so a server may move.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Most addresses of one server.
const MOST: usize = 16;

/// The addresses of one server: names or numbers, with ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addresses(Vec<String>);

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no address: try 127.0.0.1:7000, [::1]:7000, server.example:7000, or several of \
         one server with commas between them"
)]
pub struct NoAddress(String);

impl Addresses {
    /// Each of them, as written.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Where each of them is now; an address that cannot be resolved is left out.
    ///
    /// # Errors
    /// None can be resolved.
    pub fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let mut found = Vec::new();
        let mut failed = None;
        for one in &self.0 {
            match one.to_socket_addrs() {
                Ok(addrs) => found.extend(addrs),
                Err(error) => failed = Some((one, error)),
            }
        }
        match failed {
            Some((one, error)) if found.is_empty() => {
                let what = format!("{one} cannot be resolved ({error}): correct the name");
                Err(std::io::Error::new(error.kind(), what))
            }
            _ => Ok(found),
        }
    }
}

impl Addresses {
    /// Do both lead to one server? One that they have in common is enough, also where it is written
    /// in two ways.
    #[must_use]
    pub fn meet(&self, others: &Addresses) -> bool {
        if self.0.iter().any(|one| others.0.contains(one)) {
            return true;
        }
        match (self.resolve(), others.resolve()) {
            (Ok(own), Ok(others)) => own.iter().any(|one| others.contains(one)),
            _ => false,
        }
    }
}

impl From<SocketAddr> for Addresses {
    fn from(addr: SocketAddr) -> Addresses {
        Addresses(vec![addr.to_string()])
    }
}

impl FromStr for Addresses {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Addresses, NoAddress> {
        let wrong = || NoAddress(text.to_owned());
        let words: Vec<&str> = text.split(',').collect();
        for word in &words {
            let (host, port) = word.rsplit_once(':').ok_or_else(wrong)?;
            let number = word.parse::<SocketAddr>().is_ok();
            let name = !host.is_empty()
                && host
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
            if !(number || name) || port.parse::<u16>().is_err() {
                return Err(wrong());
            }
        }
        if words.len() > MOST {
            return Err(wrong());
        }
        Ok(Addresses(words.into_iter().map(str::to_owned).collect()))
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_shown_as_they_were_written() {
        for text in [
            "127.0.0.1:7",
            "[::1]:7",
            "a.example:7000",
            "a-b:1,10.0.0.1:2,[fd00::1]:3",
        ] {
            let addresses: Addresses = text.parse().unwrap();
            assert_eq!(addresses.to_string(), text);
        }
        for wrong in [
            "", "a", "a:", ":7", "a:70000", "a:1,", "::1:7", "a b:1", "a/b:1", "-x=1",
        ] {
            assert!(wrong.parse::<Addresses>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_of_one_server_meet_however_they_are_written() {
        let addresses = |text: &str| text.parse::<Addresses>().unwrap();
        let both = addresses("127.0.0.1:7,127.0.0.2:7");
        for (other, meet) in [
            ("127.0.0.2:7", true),
            ("localhost:7", true),
            ("127.0.0.2:8", false),
            ("no-such-host.invalid:7", false),
        ] {
            assert_eq!(both.meet(&addresses(other)), meet, "{other}");
            assert_eq!(addresses(other).meet(&both), meet, "{other}");
        }
    }

    #[test]
    fn one_name_that_is_unknown_does_no_harm() {
        let both: Addresses = "no-such-host.invalid:7,127.0.0.1:8".parse().unwrap();
        assert_eq!(both.resolve().unwrap(), ["127.0.0.1:8".parse().unwrap()]);
        let none: Addresses = "no-such-host.invalid:7".parse().unwrap();
        let error = none.resolve().unwrap_err().to_string();
        assert!(error.contains("no-such-host.invalid:7"), "{error}");
    }
}
