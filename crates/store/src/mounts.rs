//! Mount points: objects without content, in whose place programs see the root of another volume.
//!
//! A mount point holds the number of that volume, in the place of a device number, from when it is
//! made: so it leads there whatever the volume is called later, and the same for as long as it
//! exists. A client that comes by crosses it (see `logic/src/client/names/mount_points.rs`): here
//! it is a thing in a directory, and nobody asks for the volume behind it.
//!
//! A snapshot never changes, so nothing in it leads elsewhere: a mount point is an empty directory
//! there. In a replica it leads to the same volume as at its source, which is of the same cell.

use crate::value::Object;
use crate::volumes::Volumes;
use wire::{Attr, Fid, Kind, Name};

impl Volumes {
    /// An object as everybody sees it.
    pub(crate) fn show(&self, fid: Fid, object: Object) -> Object {
        let leads = !self.is_frozen(fid.volume) || self.is_replica(fid.volume);
        if object.attr.kind != Kind::Mount || leads {
            return object;
        }
        let attr = Attr {
            kind: Kind::Directory,
            nlink: 2 * object.attr.nlink,
            rdev: 0,
            ..object.attr
        };
        Object { attr, ..object }
    }

    /// The volume behind a mount point, as a stream says it: numbers mean nothing elsewhere. Empty
    /// if there is none any more.
    pub(crate) fn name_behind(&self, mount: &Attr) -> Vec<u8> {
        let volume = self.get(mount.rdev);
        let name = volume.map(|volume| self.full_name(volume));
        name.map_or_else(Vec::new, |name| name.as_bytes().to_vec())
    }

    /// The number of the volume that a stream has named so; 0: there is none here.
    pub(crate) fn named_in_stream(&self, name: &[u8]) -> u32 {
        let name = Name::new(name).ok();
        name.and_then(|name| self.find(&name)).unwrap_or(0)
    }
}
