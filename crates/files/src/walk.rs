//! Paths: from the root to the object, name by name, as the kernel walks them.
//!
//! Guarantees: a directory is searched only by a user who may; symbolic links are followed, at most
//! 40 on one path; `..` leads to where the path came from.

use crate::access::SEARCH;
use crate::error::{Error, Result};
use crate::object::{Found, Object};
use crate::tree::{Tree, nonsense};
use client::front::Done;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use wire::{Kind, Name, Op};

/// Most symbolic links on one path (path_resolution(7)).
const LINKS_MAX: u32 = 40;
/// Most bytes of a path.
const PATH_BYTES: usize = 4095;

/// Where a path leads to, but for its last name.
pub(crate) struct Place {
    pub(crate) dir: Arc<Object>,
    pub(crate) name: Name,
    /// The path ends with a `/`: the object that it names must be a directory.
    pub(crate) slash: bool,
}

/// The last name of a path.
enum Last {
    /// The path leads to this object, and has no last name: it is `/`, or ends with `.` or `..`.
    Object(Found),
    Name(Place),
}

struct Walk<'a> {
    tree: &'a Tree,
    path: &'a Path,
    /// The directories from the root to where the walk is.
    above: Vec<Arc<Object>>,
    left: VecDeque<Vec<u8>>,
    links: u32,
}

impl Tree {
    /// The object that a path leads to; `follow`: also when the last name is a symbolic link's.
    pub(crate) fn find(&self, path: &Path, follow: bool) -> Result<Found> {
        let mut walk = Walk::new(self, path)?;
        loop {
            match walk.walk_to_last()? {
                Last::Object(found) => return Ok(found),
                Last::Name(place) => {
                    let found = self.look_up(path, &place)?;
                    let follow = follow || place.slash;
                    if follow && found.attr.kind == Kind::Symlink {
                        walk.follow(&found)?;
                        continue;
                    }
                    if place.slash && found.attr.kind != Kind::Directory {
                        return Err(Error::errno(path, Errno::NOTDIR));
                    }
                    return Ok(found);
                }
            }
        }
    }

    /// The directory of a path's last name, and that name. It need not exist.
    pub(crate) fn place(&self, path: &Path, refusal: Errno) -> Result<Place> {
        match Walk::new(self, path)?.walk_to_last()? {
            Last::Name(place) => Ok(place),
            Last::Object(_) => Err(Error::errno(path, refusal)),
        }
    }

    /// Where a file is to be made: like `place`, but a symbolic link in its place is followed.
    pub(crate) fn place_to_make(&self, path: &Path) -> Result<Place> {
        let mut walk = Walk::new(self, path)?;
        loop {
            match walk.walk_to_last()? {
                Last::Object(_) => return Err(Error::errno(path, Errno::ISDIR)),
                Last::Name(place) => match self.look_up(path, &place) {
                    Ok(found) if found.attr.kind == Kind::Symlink => walk.follow(&found)?,
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => return Ok(place),
                },
            }
        }
    }

    /// Looks up the last name of a path.
    pub(crate) fn look_up(&self, path: &Path, place: &Place) -> Result<Found> {
        let (dir, name) = (place.dir.fid(), place.name.clone());
        self.operate_on(path, Op::Lookup { dir, name })
    }
}

impl<'a> Walk<'a> {
    fn new(tree: &'a Tree, path: &'a Path) -> Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() > PATH_BYTES {
            return Err(Error::errno(path, Errno::NAMETOOLONG));
        }
        let mut walk = Walk {
            tree,
            path,
            above: vec![Arc::clone(tree.root())],
            left: VecDeque::new(),
            links: 0,
        };
        walk.push(bytes);
        Ok(walk)
    }

    /// Puts the names of a path before those that are left. A `/` at its end is kept as an empty
    /// name.
    fn push(&mut self, path: &[u8]) {
        let slash = path.len() > 1 && path.ends_with(b"/");
        let names = path.split(|byte| *byte == b'/');
        let names = names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
        let mut names: VecDeque<Vec<u8>> = names.collect();
        if slash && self.left.is_empty() && !names.is_empty() {
            names.push_back(Vec::new());
        }
        names.append(&mut self.left);
        self.left = names;
    }

    fn here(&self) -> &Arc<Object> {
        self.above.last().unwrap_or(self.tree.root())
    }

    /// Walks to the last name.
    fn walk_to_last(&mut self) -> Result<Last> {
        while let Some(name) = self.left.pop_front() {
            let slash = matches!(self.left.front(), Some(next) if next.is_empty());
            let last = self.left.len() == usize::from(slash);
            match name.as_slice() {
                b"" | b"." => self.search()?,
                b".." => {
                    self.search()?;
                    if self.above.len() > 1 {
                        self.above.pop();
                    }
                }
                name => {
                    self.search()?;
                    let name = Name::new(name).map_err(|error| Error::name(self.path, error))?;
                    let dir = Arc::clone(self.here());
                    let place = Place { dir, name, slash };
                    if last {
                        self.left.clear();
                        return Ok(Last::Name(place));
                    }
                    self.enter(&place)?;
                }
            }
        }
        let object = Arc::clone(self.here());
        let attr = self.tree.attr(self.path, object.fid())?;
        Ok(Last::Object(Found { object, attr }))
    }

    /// May the user search the directory where the walk is?
    fn search(&self) -> Result<()> {
        let dir = self.here().fid();
        let attr = self.tree.attr(self.path, dir)?;
        if attr.kind != Kind::Directory {
            return Err(Error::errno(self.path, Errno::NOTDIR));
        }
        self.tree.check(self.path, (dir, &attr), SEARCH)
    }

    /// Goes on to a name in the middle of the path.
    fn enter(&mut self, place: &Place) -> Result<()> {
        let found = self.tree.look_up(self.path, place)?;
        match found.attr.kind {
            Kind::Directory => {
                self.above.push(found.object);
                Ok(())
            }
            Kind::Symlink => self.follow(&found),
            _ => Err(Error::errno(self.path, Errno::NOTDIR)),
        }
    }

    /// Goes on with the target of a symbolic link in the directory where the walk is.
    fn follow(&mut self, link: &Found) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Error::errno(self.path, Errno::LOOP));
        }
        let fid = link.object.fid();
        let Done::Bytes(target) = self.tree.operate(self.path, Op::ReadLink { fid })? else {
            return Err(nonsense(self.path));
        };
        if target.starts_with(b"/") {
            self.above.truncate(1);
        }
        self.push(&target);
        Ok(())
    }
}
