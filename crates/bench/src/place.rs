//! Where a measure is taken: a directory of one side, and how to make its caches forget.

use std::io;
use std::path::{Path, PathBuf};

/// Nanoseconds of a monotonic clock.
pub type Clock = fn() -> u64;

/// Takes a mount away, which writes everything back, and mounts it again.
pub type Fresh<'a> = dyn FnMut(&Path) -> io::Result<()> + 'a;

/// The resources that the processes behind a mount have used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of the server.
    pub server_ns: u64,
    /// Processor time of the client.
    pub client_ns: u64,
    /// Memory of the client, beside its cache of file blocks.
    pub client_bytes: u64,
}

/// Tells what is used for the mount at a directory.
pub type Uses<'a> = dyn Fn(&Path) -> io::Result<Usage> + 'a;

/// The messages that the client behind a mount has sent to its server so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Messages; not those that carry what is in files, nor those that depend on time alone.
    pub messages: u64,
    /// Changes that it has answered by itself, of which the server has not said that it has them.
    pub untold: u64,
}

/// Tells what the client behind the mount at a directory has told.
pub type Tells<'a> = dyn Fn(&Path) -> io::Result<Told> + 'a;

/// A measure goes on until it has taken this long.
const LEAST_NS: u64 = 250_000_000;

/// One side.
pub(crate) struct At<'a> {
    /// A directory of its own, kept between the measures.
    pub(crate) dir: &'a Path,
    /// The same on the local side, for what both sides use or are compared with.
    pub(crate) local: &'a Path,
    /// The same directory through another mount; `None`: there is none, or it is a local one.
    pub(crate) other: Option<PathBuf>,
    pub(crate) clock: Clock,
    /// Writes everything back and, on a mount, makes this machine forget all of it.
    pub(crate) fresh: &'a mut dyn FnMut() -> io::Result<()>,
    /// The resources used behind it; `None`: they are not known, or it is a local directory.
    pub(crate) uses: Option<&'a dyn Fn() -> io::Result<Usage>>,
    /// The messages of its client; `None`: they are not known, or it is a local directory.
    pub(crate) told: Option<&'a dyn Fn() -> io::Result<Told>>,
    pub(crate) sizes: Sizes,
}

/// How much is measured with.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Small files.
    pub(crate) files: u32,
    /// Bytes of the large file.
    pub(crate) large_bytes: u64,
    /// A tree of C sources and how it is built.
    pub(crate) project: Option<(PathBuf, String)>,
}

impl At<'_> {
    /// How long this takes, s.
    pub(crate) fn seconds(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
        let begin = (self.clock)();
        work()?;
        Ok((self.clock)().saturating_sub(begin).max(1) as f64 / 1e9)
    }

    /// The resources that the processes behind it have used so far.
    pub(crate) fn usage(&self) -> io::Result<Usage> {
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "nobody says what is used");
        self.uses.ok_or_else(unknown)?()
    }

    /// The messages that the client behind it has sent to its server so far.
    pub(crate) fn told(&self) -> io::Result<Told> {
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "nobody says what is told");
        self.told.ok_or_else(unknown)?()
    }

    /// How many per second, when each pass does so many: passes until it has taken long enough.
    pub(crate) fn rate(
        &self,
        each: u64,
        mut pass: impl FnMut() -> io::Result<()>,
    ) -> io::Result<f64> {
        let begin = (self.clock)();
        let mut passes = 0;
        loop {
            pass()?;
            passes += 1;
            let took = (self.clock)().saturating_sub(begin).max(1);
            if took >= LEAST_NS {
                return Ok((each * passes) as f64 / (took as f64 / 1e9));
            }
        }
    }

    /// The same, once everything has been asked for before: twice, since reading may make a kernel
    /// ask for the time of access once more.
    pub(crate) fn warm_rate(
        &self,
        each: u64,
        mut pass: impl FnMut() -> io::Result<()>,
    ) -> io::Result<f64> {
        for _ in 0..2 {
            pass()?;
        }
        self.rate(each, pass)
    }
}
