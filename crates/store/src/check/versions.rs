//! All versions that lie in the index, seen or not; and as much as is counted of each view.

use super::{Stopped, Walk};
use crate::index::Found;
use crate::key::{self, Parts};
use crate::provenance::made_here;
use crate::reading::read_extent;
use crate::report::{Damage, Loss};
use crate::value::Extent;
use crate::versions::Version;

impl Walk<'_> {
    /// A view has as much as is said of it.
    pub(super) fn compare_counts(&mut self, view: u32, found: (u64, u64)) {
        let volumes = &self.core.index.volumes;
        let Some(volume) = volumes.get(view) else {
            return;
        };
        let name = volumes.full_name(volume);
        let counts = [
            ("objects", volume.objects, found.0),
            ("bytes", volume.bytes, found.1),
        ];
        for (what, kept, found) in counts {
            if kept != found {
                self.damage(Damage::Count {
                    name: format!("{what} of the volume {name}"),
                    kept,
                    found,
                });
            }
        }
    }

    /// Notes the number of an object, if it was made here. The objects of a replica have the
    /// numbers of its source.
    pub(super) fn note_number(&mut self, vnode: u64) {
        let volumes = &self.core.index.volumes;
        if !volumes.is_replica(volumes.live(self.volume)) {
            self.report.top = self.report.top.max(made_here(vnode));
        }
    }

    /// Reads all versions of all volumes as they lie there, once more.
    pub(super) fn all_versions(&mut self) -> Result<(), Stopped> {
        let volumes: Vec<u32> = self.index().volumes.with_keys().collect();
        for volume in volumes {
            self.volume = volume;
            let (mut from, to) = key::volume(volume);
            loop {
                let part = match self.index().raw_scan(&from, &to, 256) {
                    Ok(part) => part,
                    Err(error) => {
                        self.unread(&error);
                        break;
                    }
                };
                let Some((last, _)) = part.last() else {
                    break;
                };
                from = key::after(last);
                self.went_on(bytes_of(&part))?;
                for (key, value) in part {
                    // A bad key is reported by the checks that meet it.
                    let version = value.and_then(|value| Version::of(&key, value));
                    if let Some(parts) = key::parts(&key) {
                        self.version(parts, version.as_ref());
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the bytes of an extent. How many are there?
    fn extent_bytes(&mut self, vnode: u64, (begin, end): (u64, u64), extent: &Extent) -> u64 {
        self.stray(vnode, (begin, end), extent);
        if self.pass > 0 {
            return 0;
        }
        if extent.is_lost() {
            let file = self.core.describe(self.fid(vnode));
            self.report.lose(Loss {
                file,
                from: begin,
                to: end,
            });
            return 0;
        }
        *self.live.entry(extent.segment).or_default() += u64::from(extent.stored);
        let mut bytes = vec![0; extent.len as usize];
        if let Err(error) = read_extent(self.bytes, extent, 0, &mut bytes) {
            let (file, what) = (self.core.describe(self.fid(vnode)), error.to_string());
            self.damage(Damage::Bytes {
                file,
                from: begin,
                to: end,
                what,
            });
        }
        u64::from(extent.len)
    }

    /// Looks at a version by itself: of extents, at the bytes too. How many bytes of a file were
    /// read for it?
    pub(super) fn version(&mut self, parts: Parts<'_>, version: Option<&Version>) -> u64 {
        let extent = match version {
            Some(Version::Present(value)) if parts.kind == key::EXTENT => Extent::decode(value),
            Some(_) => return 0,
            None => None,
        };
        let place = extent.and_then(|extent| {
            let end = parts.number()?;
            Some((end.checked_sub(u64::from(extent.len))?, end, extent))
        });
        match place {
            Some((begin, end, extent)) => self.extent_bytes(parts.vnode, (begin, end), &extent),
            None => {
                // Without versions the view that sees it has told of it.
                if self.pass == 0 && !self.index().volumes.is_plain() {
                    self.entry_damage(parts, "a version of it does not read");
                }
                0
            }
        }
    }
}

/// The bytes of keys and values.
pub(super) fn bytes_of(part: &[Found]) -> u64 {
    let lens = part
        .iter()
        .map(|(key, value)| (key.len() + value.as_ref().map_or(0, Vec::len)) as u64);
    lens.sum()
}
