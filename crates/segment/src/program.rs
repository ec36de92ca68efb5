//! The program's side: connections and segments.
//!
//! Guarantees: a program never reads a page that its pager did not fill; the memory of a segment is
//! mapped as long as the segment is there, and nothing is unmapped that is not a segment's.

use crate::error::{Error, Result};
use crate::guardian::{Ranges, guard};
use crate::memory::{Aside, Mapping};
use crate::pager::Pager;
use crate::talk::{self, REFUSALS, Words, call};
use crate::uffd::{PAGE, Uffd};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// How a fork copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fork {
    /// Every page at once.
    Copy = 0,
    /// A page when one side writes it. Pages that the child only reads are copied into frames, too,
    /// but never stored, and given up first.
    OnWrite = 1,
    /// A page when the child refers to it or the parent writes it; then each child has its own.
    OnReference = 2,
    /// Sprite's: as `OnReference`, but a write of the parent gives the page to one child, from
    /// which the others take it when they refer to it.
    CowCor = 3,
}

/// How a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFigures {
    /// Its size, pages.
    pub pages: u64,
    /// Frames that it uses.
    pub frames: u64,
    /// The most that it may use; `None`: only all segments together have a limit.
    pub limit: Option<u64>,
    /// Frames that differ from the file.
    pub dirty: u64,
    /// Pages that are in a file.
    pub stored: u64,
    /// Pages that are a relative's.
    pub shared: u64,
}

struct Inner {
    calls: Mutex<OwnedFd>,
    ranges: Ranges,
}

/// A connection to a pager.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

/// A region of memory that is paged by a pager.
pub struct Segment {
    connection: Connection,
    id: u32,
    mapping: Option<Mapping>,
    /// Faults come here as long as one copy of it is open.
    _uffd: Uffd,
    /// It is another process's.
    abandoned: bool,
}

/// A connection that was made for another process: the child of a fork(2), say.
pub struct Joined {
    calls: OwnedFd,
    orders: OwnedFd,
}

/// The memory of a segment that no program has mapped yet.
pub struct Detached {
    id: u32,
    pages: u64,
    memory: OwnedFd,
}

/// The path of a pager's socket, to be connected to.
fn dial(path: &Path) -> Result<OwnedFd> {
    let address = SocketAddrUnix::new(path).map_err(Error::Pager)?;
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None);
    let socket = socket.map_err(Error::Pager)?;
    rustix::net::connect(&socket, &address).map_err(Error::Pager)?;
    Ok(socket)
}

fn ask<const N: usize>(
    calls: &OwnedFd,
    said: [u64; N],
    fds: &[BorrowedFd<'_>],
) -> Result<(Words, Option<OwnedFd>)> {
    let mut words: Words = [0; 8];
    words[..N].copy_from_slice(&said);
    talk::send(calls, &words, fds, true).map_err(Error::Pager)?;
    let answer = talk::receive(calls).map_err(Error::Pager)?;
    let (words, mut fds) = answer.ok_or(Error::Pager(Errno::PIPE))?;
    match words[0] {
        0 => Ok((words, fds.pop())),
        refusal => {
            let text = REFUSALS.get(refusal as usize - 1);
            Err(Error::Refused(
                text.unwrap_or(&"the pager refused the call"),
            ))
        }
    }
}

impl Joined {
    /// Connects to the pager at this path.
    ///
    /// # Errors
    /// There is none.
    pub fn new(path: &Path) -> Result<Self> {
        Self::over(dial(path)?)
    }

    /// The same over a socket whose other end a pager serves.
    ///
    /// # Errors
    /// It does not.
    pub fn over(calls: OwnedFd) -> Result<Self> {
        let (orders, theirs) = talk::pair()?;
        ask(&calls, [call::JOIN, 0, 0, 0], &[theirs.as_fd()])?;
        Ok(Self { calls, orders })
    }

    /// A child of a segment, which belongs to the program that has this connection.
    ///
    /// # Errors
    /// There is no such segment, or no room for another.
    pub fn fork(&self, from: u32, kind: Fork, limit: u64) -> Result<Detached> {
        fork(&self.calls, from, (kind, false), limit)
    }

    /// Begins to use the connection, in the process that is to have it.
    ///
    /// # Errors
    /// The guardian cannot be started.
    pub fn begin(self) -> Result<Connection> {
        let ranges = Ranges::default();
        guard(self.orders, Arc::clone(&ranges))?;
        let calls = Mutex::new(self.calls);
        Ok(Connection(Arc::new(Inner { calls, ranges })))
    }
}

/// `unmapped`: the program has unmapped all of the parent since it said that it would.
fn fork(
    calls: &OwnedFd,
    from: u32,
    (kind, unmapped): (Fork, bool),
    limit: u64,
) -> Result<Detached> {
    let (kind, unmapped) = (kind as u64, u64::from(unmapped));
    let words = [call::FORK, u64::from(from), kind, limit, unmapped];
    detached(ask(calls, words, &[])?)
}

fn detached((words, memory): (Words, Option<OwnedFd>)) -> Result<Detached> {
    Ok(Detached {
        id: words[1] as u32,
        pages: words[2],
        memory: memory.ok_or(Error::Pager(Errno::PROTO))?,
    })
}

impl Connection {
    /// Connects to the pager at this path.
    ///
    /// # Errors
    /// There is none.
    pub fn new(path: &Path) -> Result<Self> {
        Joined::new(path)?.begin()
    }

    /// A connection to a pager of this process.
    ///
    /// # Errors
    /// No thread or socket can be made.
    pub fn of(pager: &Pager) -> Result<Self> {
        let (mine, theirs) = talk::pair()?;
        pager.serve(theirs)?;
        Joined::over(mine)?.begin()
    }

    fn ask<const N: usize>(
        &self,
        words: [u64; N],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Words, Option<OwnedFd>)> {
        ask(&self.0.calls.lock(), words, fds)
    }

    /// A new segment of zeros. `limit`: the most frames that it may use, in pages; 0: as many as
    /// all together.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn make(&self, bytes: u64, limit: u64) -> Result<Segment> {
        let made = detached(self.ask([call::MAKE, bytes, limit, 0], &[])?)?;
        self.attach(made)
    }

    /// A child of any segment of this pager, also of another process's.
    ///
    /// # Errors
    /// There is no such segment, or no room for another.
    pub fn fork(&self, from: u32, kind: Fork, limit: u64) -> Result<Segment> {
        let child = fork(&self.0.calls.lock(), from, (kind, false), limit)?;
        self.attach(child)
    }

    /// Maps a segment of this connection.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, segment: Detached) -> Result<Segment> {
        let mapping = Mapping::new(&segment.memory, segment.pages as usize * PAGE)?;
        self.attach_at(segment, mapping)
    }

    /// Maps it in the place of what is there.
    ///
    /// # Errors
    /// The kernel refuses.
    ///
    /// # Safety
    /// Nothing uses the range any more, and nothing else will unmap it.
    pub unsafe fn replace(&self, segment: Detached, address: usize) -> Result<Segment> {
        let len = segment.pages as usize * PAGE;
        // SAFETY: the caller gives the range away.
        let mapping = unsafe { Mapping::replace(&segment.memory, address, len) }?;
        self.attach_at(segment, mapping)
    }

    fn attach_at(&self, segment: Detached, mapping: Mapping) -> Result<Segment> {
        let (address, len) = (mapping.address(), mapping.len());
        // The child of a fork(2) that this library does not know of would share the frames, and
        // nobody would serve its faults: it has no such range instead.
        mapping.keep_from_children();
        let uffd = Uffd::new()?;
        uffd.register(address, len)?;
        self.0.ranges.lock().push((address, len));
        // From here on its end takes the range out again.
        let made = Segment {
            connection: self.clone(),
            id: segment.id,
            mapping: Some(mapping),
            _uffd: uffd,
            abandoned: false,
        };
        let words = [call::ATTACH, u64::from(segment.id), address as u64, 0];
        self.ask(words, &[made._uffd.as_fd()])?;
        Ok(made)
    }

    /// The numbers of all segments of the pager, with the processes that made them.
    ///
    /// # Errors
    /// The pager is gone.
    pub fn segments(&self) -> Result<Vec<(u32, u32)>> {
        let mut found = Vec::new();
        let mut last = 0;
        loop {
            let (words, _) = self.ask([call::NEXT, last, 0, 0], &[])?;
            last = words[1];
            if last == 0 {
                return Ok(found);
            }
            found.push((last as u32, words[2] as u32));
        }
    }

    /// How any segment of the pager is.
    ///
    /// # Errors
    /// There is no such segment.
    pub fn figures(&self, segment: u32) -> Result<SegmentFigures> {
        let (words, _) = self.ask([call::STAT, u64::from(segment), 0, 0], &[])?;
        let [_, pages, frames, limit, dirty, stored, shared, _] = words;
        Ok(SegmentFigures {
            pages,
            frames,
            limit: (limit != u64::from(u32::MAX)).then_some(limit),
            dirty,
            stored,
            shared,
        })
    }

    /// The pager's counters so far, by name.
    ///
    /// # Errors
    /// The pager is gone.
    pub fn counters(&self) -> Result<Vec<(&'static str, u64)>> {
        let mut values = Vec::new();
        while values.len() < COUNTERS.len() {
            let (words, _) = self.ask([call::COUNTERS, values.len() as u64, 0, 0], &[])?;
            let rest = COUNTERS.len() - values.len();
            values.extend_from_slice(&words[1..=rest.min(7)]);
        }
        Ok(COUNTERS.into_iter().zip(values).collect())
    }
}

/// The names of the counters, in the order in which a pager tells them.
const COUNTERS: [&str; 15] = [
    "faults",
    "soft faults",
    "waits",
    "zeroed",
    "fetched",
    "read ahead",
    "stored",
    "dropped",
    "marked copy-on-write",
    "marked copy-on-reference",
    "copy-on-write faults",
    "copy-on-reference faults",
    "copied and written",
    "copies",
    "handed on",
];

impl Segment {
    /// Its number, by which another process of the same pager may fork it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    fn mapping(&self) -> &Mapping {
        self.mapping.as_ref().expect("it is mapped until its end")
    }

    /// Where it is.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping().address() as *mut u8
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping().len()
    }

    /// Never: a segment has a page at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is mapped as long as `self` lives, and only `bytes_mut` writes it.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len()) }
    }

    /// The same, to be changed.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is mapped as long as `self` lives, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len()) }
    }

    /// A child with the same content.
    ///
    /// # Errors
    /// There is no room for another.
    pub fn fork(&self, kind: Fork, limit: u64) -> Result<Segment> {
        let aside = self.set_aside();
        let calls = self.connection.0.calls.lock();
        let child = fork(&calls, self.id, (kind, aside.is_some()), limit);
        drop(calls);
        let made = self.connection.attach(child?);
        // Now: while the kernel unmaps so much it maps nothing new.
        if let Some(aside) = aside {
            aside.drop_later();
        }
        made
    }

    /// Unmaps all pages at one moment: each is mapped again at its next use. The kernel takes a
    /// part of the time that protecting them would take, and gives the rest of it to another
    /// thread. `None`: this kernel, or the pager, cannot.
    fn set_aside(&self) -> Option<Aside> {
        let words = [call::UNMAPPING, u64::from(self.id)];
        self.connection.ask(words, &[]).ok()?;
        self.mapping().set_aside()
    }

    /// Makes pages zeros again, and gives up their frames and places.
    ///
    /// # Errors
    /// There are no such pages, or the pager is gone.
    pub fn discard(&mut self, page: u64, count: u64) -> Result<()> {
        self.connection.discard(self.id, page, count)
    }

    /// Another limit of frames; 0: none of its own.
    ///
    /// # Errors
    /// It is too small, or the pager is gone.
    pub fn set_limit(&self, limit: u64) -> Result<()> {
        let words = [call::LIMIT, u64::from(self.id), limit, 0];
        self.connection.ask(words, &[]).map(drop)
    }

    /// How it is.
    ///
    /// # Errors
    /// The pager is gone.
    pub fn figures(&self) -> Result<SegmentFigures> {
        self.connection.figures(self.id)
    }

    /// The connection that it belongs to.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// In the child of a fork(2): the segment and its connection are the parent's. Only the
    /// copies of their descriptors are closed; the range is not there.
    pub fn abandon(mut self) {
        if let Some(mapping) = self.mapping.take() {
            std::mem::forget(mapping);
        }
        let calls = self.connection.0.calls.lock().as_raw_fd();
        // SAFETY: the parent's connection is used no more in this process: it is forgotten below,
        // so that nothing closes the descriptor again.
        unsafe { libc::close(calls) };
        let connection = self.connection.clone();
        std::mem::forget(connection);
        self.abandoned = true;
    }
}

impl Connection {
    /// As [`Segment::discard`], by number.
    ///
    /// # Errors
    /// There are no such pages, or the pager is gone.
    pub fn discard(&self, segment: u32, page: u64, count: u64) -> Result<()> {
        let words = [call::DISCARD, u64::from(segment), page, count];
        self.ask(words, &[]).map(drop)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.abandoned {
            return;
        }
        if let Some(mapping) = self.mapping.take() {
            let range = (mapping.address(), mapping.len());
            let mut ranges = self.connection.0.ranges.lock();
            ranges.retain(|known| *known != range);
            // Under the lock: the guardian unmaps pages only of what it finds there.
            drop(mapping);
        }
        let words = [call::DELETE, u64::from(self.id), 0, 0];
        // A pager that is gone has no segments.
        let _ = self.connection.ask(words, &[]);
    }
}
