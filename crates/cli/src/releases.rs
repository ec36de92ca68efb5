//! The releases that a server has of a volume, as the list of its volumes tells them.

use cell::Site;
use stream::Token;
use wire::{VolumeInfo, VolumeState, volume_numbers};

/// The release that a volume of a replica's store is, or will be; `None`: it is no release.
fn release_of(info: &VolumeInfo, first_volume: u32) -> Option<u32> {
    let replica = volume_numbers::replica(first_volume);
    let is_beside = volume_numbers::store(info.id) == volume_numbers::store(replica);
    let release = info.id.checked_sub(replica).filter(|_| is_beside)?;
    (release > 0).then_some(release)
}

/// Is everything here of a release that nobody sees yet?
fn is_whole(info: &VolumeInfo) -> bool {
    let receiving = info.provenance.receiving.as_ref();
    let token = receiving.filter(|half| !half.undoing).and_then(Token::of);
    token.is_some_and(|token| token.parts > 0 && token.after.0.is_empty())
}

/// The releases in the store whose first volume has this number.
pub(crate) fn site(volumes: &[VolumeInfo], first_volume: u32) -> Site {
    let of = |info| release_of(info, first_volume).map(|release| (release, info));
    let (mut site, mut whole) = (Site::default(), None);
    for (release, info) in volumes.iter().filter_map(of) {
        match info.state {
            VolumeState::Present if release > site.published => {
                (site.published, site.made) = (release, Some(info.made));
            }
            VolumeState::Receiving if is_whole(info) => whole = Some(release),
            _ => {}
        }
    }
    site.prepared = whole.filter(|release| *release > site.published);
    site
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use stream::Mark;
    use wire::{Blob, Identity, Limits, Name, Provenance, Receiving, StreamHead};

    pub(crate) const F: u32 = 0x0181_0001;

    /// A volume of a store with a replica.
    pub(crate) fn volume(id: u32, state: VolumeState, parts: Option<(u64, &[u8])>) -> VolumeInfo {
        let receiving = parts.map(|(chunks, after)| Receiving {
            head: StreamHead {
                volume: Identity::default(),
                snapshot: Identity::default(),
                name: Name::new(b"release").unwrap(),
                since: None,
                objects: 0,
                bytes: 0,
            },
            chunks,
            after: Mark {
                chain: stream::Chain([0; 32]),
                after: Blob(after.to_vec()),
            }
            .kept(),
            undoing: false,
        });
        VolumeInfo {
            id,
            name: Name::new(b"data.readonly").unwrap(),
            snapshot_of: (id != F + 1).then_some(F + 1),
            cloned_from: None,
            state,
            made: u64::from(id),
            objects: 0,
            bytes: 0,
            schedule: Vec::new(),
            limits: Limits::default(),
            provenance: Provenance {
                receiving,
                ..Provenance::default()
            },
        }
    }

    #[test]
    fn a_release_is_published_or_prepared_or_neither() {
        let (present, half) = (VolumeState::Present, VolumeState::Receiving);
        let found = |volumes: &[VolumeInfo]| {
            let site = site(volumes, F);
            (site.published, site.prepared)
        };
        let begun = [
            volume(F + 1, half, None),
            volume(F + 2, half, Some((3, b"x"))),
        ];
        assert_eq!(found(&begun), (0, None), "parts are missing");
        let whole = [
            volume(F + 1, half, None),
            volume(F + 2, half, Some((4, b""))),
        ];
        assert_eq!(found(&whole), (0, Some(1)));
        let nothing = [volume(F + 2, half, Some((0, b"")))];
        assert_eq!(found(&nothing), (0, None), "nothing has come");
        let mut later = vec![
            volume(F + 1, present, None),
            volume(F + 8, present, None),
            volume(F + 7, present, None),
        ];
        assert_eq!(found(&later), (7, None));
        later.push(volume(F + 9, half, Some((1, b""))));
        assert_eq!(found(&later), (7, Some(8)));
        let beside = [volume(F + (1 << 16) + 5, present, None)];
        assert_eq!(found(&beside), (0, None), "another store's");
    }
}
