//! Packs directory entries the way `READDIR` and `READDIRPLUS` are answered: heads and names
//! padded to 8 bytes, never beyond the room the kernel gave, an entry whole or not at all.

use zerocopy::IntoBytes;

use crate::abi::{self, Dirent, Direntplus, EntryOut};

/// One entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Inode number.
    pub ino: u64,
    /// Cookie that goes on behind this entry: the `offset` of a later request.
    pub next: u64,
    /// Mode of the file; its type is used.
    pub mode: u32,
    /// Name.
    pub name: &'a [u8],
}

/// Entries packed so far, and the room for more.
#[derive(Debug)]
pub struct DirectoryBuffer {
    bytes: Vec<u8>,
    limit: usize,
}

impl DirectoryBuffer {
    /// A buffer for a request that has room for `size` bytes.
    #[must_use]
    pub fn new(size: u32) -> Self {
        // A kernel asks for at most its largest request; the capacity grows on use only.
        DirectoryBuffer {
            bytes: Vec::new(),
            limit: size as usize,
        }
    }

    /// Adds an entry for `READDIR`. False, and nothing added, if it does not fit.
    #[must_use]
    pub fn push(&mut self, entry: Entry<'_>) -> bool {
        self.append(dirent(entry).as_bytes(), entry.name)
    }

    /// Adds an entry for `READDIRPLUS`. False, and nothing added, if it does not fit. `known` is
    /// what a look-up of the name would answer, and counts as one look-up of its node; an
    /// entry with node id 0 (`.`, `..`, or attributes not at hand) counts as none.
    #[must_use]
    pub fn push_plus(&mut self, entry: Entry<'_>, known: &EntryOut) -> bool {
        let head = Direntplus {
            entry: *known,
            dirent: dirent(entry),
        };
        self.append(head.as_bytes(), entry.name)
    }

    fn append(&mut self, head: &[u8], name: &[u8]) -> bool {
        let end = self.bytes.len() + abi::record_align(head.len() + name.len());
        if end > self.limit || name.is_empty() || name.len() > abi::NAME_LEN_MAX {
            return false;
        }
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// Whether nothing was added. An empty answer says that the listing has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The packed entries.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn dirent(entry: Entry<'_>) -> Dirent {
    Dirent {
        ino: entry.ino,
        off: entry.next,
        namelen: entry.name.len() as u32,
        kind: (entry.mode >> 12) & 0o17,
    }
}
