//! The handler behind `Mount`. One directory of regular files, node ids never used again. Names
//! with a meaning: creating `held…` waits until `release_held`, as does the question for attributes
//! after `hold_attributes`; looking up `panic` panics, `forgotten` drops the reply, `deadlock`
//! notifies on the serving thread, `stall` keeps it until `unstall`.

use super::PATIENCE;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};

use ariel_fuse::abi::{self, Attr, AttrOut, EntryOut, Kstatfs, OpenOut, fattr, fopen};
use ariel_fuse::directory::Entry;
use ariel_fuse::request::{Create, Read, Write};
use ariel_fuse::{
    DirectoryBuffer, Errno, FOREVER, Handler, Header, Notifier, Operation, Reply, Request,
};

#[derive(Default)]
struct State {
    names: BTreeMap<Vec<u8>, u64>,
    files: BTreeMap<u64, (u32, Vec<u8>)>,
    last_node: u64,
    held: Vec<(Reply, Held)>,
    /// The next question for this one's attributes is held back.
    holding: Option<u64>,
    /// All questions for attributes of files are.
    holding_all: bool,
    /// The serving thread is kept by a look-up.
    stalled: bool,
    /// Largest READ and WRITE seen.
    largest: (u32, usize),
    refused_on_serving_thread: bool,
}

/// The answer to a request that is held back.
enum Held {
    Create(EntryOut),
    Attr(AttrOut),
}

pub struct Memory {
    state: Mutex<State>,
    /// Told of each request that is held back.
    holds: Condvar,
    notifier: Notifier,
}

const FH: u64 = 0;

impl State {
    fn attr(&self, node: u64) -> Option<Attr> {
        let (mode, size) = match node {
            abi::ROOT_ID => (0o040_777, 0),
            _ => self
                .files
                .get(&node)
                .map(|(mode, bytes)| (*mode, bytes.len()))?,
        };
        let size = size as u64;
        Some(Attr {
            ino: node,
            size,
            mode,
            nlink: 1,
            blksize: 1 << 17,
            ..Attr::default()
        })
    }

    fn entry(&self, name: &[u8]) -> EntryOut {
        match self.names.get(name) {
            None => EntryOut::absent(FOREVER),
            Some(node) => EntryOut::new(*node, 0, self.attr(*node).unwrap(), FOREVER, FOREVER),
        }
    }

    fn make(&mut self, name: &[u8], mode: u32) -> EntryOut {
        self.last_node = self.last_node.max(abi::ROOT_ID) + 1;
        self.names.insert(name.to_vec(), self.last_node);
        self.files.insert(self.last_node, (mode, Vec::new()));
        self.entry(name)
    }
}

impl Memory {
    pub fn new(notifier: Notifier) -> Self {
        Memory {
            state: Mutex::default(),
            holds: Condvar::new(),
            notifier,
        }
    }

    /// Makes or changes a file without telling the kernel. The node id.
    pub fn put(&self, name: &str, content: &[u8]) -> u64 {
        let mut state = self.state.lock().unwrap();
        if !state.names.contains_key(name.as_bytes()) {
            state.make(name.as_bytes(), 0o100_644);
        }
        let node = state.names[name.as_bytes()];
        state.files.get_mut(&node).unwrap().1 = content.to_vec();
        node
    }

    /// Removes a name without telling the kernel.
    pub fn remove(&self, name: &str) {
        self.state.lock().unwrap().names.remove(name.as_bytes());
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        state.files[&state.names[name.as_bytes()]].1.clone()
    }

    /// Number of requests held back.
    pub fn held(&self) -> usize {
        self.state.lock().unwrap().held.len()
    }

    /// From now on all questions for attributes of files are held back, or none.
    pub fn hold_all_attributes(&self, hold: bool) {
        self.state.lock().unwrap().holding_all = hold;
    }

    /// Waits until a look-up keeps the serving thread.
    pub fn await_stalled(&self) {
        let state = self.state.lock().unwrap();
        let going = |state: &mut State| !state.stalled;
        let waited = self.holds.wait_timeout_while(state, PATIENCE, going);
        assert!(!waited.unwrap().1.timed_out(), "nothing stalls");
    }

    /// Lets the serving thread go.
    pub fn unstall(&self) {
        self.state.lock().unwrap().stalled = false;
        self.holds.notify_all();
    }

    fn stall(&self) {
        let mut state = self.state.lock().unwrap();
        state.stalled = true;
        self.holds.notify_all();
        let stalled = |state: &mut State| state.stalled;
        drop(self.holds.wait_timeout_while(state, PATIENCE, stalled));
    }

    /// Is this there, with this content?
    pub fn holds(&self, name: &str, content: &[u8]) -> bool {
        let state = self.state.lock().unwrap();
        let node = state.names.get(name.as_bytes());
        node.is_some_and(|node| state.files[node].1 == content)
    }

    /// Waits until a request is held back.
    pub fn await_held(&self) {
        let state = self.state.lock().unwrap();
        let none = |state: &mut State| state.held.is_empty();
        let waited = self.holds.wait_timeout_while(state, PATIENCE, none);
        assert!(!waited.unwrap().1.timed_out(), "nothing is held back");
    }

    /// Answers what was held back, from this thread.
    pub fn release_held(&self) {
        let held = std::mem::take(&mut self.state.lock().unwrap().held);
        for (reply, held) in held {
            match held {
                Held::Create(entry) => {
                    reply.create(&entry, &OpenOut::new(FH, fopen::KEEP_CACHE));
                }
                Held::Attr(attr) => drop(reply.attr(&attr)),
            }
        }
    }

    /// The next question for this one's attributes is answered by what is so when it comes, but
    /// only by `release_held`.
    pub fn hold_attributes(&self, node: u64) {
        self.state.lock().unwrap().holding = Some(node);
    }

    pub fn largest(&self) -> (u32, usize) {
        self.state.lock().unwrap().largest
    }

    pub fn refused_on_serving_thread(&self) -> bool {
        self.state.lock().unwrap().refused_on_serving_thread
    }

    fn lookup(&self, name: &[u8], reply: Reply) {
        match name {
            b"panic" => panic!("asked to"),
            b"forgotten" => drop(reply),
            b"deadlock" => {
                let refused = self.notifier.inval_entry(abi::ROOT_ID, name).unwrap_err();
                let refused = Errno::from_io_error(&refused) == Some(Errno::DEADLK);
                self.state.lock().unwrap().refused_on_serving_thread = refused;
                reply.error(Errno::NOENT);
            }
            b"stall" => {
                self.stall();
                reply.error(Errno::NOENT);
            }
            _ => {
                let entry = self.state.lock().unwrap().entry(name);
                reply.entry(&entry);
            }
        }
    }

    fn attributes(&self, node: u64, reply: Reply) {
        let mut state = self.state.lock().unwrap();
        let Some(attr) = state.attr(node) else {
            reply.error(Errno::STALE);
            return;
        };
        let attr = AttrOut::new(attr, FOREVER);
        let all = state.holding_all && node != abi::ROOT_ID;
        if all || state.holding.take_if(|held| *held == node).is_some() {
            state.held.push((reply, Held::Attr(attr)));
            self.holds.notify_all();
        } else {
            reply.attr(&attr);
        }
    }

    fn list(&self, read: Read, plus: bool, reply: Reply) {
        let state = self.state.lock().unwrap();
        let mut buffer = DirectoryBuffer::new(read.size);
        for (index, (name, node)) in state.names.iter().enumerate().skip(read.offset as usize) {
            let entry = Entry {
                ino: *node,
                next: index as u64 + 1,
                mode: 0o100_000,
                name,
            };
            let fits = match plus {
                true => buffer.push_plus(entry, &state.entry(name)),
                false => buffer.push(entry),
            };
            if !fits {
                break;
            }
        }
        reply.directory(&buffer);
    }

    fn create(&self, create: &Create<'_>, reply: Reply) {
        let mut state = self.state.lock().unwrap();
        let entry = state.make(create.name, create.mode);
        if create.name.starts_with(b"held") {
            state.held.push((reply, Held::Create(entry)));
            self.holds.notify_all();
        } else {
            reply.create(&entry, &OpenOut::new(FH, fopen::KEEP_CACHE));
        }
    }

    fn setattr(&self, node: u64, set: &abi::SetattrIn, reply: Reply) {
        if let Some((mode, bytes)) = self.state.lock().unwrap().files.get_mut(&node) {
            if set.valid & fattr::SIZE != 0 {
                bytes.resize(set.size as usize, 0);
            }
            if set.valid & fattr::MODE != 0 {
                *mode = set.mode;
            }
        }
        self.attributes(node, reply);
    }

    fn read(&self, node: u64, read: Read, reply: Reply) {
        let mut state = self.state.lock().unwrap();
        state.largest.0 = state.largest.0.max(read.size);
        let bytes = &state.files[&node].1;
        let from = bytes.len().min(read.offset as usize);
        let to = bytes.len().min(from + read.size as usize);
        let (first, second) = bytes[from..to].split_at((to - from) / 2);
        reply.slices(&[first, second]);
    }

    fn write(&self, node: u64, write: &Write<'_>, reply: Reply) {
        let mut state = self.state.lock().unwrap();
        state.largest.1 = state.largest.1.max(write.data.len());
        let bytes = &mut state.files.get_mut(&node).unwrap().1;
        let end = write.offset as usize + write.data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[write.offset as usize..end].copy_from_slice(write.data);
        reply.written(write.data.len() as u32);
    }
}

impl Handler for Memory {
    fn handle(&self, request: Request<'_>, reply: Reply) {
        let Header { nodeid, .. } = request.header;
        match request.operation {
            Operation::Lookup { name } => self.lookup(name, reply),
            Operation::Getattr { .. } => self.attributes(nodeid, reply),
            Operation::Setattr(set) => self.setattr(nodeid, &set, reply),
            Operation::Create(create) => self.create(&create, reply),
            Operation::Open(_) => drop(reply.open(&OpenOut::new(FH, fopen::KEEP_CACHE))),
            Operation::Read(read) => self.read(nodeid, read, reply),
            Operation::Write(write) => self.write(nodeid, &write, reply),
            Operation::Readdir(read) => self.list(read, false, reply),
            Operation::Readdirplus(read) => self.list(read, true, reply),
            Operation::Unlink { name } => {
                self.state.lock().unwrap().names.remove(name);
                reply.ok();
            }
            Operation::Statfs => drop(reply.statfs(&Kstatfs {
                blocks: 1000,
                bsize: 4096,
                frsize: 4096,
                namelen: 255,
                ..Kstatfs::default()
            })),
            Operation::Flush { .. } | Operation::Release(_) | Operation::Fsync { .. } => {
                reply.ok();
            }
            Operation::Forget(_) | Operation::BatchForget(_) | Operation::Interrupt { .. } => {}
            _ => drop(reply.error(Errno::NOSYS)),
        }
    }
}
