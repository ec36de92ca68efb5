//! Faults in a world at a moment that is chosen, not drawn, so that a test can choose them
//! all: at which message, or at which call of the server's disk.

/// A fault at a moment that is chosen, not drawn: when a message is about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// The message arrives twice.
    Repeat,
    /// It is lost with its link, which is made again.
    Cut,
    /// It is lost with the server's process, which is started again.
    Restart,
    /// It is lost with the client's machine; another one takes its place.
    Vanish,
    /// It is lost with the client's process, whose guard tells the server.
    Kill,
}

impl Strike {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Repeat,
        Self::Cut,
        Self::Restart,
        Self::Vanish,
        Self::Kill,
    ];

    /// Nothing of a connection can be repeated by itself that must stay in order.
    pub(crate) fn ends_link(self) -> bool {
        self != Self::Repeat
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Repeat => "repeat",
            Self::Cut => "cut",
            Self::Restart => "restart",
            Self::Vanish => "vanish",
            Self::Kill => "kill",
        }
    }
}

/// How a call of the server's disk fails that is chosen, not drawn: the so-manyth of its kind while
/// faults happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskStrike {
    /// A call that changes something does nothing, and fails.
    Fail,
    /// It does half of what it should, and fails.
    Half,
    /// It finds no room.
    Full,
    /// A sync fails, and the bytes that it should have made stable never will be.
    Sync,
    /// A read fails.
    Read,
}

impl DiskStrike {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Fail, Self::Half, Self::Full, Self::Sync, Self::Read];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Half => "half",
            Self::Full => "full",
            Self::Sync => "sync",
            Self::Read => "read",
        }
    }
}
