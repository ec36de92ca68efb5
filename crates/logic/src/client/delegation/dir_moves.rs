//! Moving a directory from one own directory to another, without asking the server.
//!
//! Two machines might each move a directory into the other one's, and nobody would find either
//! again: the server refuses the second, but here the caller is answered before the server hears of
//! it. So the way from both places up to a directory above both must be this client's own: a client
//! that wants to move any of it then asks for it, and is answered when the server has taken this
//! change.

use crate::client::Client;
use crate::client::node::Node;
use alloc::vec;
use alloc::vec::Vec;
use wire::{Attr, Caller, Fid};

/// So far up it is looked.
const ANCESTORS_MAX: usize = 64;
/// So many names of a directory at most: to ask the server takes no longer.
const NAMES_MAX: usize = 4096;

impl Client {
    /// A directory may be moved from this one to that one: the others on the way from one to the
    /// other, of which the server must hear of nothing before it has heard of this. `None`: it must
    /// be asked.
    pub(crate) fn way(&self, moved: Fid, (from, to): (Fid, Fid)) -> Option<Vec<Fid>> {
        let mut left = vec![from];
        while left.len() < ANCESTORS_MAX
            && let Some(above) = self.own_above(left[left.len() - 1])
        {
            left.push(above);
        }
        let mut right = vec![to];
        loop {
            let last = right[right.len() - 1];
            if let Some(common) = left.iter().position(|above| *above == last) {
                left.truncate(common + 1);
                break;
            }
            if last == moved || right.len() == ANCESTORS_MAX {
                return None; // it would come to be in itself
            }
            right.push(self.own_above(last)?);
        }
        right.pop();
        left.extend(right);
        left.retain(|dir| *dir != from && *dir != to);
        Some(left)
    }

    /// The directory that this one is in, if that is this client's own, and nothing about it is on
    /// its way.
    fn own_above(&self, dir: Fid) -> Option<Fid> {
        let above = self.nodes.get(&dir)?.parent?;
        let node: &Node = self.nodes.get(&above)?;
        let usable = node.sole().is_some() && node.quiet();
        // Where it was seen last it may not be any more.
        let mut names = node.dir.names.values().take(NAMES_MAX).flatten();
        (usable && names.any(|named| named.fid == dir)).then_some(above)
    }
}

/// May the caller write to this directory, whoever looks at that? It comes to be in another one.
pub(crate) fn may_write(dir: &Attr, caller: &Caller) -> bool {
    match caller.uid {
        0 => true,
        uid if uid == dir.uid => dir.mode & 0o200 != 0,
        _ => dir.mode & 0o022 == 0o022,
    }
}
