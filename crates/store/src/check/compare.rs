//! Compares an object's own record with the other keys of the index about it.

use super::view::Seen;
use crate::value::Object;
use wire::Kind;

/// Any object.
pub(super) fn compare(object: &Object, seen: &Seen, wrong: &mut Vec<&'static str>) {
    let attr = &object.attr;
    let target = match attr.kind {
        Kind::Symlink => Some(attr.size),
        _ => None,
    };
    let used = if attr.kind == Kind::Symlink {
        attr.size
    } else {
        seen.used
    };
    let rules = [
        (
            object.extents == seen.extents,
            "its extents are not all there",
        ),
        (seen.end <= attr.size, "an extent lies beyond its end"),
        (
            u64::from(object.inline) == seen.inline.unwrap_or(0),
            "its first bytes in the index have another length",
        ),
        (
            u64::from(object.inline) <= attr.size,
            "its bytes in the index go beyond its end",
        ),
        (
            object.xattrs == seen.xattrs,
            "its extended attributes are not all there",
        ),
        (object.acl == seen.acl, "it does not know its access list"),
        (seen.target == target, "its target is not there"),
        (
            attr.used_bytes == used,
            "it occupies other bytes than it says",
        ),
        (
            (attr.nlink == 0) == seen.orphan,
            "it is not listed as an object without a name, or wrongly so",
        ),
    ];
    wrong.extend(
        rules
            .iter()
            .filter(|(right, _)| !right)
            .map(|(_, what)| *what),
    );
}

/// A directory.
pub(super) fn compare_dir(object: &Object, seen: &Seen, wrong: &mut Vec<&'static str>) {
    let attr = &object.attr;
    let named = attr.nlink > 0;
    let rules = [
        (
            object.entries == seen.entries,
            "its entries are not all there",
        ),
        (
            seen.entries == seen.positions,
            "its two lists of entries differ",
        ),
        (
            attr.size == seen.entry_bytes,
            "its size is not that of its entries",
        ),
        (
            !named || attr.nlink == 2 + seen.subdirs,
            "it has another number of directories than it says",
        ),
    ];
    wrong.extend(
        rules
            .iter()
            .filter(|(right, _)| !right)
            .map(|(_, what)| *what),
    );
}
