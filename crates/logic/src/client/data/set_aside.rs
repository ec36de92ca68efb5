//! The owner and the mode of a file in which changed blocks are set aside.
//!
//! Guarantees: a user may use the file beside another one only if he may use that one now, and
//! might when its bytes were changed here: it is made for its owner alone, and opened to others
//! only when it is known that it has the same group, and that neither has lists by which others
//! would get at it.

use super::stranded::Stranded;
use wire::{Attr, Caller, Set};

const OWNER: u16 = 0o700;
const GROUP: u16 = 0o070;
const ALL: u16 = 0o777;

impl Stranded {
    /// The file as the server has it now, and whether it has no lists. Parts of that may come into
    /// what is set aside.
    pub(super) fn is_now(&mut self, attr: &Attr, bare: bool) {
        let own = &mut self.attr;
        if own.gid != attr.gid {
            own.mode &= !GROUP;
        }
        own.mode &= attr.mode;
        (own.uid, own.gid) = (attr.uid, attr.gid);
        self.bare &= bare;
    }

    /// The user in whose name the file beside it is made.
    pub(super) fn maker(&self) -> Caller {
        let attr = &self.attr;
        Caller {
            uid: if self.by_root { 0 } else { attr.uid },
            gid: attr.gid,
            groups: None,
        }
    }

    pub(super) fn mode_at_first(&self) -> u16 {
        self.attr.mode & OWNER
    }

    /// Was it made in that name? Root of a machine whose root is nobody makes what is nobody's.
    pub(super) fn may_keep(&self, made: &Attr) -> bool {
        made.uid == self.maker().uid
    }

    /// The attributes that give it to its owner, and open it to all who may use the first
    /// one. `bare`: it has inherited no lists.
    pub(super) fn opens_to(&self, made: &Attr, bare: bool) -> Set {
        let own = &self.attr;
        let mut mode = own.mode & ALL;
        if !self.bare || !bare {
            mode &= OWNER;
        }
        let mut set = Set::default();
        if self.by_root {
            (set.uid, set.gid) = (Some(own.uid), Some(own.gid));
        } else if made.gid != own.gid {
            mode &= !GROUP;
        }
        set.mode = (mode != made.mode & ALL).then_some(mode);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(uid: u32, gid: u32, mode: u16) -> Attr {
        Attr {
            uid,
            gid,
            ..Attr::new(wire::Kind::File, mode, 0)
        }
    }

    fn mode(stranded: &Stranded, made: &Attr, bare: bool) -> u16 {
        let set = stranded.opens_to(made, bare);
        set.mode.unwrap_or(made.mode)
    }

    #[test]
    fn who_may_use_the_file_may_use_what_is_beside_it() {
        let mut stranded = Stranded::of(file(7, 8, 0o4664), true);
        stranded.is_now(&file(7, 8, 0o644), true);
        let made = file(7, 8, stranded.mode_at_first());
        assert_eq!(made.mode, 0o600);
        assert_eq!(mode(&stranded, &made, true), 0o644, "as narrow as both");
    }

    #[test]
    fn nobody_else_may() {
        let of = |own: Attr, bare: bool| Stranded::of(own, bare);
        let (made, same) = (file(7, 8, 0o600), file(7, 8, 0o664));
        // Others have taken rights away, or given it to another group or owner.
        let mut stranded = of(same.clone(), true);
        stranded.is_now(&file(7, 8, 0o600), true);
        assert_eq!(mode(&stranded, &made, true), 0o600);
        let mut stranded = of(same.clone(), true);
        stranded.is_now(&file(9, 10, 0o660), true);
        assert_eq!(mode(&stranded, &file(9, 10, 0o600), true), 0o600);
        assert_eq!(stranded.maker().uid, 9);
        // The directory gives it another group, or has lists; or the file has.
        let stranded = of(same.clone(), true);
        assert_eq!(mode(&stranded, &file(7, 11, 0o600), true), 0o604);
        assert_eq!(mode(&stranded, &made, false), 0o600);
        assert_eq!(mode(&of(same, false), &made, true), 0o600);
    }

    #[test]
    fn what_root_has_made_is_given_to_the_owner() {
        let mut stranded = Stranded::of(file(7, 8, 0o640), true);
        stranded.by_root = true;
        let set = stranded.opens_to(&file(0, 8, 0o600), true);
        assert_eq!(
            (stranded.maker().uid, set.uid, set.gid),
            (0, Some(7), Some(8))
        );
        assert_eq!(set.mode, Some(0o640));
        assert!(!stranded.may_keep(&file(wire::NOBODY, 8, 0o600)));
    }
}
