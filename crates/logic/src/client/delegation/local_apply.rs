//! The effects of a change on directories that are delegated to this client, and on the objects in
//! them.
//!
//! The server will come to the same when it hears of the change: the rules are those of the store
//! (`store/src/apply`), for the cases that a client can be sure of. For any other case there is no
//! prediction, and the server is asked as ever: where a right is in doubt, where somebody else may
//! hold an object, where not everything is known.

use super::dir_moves::may_write;
use crate::client::Client;
use crate::client::names::dir_cookies::Named;
use crate::client::node::Node;
use alloc::vec;
use alloc::vec::Vec;
use wire::{Attr, Caller, Chosen, Entry, Fid, Kind, Make, Name, Op, Outcome, Set, SetTime, Time};

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
const GROUP_EXECUTE: u16 = 0o010;
/// Less than a directory may have: the server has the last word near the end.
const LINKS_MAX: u32 = 60_000;

/// The predicted result of a change.
#[derive(Debug)]
pub(crate) struct Prediction {
    pub(crate) outcome: Outcome,
    /// The attributes afterwards.
    pub(crate) after: Vec<(Fid, Attr)>,
    /// The numbers that it gets.
    pub(crate) chosen: Chosen,
    /// When.
    pub(crate) at: Time,
    /// Directories that must be where they are when the server hears of it.
    pub(crate) relies_on: Vec<Fid>,
}

/// The caller that removes a name, and the directory of the name.
struct Remover<'a> {
    dir: &'a Attr,
    caller: &'a Caller,
}

/// The objects of a rename: the directories that a name goes from and comes to, the object that it
/// names, and the one that loses that name.
struct Moved {
    dirs: [Attr; 2],
    attr: Attr,
    gone: Option<(Fid, Attr)>,
}

impl Moved {
    /// It is done: within one directory, or so that a directory `leaves` one for another.
    fn take_place(
        &mut self,
        (within, leaves): (bool, bool),
        (name, new): (&Name, &Name),
        at: Time,
    ) {
        let [old, parent] = &mut self.dirs;
        self.attr.ctime = at;
        touch(old, at);
        old.size = old.size.saturating_sub(name.entry_bytes());
        if within {
            parent.clone_from(old);
        }
        old.nlink -= u32::from(leaves);
        parent.nlink += u32::from(leaves);
        touch(parent, at);
        if let Some((_, gone)) = &mut self.gone {
            parent.nlink -= u32::from(gone.kind == Kind::Directory);
            drop_link(gone, at);
        } else {
            parent.size += new.entry_bytes();
        }
        if within {
            old.clone_from(parent);
        }
    }
}

impl Client {
    /// The result of this change, if everything that it is about is this client's alone.
    pub(crate) fn predict(&mut self, now: Time, op: &Op, caller: &Caller) -> Option<Prediction> {
        match op {
            Op::Make { dir, name, .. } => self.predict_make(now, (*dir, name), op, caller),
            Op::Link { fid, dir, name } => self.predict_link(now, *fid, (*dir, name), caller),
            Op::Unlink { dir, name } => self.predict_removal(now, (*dir, name), caller, false),
            Op::Rmdir { dir, name } => self.predict_removal(now, (*dir, name), caller, true),
            Op::Rename {
                from,
                name,
                to,
                new,
                no_replace,
                ..
            } => {
                let places = ((*from, name), (*to, new));
                self.predict_rename(now, places, *no_replace, caller)
            }
            Op::SetAttr { fid, set } => self.predict_set(now, *fid, set, caller),
            Op::SetXattr { .. } | Op::RemoveXattr { .. } => self.predict_xattr(now, op, caller),
            _ => None,
        }
    }

    /// A directory that is delegated to this client, and about which nothing is on its way.
    fn own_dir(&self, dir: Fid, caller: &Caller) -> Option<&Node> {
        let node: &Node = self.nodes.get(&dir)?;
        let attr = node.sole()?;
        let usable = node.directory && node.bare && attr.nlink > 0;
        (usable && node.quiet() && may_change(attr, caller)).then_some(node)
    }

    /// The object that a name in it names: `None` if that is not known.
    fn named(node: &Node, name: &Name) -> Option<Option<Named>> {
        match node.dir.names.get(name) {
            Some(named) => Some(*named),
            None => node.dir.whole.then_some(None),
        }
    }

    fn predict_make(
        &mut self,
        now: Time,
        (dir, name): (Fid, &Name),
        op: &Op,
        caller: &Caller,
    ) -> Option<Prediction> {
        let Op::Make { make, mode, .. } = op else {
            return None;
        };
        let node = self.own_dir(dir, caller)?;
        if Self::named(node, name)?.is_some() {
            return None;
        }
        let (mut parent, position) = (node.sole()?.clone(), node.next_position());
        let kind = match make {
            Make::File => Kind::File,
            Make::Directory if parent.nlink < LINKS_MAX => Kind::Directory,
            Make::Symlink(target) if !target.is_empty() && !target.contains(&0) => Kind::Symlink,
            Make::Node {
                kind: kind @ (Kind::Fifo | Kind::Socket),
                ..
            } => *kind,
            _ => return None,
        };
        let mut attr = new_attr(&parent, kind, *mode, caller)?;
        let vnode = self.take_number()?;
        let at = self.clock.shows_after(now, parent.ctime);
        (attr.atime, attr.mtime, attr.ctime, attr.btime) = (at, at, at, at);
        if let Make::Symlink(target) = make {
            attr.size = target.len() as u64;
            attr.used_bytes = attr.size;
        }
        touch(&mut parent, at);
        parent.size += name.entry_bytes();
        parent.nlink += u32::from(kind == Kind::Directory);
        let fid = Fid {
            vnode,
            uniq: 1,
            ..dir
        };
        let entry = Entry {
            fid,
            attr: attr.clone(),
            dir: parent.clone(),
        };
        Some(Prediction {
            outcome: Outcome::Entry(entry),
            after: vec![(dir, parent), (fid, attr)],
            chosen: Chosen { vnode, position },
            at,
            relies_on: Vec::new(),
        })
    }

    fn predict_link(
        &mut self,
        now: Time,
        fid: Fid,
        (dir, name): (Fid, &Name),
        caller: &Caller,
    ) -> Option<Prediction> {
        let node = self.own_dir(dir, caller)?;
        if Self::named(node, name)?.is_some() || fid.volume != dir.volume {
            return None;
        }
        let (mut parent, position) = (node.sole()?.clone(), node.next_position());
        let node: &Node = self.nodes.get(&fid)?;
        let mut attr = node.sole()?.clone();
        let counted = (1..LINKS_MAX).contains(&attr.nlink) && self.naming == 0;
        if attr.kind == Kind::Directory || !counted || !node.quiet() {
            return None;
        }
        let at = self.clock.shows_after(now, parent.ctime.max(attr.ctime));
        attr.nlink += 1;
        attr.ctime = at;
        touch(&mut parent, at);
        parent.size += name.entry_bytes();
        let entry = Entry {
            fid,
            attr: attr.clone(),
            dir: parent.clone(),
        };
        Some(Prediction {
            outcome: Outcome::Entry(entry),
            after: vec![(dir, parent), (fid, attr)],
            chosen: Chosen { vnode: 0, position },
            at,
            relies_on: Vec::new(),
        })
    }

    /// Is the number of its names what the server will find? Of several names another one may be
    /// about to go, or a new one to come; while one is changed at the server that is the only one,
    /// the kernel has the object locked.
    pub(crate) fn counts(&self, attr: &Attr) -> bool {
        attr.kind == Kind::Directory || attr.nlink == 1 || self.naming == 0
    }

    /// An object that is to lose a name: its attributes, if it is this client's alone.
    fn victim(&self, fid: Fid, remover: &Remover<'_>, directory: bool) -> Option<Attr> {
        let node: &Node = self.nodes.get(&fid)?;
        let attr = node.sole()?.clone();
        let uid = remover.caller.uid;
        let owner = uid == 0 || uid == remover.dir.uid || uid == attr.uid;
        let fits = attr.kind.looks_like_directory() == directory;
        let empty = !directory || node.is_empty();
        let allowed = remover.dir.mode & STICKY == 0 || owner;
        let counted = self.counts(&attr);
        (fits && empty && allowed && counted && node.quiet()).then_some(attr)
    }

    fn predict_removal(
        &mut self,
        now: Time,
        (dir, name): (Fid, &Name),
        caller: &Caller,
        directory: bool,
    ) -> Option<Prediction> {
        let node = self.own_dir(dir, caller)?;
        let fid = Self::named(node, name)??.fid;
        let mut parent = node.sole()?.clone();
        let remover = Remover {
            dir: &parent,
            caller,
        };
        let mut attr = self.victim(fid, &remover, directory)?;
        let at = self.clock.shows_after(now, parent.ctime.max(attr.ctime));
        drop_link(&mut attr, at);
        touch(&mut parent, at);
        parent.size = parent.size.saturating_sub(name.entry_bytes());
        parent.nlink -= u32::from(directory);
        let outcome = Outcome::Removed {
            fid,
            attr: attr.clone(),
            dir: parent.clone(),
        };
        Some(Prediction {
            outcome,
            after: vec![(dir, parent), (fid, attr)],
            chosen: Chosen::default(),
            at,
            relies_on: Vec::new(),
        })
    }

    fn predict_rename(
        &mut self,
        now: Time,
        ((from, name), (to, new)): ((Fid, &Name), (Fid, &Name)),
        no_replace: bool,
        caller: &Caller,
    ) -> Option<Prediction> {
        let (source, target) = (self.own_dir(from, caller)?, self.own_dir(to, caller)?);
        let fid = Self::named(source, name)??.fid;
        let taken = Self::named(target, new)?;
        let victim = taken.map(|taken| taken.fid);
        let position = taken.map_or_else(|| target.next_position(), |taken| taken.position);
        if victim == Some(fid) || (no_replace && victim.is_some()) {
            return None;
        }
        let dirs = [source.sole()?.clone(), target.sole()?.clone()];
        let directory = self.nodes.get(&fid)?.directory;
        let leaves = directory && from != to;
        if directory && dirs[1].nlink >= LINKS_MAX {
            return None;
        }
        let relies_on = match leaves {
            true => self.way(fid, (from, to))?,
            false => Vec::new(),
        };
        // A directory that loses its name there may have names in it.
        let [remover, other] = [0, 1].map(|at| Remover {
            dir: &dirs[at],
            caller,
        });
        let attr = self.movable(fid, &remover)?;
        if leaves && !may_write(&attr, caller) {
            return None;
        }
        let gone = match victim {
            Some(victim) => Some((victim, self.victim(victim, &other, directory)?)),
            None => None,
        };
        let newest = newest([&dirs[0], &dirs[1], &attr], gone.as_ref());
        let at = self.clock.shows_after(now, newest);
        let mut moved = Moved { dirs, attr, gone };
        moved.take_place((from == to, leaves), (name, new), at);
        let Moved { dirs, attr, gone } = moved;
        let [old, parent] = dirs;
        let (one, other) = ((from, old.clone()), (to, parent.clone()));
        let mut after = vec![one, other, (fid, attr.clone())];
        after.extend(gone.clone());
        let outcome = Outcome::Renamed {
            fid,
            attr,
            victim: gone,
            from: old,
            to: parent,
        };
        Some(Prediction {
            outcome,
            after,
            chosen: Chosen { vnode: 0, position },
            at,
            relies_on,
        })
    }

    /// An object that gets another name: its attributes, if it is this client's alone.
    fn movable(&self, fid: Fid, remover: &Remover<'_>) -> Option<Attr> {
        let node: &Node = self.nodes.get(&fid)?;
        let attr = node.sole()?.clone();
        let uid = remover.caller.uid;
        let owner = uid == 0 || uid == remover.dir.uid || uid == attr.uid;
        let allowed = remover.dir.mode & STICKY == 0 || owner;
        (allowed && self.counts(&attr) && node.quiet()).then_some(attr)
    }

    pub(super) fn predict_set(
        &mut self,
        now: Time,
        fid: Fid,
        set: &Set,
        caller: &Caller,
    ) -> Option<Prediction> {
        let node: &Node = self.nodes.get(&fid)?;
        let mut attr = node.sole()?.clone();
        let quiet = node.quiet() && !node.writeback.sending && self.counts(&attr);
        let root = caller.uid == 0;
        let given = set.uid.is_some() || set.gid.is_some();
        let foreign = !root && (given || set.mode.is_some_and(|mode| mode & SET_GID != 0));
        // Any writer to a file takes these bits from it.
        let kills = *set
            == Set {
                kill_set_id: true,
                ..Set::default()
            };
        let allowed = root || kills || (caller.uid == attr.uid && !foreign);
        let link = attr.kind == Kind::Symlink && set.mode.is_some();
        // Where a list decides, the mode that was shown is not the one that is kept.
        let listed = set.mode.is_some() && !node.bare;
        if !quiet || !allowed || link || listed || set.size.is_some() || *set == Set::default() {
            return None;
        }
        let at = self.clock.shows_after(now, attr.ctime);
        if (given || set.kill_set_id) && attr.kind != Kind::Directory {
            attr.mode &= !SET_UID;
            let foreign = caller.uid != 0 && !may_be_member(caller, attr.gid);
            let by_other = set.kill_set_id && foreign;
            if attr.mode & GROUP_EXECUTE != 0 || by_other {
                attr.mode &= !SET_GID;
            }
        }
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.mode = set.mode.map_or(attr.mode, |mode| mode & 0o7777);
        attr.atime = time(set.atime, attr.atime, at);
        attr.mtime = time(set.mtime, attr.mtime, at);
        attr.ctime = at;
        Some(Prediction {
            outcome: Outcome::Attr(attr.clone()),
            after: vec![(fid, attr)],
            chosen: Chosen::default(),
            at,
            relies_on: Vec::new(),
        })
    }
}

/// The same as the server's rule: groups that are not known count for nothing.
fn may_be_member(caller: &Caller, gid: u32) -> bool {
    let among = |groups: &Vec<u32>| groups.contains(&gid);
    caller.gid == gid || caller.groups.as_ref().is_some_and(among)
}

fn time(set: Option<SetTime>, old: Time, now: Time) -> Time {
    match set {
        None => old,
        Some(SetTime::Now) => now,
        Some(SetTime::To(time)) => time,
    }
}

/// When any of these was changed last.
fn newest(all: [&Attr; 3], gone: Option<&(Fid, Attr)>) -> Time {
    let all = all.into_iter().chain(gone.map(|(_, attr)| attr));
    all.map(|attr| attr.ctime).max().unwrap_or(0)
}

fn touch(dir: &mut Attr, at: Time) {
    (dir.mtime, dir.ctime) = (at, at);
    dir.version += 1;
}

fn drop_link(attr: &mut Attr, at: Time) {
    attr.nlink = match attr.kind {
        Kind::Directory => 0,
        _ => attr.nlink.saturating_sub(1),
    };
    attr.ctime = at;
}

/// May the caller change the names of this directory, whoever looks at that? A caller with unknown
/// groups may only if it does not depend on them.
fn may_change(dir: &Attr, caller: &Caller) -> bool {
    let allows = |shift: u16| (dir.mode >> shift) & 0o3 == 0o3;
    match caller.uid {
        0 => true,
        uid if uid == dir.uid => allows(6),
        _ => allows(3) && allows(0),
    }
}

/// The attributes of an object that is made in a directory without lists that are inherited.
fn new_attr(parent: &Attr, kind: Kind, mode: u32, caller: &Caller) -> Option<Attr> {
    let umask = (mode >> wire::UMASK_SHIFT) as u16 & 0o777;
    let mut bits = (mode & 0o7777) as u16 & !umask;
    let inherits = parent.mode & SET_GID != 0;
    let directory = kind == Kind::Directory;
    if kind == Kind::Symlink {
        bits = 0o777;
    } else if directory && inherits {
        bits |= SET_GID;
    } else if inherits && mode & u32::from(SET_GID) != 0 && caller.uid != 0 {
        return None; // whether it may keep the bit depends on his groups
    }
    Some(Attr {
        uid: caller.uid,
        gid: if inherits { parent.gid } else { caller.gid },
        ..Attr::new(kind, bits, 0)
    })
}
