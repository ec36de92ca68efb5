//! Listings. The kernel caches them by itself, so `.` and `..` must come from here as everything
//! else does: first. Behind `.` is the offset 1, which the client's positions never have (they
//! are at least 2^40); behind `..` is the position where the client says that the listing begins,
//! which tells it apart from others. Behind that an offset of the kernel is a position of the
//! client. The end is an empty answer.

use std::sync::Arc;

use client::front::{Call, Done, Lifetime, Listed};
use wire::{Kind, Refusal};

use super::convert;
use super::handler::{Found, Tree, refuse, refuse_done};
use super::nodes::Nodes;
use crate::abi::{EntryOut, ROOT_ID};
use crate::directory::{DirectoryBuffer, Entry};
use crate::reply::{Delivery, Reply};
use crate::request::{Header, Read};

/// Bytes of the smallest record of `READDIR` and of `READDIRPLUS`.
const RECORD_BYTES: u32 = 32;
const RECORD_PLUS_BYTES: u32 = 160;

/// Offset behind `.`.
const BEHIND_DOT: u64 = 1;

/// An answer being filled.
struct Page {
    buffer: DirectoryBuffer,
    plus: bool,
}

impl Page {
    /// Adds an entry. The kernel looks up unknown attributes when it needs them.
    fn push(&mut self, entry: Entry<'_>, known: Option<&EntryOut>) -> bool {
        if self.plus {
            let unknown = EntryOut::default();
            self.buffer.push_plus(entry, known.unwrap_or(&unknown))
        } else {
            self.buffer.push(entry)
        }
    }

    /// Adds what of `.` and `..` lies behind this offset. The number of the parent is not known
    /// here; programs cannot rely on it, since it is another one where a mount begins.
    fn push_dots(&mut self, nodeid: u64, offset: u64, start: u64) {
        let dots: [(&[u8], u64, u64); 2] = [
            (b".", nodeid, BEHIND_DOT),
            (b"..", ROOT_ID, start.max(BEHIND_DOT + 1)),
        ];
        for (name, ino, next) in dots.into_iter().skip(2 - dots_behind(offset) as usize) {
            let entry = Entry {
                ino,
                next,
                mode: convert::type_bits(Kind::Directory),
                name,
            };
            self.push(entry, None);
        }
    }

    /// Adds as many entries as there is room for: how many.
    fn push_all(
        &mut self,
        entries: &[Listed],
        (nodes, known): (&Nodes, impl Fn(&Listed) -> Option<EntryOut>),
    ) -> usize {
        let fits = |listed: &&Listed| {
            let entry = Entry {
                ino: nodes.node(listed.fid),
                next: listed.position,
                mode: convert::type_bits(listed.kind),
                name: listed.name.as_bytes(),
            };
            self.push(entry, known(listed).as_ref())
        };
        entries.iter().take_while(fits).count()
    }
}

/// After which of its positions the client goes on, for an offset of the kernel.
fn position(offset: u64) -> u64 {
    if offset <= BEHIND_DOT { 0 } else { offset }
}

/// How many of `.` and `..` lie behind an offset of the kernel.
fn dots_behind(offset: u64) -> u32 {
    match offset {
        0 => 2,
        BEHIND_DOT => 1,
        _ => 0,
    }
}

/// How many entries may fit: no more are asked for, as each known one that does not fit would have
/// to be given back.
fn most_entries(size: u32, dots: u32, plus: bool) -> u32 {
    let record = if plus {
        RECORD_PLUS_BYTES
    } else {
        RECORD_BYTES
    };
    (size / record).saturating_sub(dots).max(1)
}

impl Tree {
    pub(super) fn list(self: &Arc<Self>, header: &Header, read: Read, plus: bool, reply: Reply) {
        let (tree, nodeid) = (Arc::clone(self), header.nodeid);
        let dir = self.fid(nodeid);
        let call = Call::List {
            dir,
            after: position(read.offset),
            max: most_entries(read.size, dots_behind(read.offset), plus),
            // Snapshots are entered by look-ups alone, which see to their node ids.
            plus: plus && !dir.is_snapshots(),
        };
        self.call(
            self.asker(header),
            call,
            move |completion| match completion.done {
                Done::Listing { start, entries } => {
                    let mut page = Page {
                        buffer: DirectoryBuffer::new(read.size),
                        plus,
                    };
                    page.push_dots(nodeid, read.offset, start);
                    tree.give_page(reply, page, entries);
                }
                other => refuse_done(reply, &other),
            },
        );
    }

    /// Answers with the entries that fit; the references of the others go back.
    fn give_page(&self, reply: Reply, mut page: Page, mut entries: Vec<Listed>) {
        // Files of a replica are objects of its releases, which are volumes of their own.
        for listed in &mut entries {
            if listed.known.is_some() && !self.nodes.admit(listed.fid.volume) {
                listed.known = None;
                self.client.forget(listed.fid, 1);
            }
        }
        let fit = page.push_all(
            &entries,
            (&self.nodes, |listed: &Listed| self.known(listed)),
        );
        let mut taken = fit;
        if page.buffer.is_empty() && !entries.is_empty() {
            // An empty answer would say that the listing ends here.
            refuse(reply, Refusal::Invalid);
        } else if reply.directory(&page.buffer) == Delivery::Unwanted {
            taken = 0;
        }
        for listed in &entries[taken..] {
            if listed.known.is_some() {
                self.client.forget(listed.fid, 1);
            }
        }
    }

    fn known(&self, listed: &Listed) -> Option<EntryOut> {
        let (attr, attr_lifetime) = listed.known.clone()?;
        Some(self.entry(&Found {
            fid: listed.fid,
            attr,
            name_lifetime: Lifetime::Forever,
            attr_lifetime,
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use wire::{Fid, Name};

    fn nodes() -> Nodes {
        Nodes::of(Fid::root(1))
    }

    fn page(size: u32, plus: bool) -> Page {
        Page {
            buffer: DirectoryBuffer::new(size),
            plus,
        }
    }

    fn listed(number: u64) -> Listed {
        Listed {
            name: Name::new(format!("name-{number:03}").as_bytes()).unwrap(),
            fid: nodes().fid(number),
            kind: Kind::File,
            position: (7 << 40) | number,
            known: None,
        }
    }

    /// (inode, offset, type, name) of each record of `READDIR`.
    fn records(mut bytes: &[u8]) -> Vec<(u64, u64, u32, Vec<u8>)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            let int = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            let len = int(16) as usize;
            found.push((long(0), long(8), int(20), bytes[24..24 + len].to_vec()));
            bytes = &bytes[(24 + len).next_multiple_of(8)..];
        }
        found
    }

    #[test]
    fn the_dots_come_first_and_once() {
        for (offset, names) in [
            (0, vec![b".".to_vec(), b"..".to_vec()]),
            (1, vec![b"..".to_vec()]),
            (1 << 40, vec![]),
            (5 << 40, vec![]),
        ] {
            let mut page = page(4096, false);
            page.push_dots(9, offset, 5 << 40);
            let found = records(page.buffer.as_bytes());
            assert_eq!(dots_behind(offset) as usize, names.len());
            if let Some(last) = found.last() {
                assert_eq!(last.1, 5 << 40, "the listing goes on where it began");
            }
            let found: Vec<_> = found.into_iter().map(|record| record.3).collect();
            assert_eq!(found, names, "{offset}");
        }
    }

    #[test]
    fn offsets_go_on_where_the_last_answer_ended() {
        assert_eq!([0, 1].map(position), [0, 0]);
        assert_eq!(position((3 << 40) | 5), (3 << 40) | 5);
        let mut page = page(4096, false);
        let entries: Vec<Listed> = (10..13).map(listed).collect();
        assert_eq!(page.push_all(&entries, (&nodes(), |_: &Listed| None)), 3);
        let records = records(page.buffer.as_bytes());
        let last = records.last().unwrap();
        assert_eq!(position(last.1), entries[2].position);
        assert_eq!((last.0, last.2), (12, 8), "the number, and DT_REG");
    }

    #[test]
    fn what_does_not_fit_is_left_out_whole() {
        let entries: Vec<Listed> = (0..100).map(listed).collect();
        let mut page = page(1000, true);
        let fit = page.push_all(&entries, (&nodes(), |_: &Listed| None));
        assert_eq!(fit, 1000 / 160);
        assert_eq!(page.buffer.as_bytes().len(), fit * 160);
        assert_eq!(most_entries(1000, 0, true) as usize, fit);
    }

    #[test]
    fn no_more_is_asked_for_than_may_fit() {
        assert_eq!(most_entries(4096, 2, true), 23);
        assert_eq!(most_entries(4096, 0, false), 128);
        assert_eq!(most_entries(10, 2, true), 1);
    }
}
