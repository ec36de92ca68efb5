//! Access lists in the form in which Linux hands them over and stores them: what a list says of the
//! mode, what a mode makes of a list, and what is inherited. The rules are those of Linux
//! (`fs/posix_acl.c`); the rights that a list gives are decided in `permission`.

use wire::posix_acl::{GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, VERSION};

/// The extended attribute that holds an object's access list.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The one that holds what is made in a directory inherits.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// An entry: a user or a class of users, and the rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tag: u16,
    pub(crate) bits: u16,
    pub(crate) id: u32,
}

/// An access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List(Vec<Entry>);

impl List {
    /// From an attribute's value; `None`: not one.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let (version, entries) = value.split_first_chunk::<4>()?;
        let (entries, rest) = entries.as_chunks::<8>();
        if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
            return None;
        }
        let entry = |e: &[u8; 8]| Entry {
            tag: u16::from_le_bytes([e[0], e[1]]),
            bits: u16::from_le_bytes([e[2], e[3]]),
            id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
        };
        let list = Self(entries.iter().map(entry).collect());
        list.is_sound().then_some(list)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&entry.tag.to_le_bytes());
            value.extend_from_slice(&entry.bits.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.0.iter()
    }

    /// The classes in order, those without an id once, and a mask if there are named ones.
    fn is_sound(&self) -> bool {
        let several = |tag: u16| tag == USER || tag == GROUP;
        let ordered = self.0.windows(2).all(|pair| {
            let (one, next) = (pair[0].tag, pair[1].tag);
            one < next || (one == next && several(one))
        });
        let known = self.0.iter().all(|entry| {
            let tags = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
            tags.contains(&entry.tag) && entry.bits <= 7
        });
        let has = |tag: u16| self.0.iter().any(|entry| entry.tag == tag);
        let classes = has(USER_OBJ) && has(GROUP_OBJ) && has(OTHER);
        ordered && known && classes && (has(MASK) || !(has(USER) || has(GROUP)))
    }

    /// The entry that the group's bits of a mode stand for: the mask, if there is one.
    fn group_tag(&self) -> u16 {
        let masked = self.0.iter().any(|entry| entry.tag == MASK);
        if masked { MASK } else { GROUP_OBJ }
    }

    fn shift(&self, tag: u16) -> Option<u32> {
        match tag {
            USER_OBJ => Some(6),
            OTHER => Some(0),
            tag if tag == self.group_tag() => Some(3),
            _ => None,
        }
    }

    /// The permission bits that it makes.
    pub(crate) fn mode(&self) -> u16 {
        let bits = |entry: &Entry| Some(entry.bits << self.shift(entry.tag)?);
        self.0.iter().filter_map(bits).sum()
    }

    /// Does it say no more than a mode does?
    pub(crate) fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// It follows a mode that was set.
    pub(crate) fn set_mode(&mut self, mode: u16) {
        self.each(|bits, of_mode| *bits = of_mode, mode);
    }

    /// Makes of the list the one that an object made with a mode inherits: it allows no more than
    /// the mode, nor the mode more than the list. Returns the mode's permission bits then.
    pub(crate) fn inherit(&mut self, mode: u16) -> u16 {
        self.each(|bits, of_mode| *bits &= of_mode, mode);
        self.mode()
    }

    fn each(&mut self, change: impl Fn(&mut u16, u16), mode: u16) {
        let shifts: Vec<Option<u32>> = self.0.iter().map(|e| self.shift(e.tag)).collect();
        for (entry, shift) in self.0.iter_mut().zip(shifts) {
            if let Some(shift) = shift {
                change(&mut entry.bits, mode >> shift & 7);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Option<List> {
        let one = |&(tag, bits, id): &(u16, u16, u32)| Entry { tag, bits, id };
        List::parse(&List(entries.iter().map(one).collect()).encode())
    }

    #[test]
    fn a_list_and_a_mode_follow_each_other() {
        let plain = [(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 4, 0)];
        let plain = list(&plain).expect("sound");
        assert!(plain.is_mode());
        assert_eq!(plain.mode(), 0o754);
        let named = [
            (USER_OBJ, 7, 0),
            (USER, 7, 5),
            (GROUP_OBJ, 5, 0),
            (MASK, 6, 0),
            (OTHER, 4, 0),
        ];
        let mut named = list(&named).expect("sound");
        assert!(!named.is_mode());
        assert_eq!(named.mode(), 0o764, "the group's bits are the mask's");
        named.set_mode(0o640);
        assert_eq!(named.mode(), 0o640);
        let of = |named: &List, tag| named.entries().find(|e| e.tag == tag).map(|e| e.bits);
        assert_eq!(
            of(&named, GROUP_OBJ),
            Some(5),
            "the mask was set, not the group"
        );
        assert_eq!(named.inherit(0o444), 0o440);
        assert_eq!(of(&named, USER), Some(7));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert!(List::parse(b"").is_none());
        assert!(
            list(&[(USER_OBJ, 7, 0), (OTHER, 4, 0)]).is_none(),
            "no group"
        );
        let unmasked = [
            (USER_OBJ, 7, 0),
            (USER, 7, 1),
            (GROUP_OBJ, 7, 0),
            (OTHER, 0, 0),
        ];
        assert!(list(&unmasked).is_none());
        let twice = [
            (USER_OBJ, 7, 0),
            (GROUP_OBJ, 7, 0),
            (OTHER, 0, 0),
            (OTHER, 0, 0),
        ];
        assert!(list(&twice).is_none());
        assert!(list(&[(USER_OBJ, 8, 0), (GROUP_OBJ, 7, 0), (OTHER, 0, 0)]).is_none());
    }
}
