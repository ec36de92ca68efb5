//! One client's machine with what surrounds it: a kernel that keeps a page, a size and a name for
//! ever until it is told otherwise, slots with the few bytes that matter, one program.

use super::disk::{FILE, ROOT};
use super::judge::{Do, Seen};
use logic::Ticket;
use logic::client::{Call, Client, Done, How, Invalidate, Lifetime, Piece};
use std::collections::BTreeMap;
use wire::{Access, Fid, Make, Name, Op};

/// All bytes of a slot that any file here reaches.
pub const BYTES: usize = 8;

/// The state that a kernel keeps for ever, and the state that it was told to drop.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    pub page: Option<u8>,
    pub size: Option<u64>,
    pub name: Option<Option<Fid>>,
    pub orders: Vec<(u64, Invalidate)>,
}

/// One client's machine with its surroundings.
#[derive(Clone, Debug)]
pub struct Host {
    /// Which one.
    pub at: usize,
    pub client: Client,
    pub kernel: Kernel,
    pub slots: BTreeMap<u32, [u8; BYTES]>,
    /// Bytes of requests that may have to be sent again.
    pub kept: BTreeMap<u64, Vec<u8>>,
    /// Opened how; through the page cache?
    pub handle: Option<(Access, bool)>,
    /// How many calls of the program have begun.
    pub begun: usize,
    pub under_way: Option<(Ticket, Do)>,
    pub last_ticket: Ticket,
    /// A call that was put back, and that begins again; once.
    pub again: Option<Do>,
    pub repeated: bool,
}

fn name() -> Name {
    Name::new(b"f").expect("a name")
}

impl Kernel {
    pub fn idle(&self) -> bool {
        self.orders.is_empty()
    }
}

impl Host {
    pub fn new(at: usize, client: Client) -> Self {
        Self {
            at,
            client,
            kernel: Kernel::default(),
            slots: BTreeMap::new(),
            kept: BTreeMap::new(),
            handle: None,
            begun: 0,
            under_way: None,
            last_ticket: 0,
            again: None,
            repeated: false,
        }
    }

    /// A page that is being read is locked: the kernel cannot drop it yet.
    pub fn may_drop(&self, order: usize) -> bool {
        let reading = matches!(self.under_way, Some((_, Do::Read)))
            && self.handle.is_some_and(|(_, cached)| cached);
        let drops_page = match &self.kernel.orders[order].1 {
            Invalidate::Inode { fid, ranges, .. } => {
                *fid == FILE && ranges.iter().any(|(from, to)| *from == 0 && *to > 0)
            }
            _ => false,
        };
        !(reading && drops_page)
    }

    /// The kernel answers from what it keeps, or asks the client.
    pub fn ask(&mut self, call: Do) -> Result<Seen, Call> {
        let (fid, dir) = (FILE, ROOT);
        let open = |write| Access { read: true, write };
        let (access, cached) = self.handle.unwrap_or_default();
        let write = |how, len| Call::Write {
            fid,
            offset: 0,
            len,
            how,
        };
        Err(match call {
            Do::OpenRead | Do::OpenWrite => Call::Open {
                fid,
                access: open(call == Do::OpenWrite),
                append: false,
                handle: 0,
            },
            Do::Close => {
                self.handle = None;
                Call::Release {
                    fid,
                    access,
                    handle: 0,
                }
            }
            Do::Read => match self.kernel.page.filter(|_| cached) {
                Some(byte) => return Ok(Seen::Byte(byte)),
                None => Call::Read {
                    fid,
                    offset: 0,
                    len: if cached { 4096 } else { 1 },
                    pages: cached,
                },
            },
            Do::Write(_) => {
                self.kernel.page = None;
                write(How::Direct, 1)
            }
            Do::Append => {
                self.kernel.page = None;
                write(How::Append, 1)
            }
            Do::Stat => match self.kernel.size {
                Some(size) => return Ok(Seen::Size(size)),
                None => Call::Op(Op::GetAttr { fid }),
            },
            Do::Create => match self.kernel.name {
                Some(Some(_)) => return Ok(Seen::Exists),
                _ => Call::Op(Op::Make {
                    dir,
                    name: name(),
                    make: Make::File,
                    mode: 0o644,
                    open: None,
                }),
            },
            Do::Unlink => match self.kernel.name {
                Some(None) => return Ok(Seen::NotFound),
                _ => Call::Op(Op::Unlink { dir, name: name() }),
            },
            Do::Lookup => match self.kernel.name {
                Some(known) => return Ok(Seen::Named(known.is_some())),
                None => Call::Op(Op::Lookup { dir, name: name() }),
            },
        })
    }

    /// Keeps an answer as the kernel does, and returns what the program sees of it.
    pub fn learn(&mut self, call: Do, done: &Done, bulk: &[u8]) -> Option<Seen> {
        let forever = |lifetime: &Lifetime| *lifetime == Lifetime::Forever;
        Some(match (call, done) {
            (Do::OpenRead | Do::OpenWrite, Done::Opened { cached, bytes }) => {
                let write = call == Do::OpenWrite;
                if let Some(byte) = self.gather(bytes, bulk).first() {
                    self.kernel.page = Some(*byte);
                }
                self.handle = Some((Access { read: true, write }, *cached));
                Seen::Done
            }
            (Do::Close, Done::Nothing) => Seen::Done,
            (Do::Read, Done::Read { pieces }) => {
                let byte = self.gather(pieces, bulk).first().copied()?;
                if self.handle.is_some_and(|(_, cached)| cached) {
                    self.kernel.page = Some(byte);
                }
                Seen::Byte(byte)
            }
            (Do::Write(_) | Do::Append, Done::Written { .. }) => {
                self.kernel.size = None;
                Seen::Done
            }
            (Do::Stat, Done::Attr { attr, lifetime }) => {
                self.kernel.size = forever(lifetime).then_some(attr.size);
                Seen::Size(attr.size)
            }
            (
                Do::Lookup | Do::Create,
                Done::Entry {
                    fid,
                    attr,
                    name_lifetime,
                    attr_lifetime,
                    ..
                },
            ) => {
                self.kernel.name = forever(name_lifetime).then_some(Some(*fid));
                if *fid == FILE && forever(attr_lifetime) {
                    self.kernel.size = Some(attr.size);
                }
                if call == Do::Create {
                    Seen::Done
                } else {
                    Seen::Named(true)
                }
            }
            (Do::Lookup, Done::Absent { lifetime }) => {
                self.kernel.name = forever(lifetime).then_some(None);
                Seen::Named(false)
            }
            (Do::Unlink, Done::Nothing) => {
                self.kernel.name = None;
                Seen::Done
            }
            (Do::Create, Done::Refused(wire::Refusal::Exists)) => {
                self.kernel.name = None;
                Seen::Exists
            }
            (Do::Unlink, Done::Refused(wire::Refusal::NotFound)) => {
                self.kernel.name = None;
                Seen::NotFound
            }
            _ => return None,
        })
    }

    /// The byte of the write under way.
    pub fn written(&self) -> u8 {
        match self.under_way {
            Some((_, Do::Write(byte))) => byte,
            _ => u8::MAX,
        }
    }

    pub fn put(&mut self, slot: u32, at: usize, bytes: &[u8]) {
        let held = self.slots.entry(slot).or_default();
        held[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn gather(&self, pieces: &[Piece], bulk: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            match *piece {
                Piece::Slot { slot, at, len } => {
                    let held = self.slots.get(&slot).copied().unwrap_or_default();
                    bytes.extend(&held[at as usize..(at + len) as usize]);
                }
                Piece::Zero { len } => bytes.resize(bytes.len() + len as usize, 0),
                Piece::Bulk { from, len } => {
                    bytes.extend(&bulk[from as usize..(from + len) as usize]);
                }
                Piece::Call { .. } => bytes.push(self.written()),
                Piece::Kept { request } => bytes.extend(&self.kept[&request]),
            }
        }
        bytes
    }
}
