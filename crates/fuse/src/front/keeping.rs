//! For how long the kernel may keep what it is given: exactly as long as it is true, or for a fixed
//! time. This file alone decides it.
//!
//! Timed keeping exists to be compared with: it is what NFS and most network file systems do. The
//! kernel keeps names, attributes and pages for that time whatever happens elsewhere, and nothing
//! is taken back from it; the client's own cache stays exact, so whatever is older is asked for
//! anew. Pages are dropped by the kernel itself when it finds another time of change or another
//! size among new attributes (`AUTO_INVAL_DATA`).

use std::time::Duration;

use client::front::Lifetime;
use wire::Access;

use crate::reply::FOREVER;

/// For how long the kernel keeps names, attributes and pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// Until they are taken back, which happens before they become wrong.
    #[default]
    Exact,
    /// For this time, right or wrong.
    Timed(Duration),
}

impl Keeping {
    /// How long the kernel keeps a name or attributes, where the client allows so much.
    pub(super) const fn lifetime(self, allowed: Lifetime) -> Duration {
        match (self, allowed) {
            (Keeping::Exact, Lifetime::None) => Duration::ZERO,
            (Keeping::Exact, Lifetime::Forever) => FOREVER,
            (Keeping::Timed(time), _) => time,
        }
    }

    /// Does an open file go through the page cache, where the client says so? A file open for
    /// writing never does, so that its own bytes are where the writer says they are.
    pub(super) const fn caches(self, allowed: bool, access: Access) -> bool {
        match self {
            Keeping::Exact => allowed,
            Keeping::Timed(_) => !access.write,
        }
    }

    /// Is the kernel told to drop what is about to become wrong?
    pub(super) const fn takes_back(self) -> bool {
        matches!(self, Keeping::Exact)
    }

    /// Does the kernel compare times of change to find out that its pages are old?
    pub(super) const fn compares_times(self) -> bool {
        matches!(self, Keeping::Timed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: Access = Access {
        read: true,
        write: false,
    };
    const WRITER: Access = Access {
        read: true,
        write: true,
    };

    #[test]
    fn exact_is_what_the_client_says() {
        let exact = Keeping::Exact;
        assert_eq!(exact.lifetime(Lifetime::None), Duration::ZERO);
        assert_eq!(exact.lifetime(Lifetime::Forever), FOREVER);
        assert!(exact.caches(true, READER) && !exact.caches(false, READER));
        assert!(exact.takes_back() && !exact.compares_times());
    }

    #[test]
    fn timed_is_the_time_whatever_the_client_says() {
        let second = Duration::from_secs(1);
        let timed = Keeping::Timed(second);
        for allowed in [Lifetime::None, Lifetime::Forever] {
            assert_eq!(timed.lifetime(allowed), second);
        }
        for allowed in [true, false] {
            assert!(timed.caches(allowed, READER) && !timed.caches(allowed, WRITER));
        }
        assert!(!timed.takes_back() && timed.compares_times());
    }
}
