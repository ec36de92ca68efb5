//! A small tree: changes of it, each of which is one system call besides opening and closing; a
//! model that repeats them; and the reading of a real one.

use crate::harness::Random;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// Names are drawn of these directories, the first of which is the root, and of so many in each.
const DIRS: [&str; 3] = ["", "d0/", "d1/"];
const NAMES: u64 = 6;
const LONGEST: u64 = 9000;
const LABEL: &str = "user.label";

#[derive(Clone, Debug)]
pub enum Change {
    Make(String),
    MakeDir(String),
    Symlink(String, String),
    Link(String, String),
    Write(String, u64, Vec<u8>),
    Truncate(String, u64),
    Mode(String, u32),
    Label(String, Vec<u8>),
    Rename(String, String),
    Remove(String),
    RemoveDir(String),
}

/// An object as it is shown at one of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// `f`, `d` or `l`.
    kind: char,
    mode: u32,
    /// The contents of a file, the target of a symbolic link.
    bytes: Vec<u8>,
    label: Vec<u8>,
    /// The first of its names, in the order of names.
    first: String,
}

/// The model: names, and the objects that they lead to.
#[derive(Default)]
pub struct Tree {
    names: BTreeMap<String, usize>,
    objects: Vec<Object>,
}

impl Change {
    /// Makes the change in a real tree, which allows it.
    pub fn make(&self, root: &Path) {
        let at = |path: &str| root.join(path);
        let write = |path: &str| File::options().write(true).open(at(path)).unwrap();
        let done = match self {
            Change::Make(path) => File::create_new(at(path)).map(drop),
            Change::MakeDir(path) => fs::create_dir(at(path)),
            Change::Symlink(path, target) => symlink(target, at(path)),
            Change::Link(from, to) => fs::hard_link(at(from), at(to)),
            Change::Write(path, offset, bytes) => write(path).write_all_at(bytes, *offset),
            Change::Truncate(path, size) => write(path).set_len(*size),
            Change::Mode(path, mode) => {
                fs::set_permissions(at(path), Permissions::from_mode(*mode))
            }
            Change::Label(path, label) => {
                let set = setxattr(at(path), LABEL, label, XattrFlags::empty());
                set.map_err(Into::into)
            }
            Change::Rename(from, to) => fs::rename(at(from), at(to)),
            Change::Remove(path) => fs::remove_file(at(path)),
            Change::RemoveDir(path) => fs::remove_dir(at(path)),
        };
        done.unwrap_or_else(|error| panic!("{self:?} in {}: {error}", root.display()));
    }
}

impl Tree {
    fn kind(&self, path: &str) -> Option<char> {
        self.names.get(path).map(|at| self.objects[*at].kind)
    }

    fn object(&mut self, path: &str) -> &mut Object {
        &mut self.objects[self.names[path]]
    }

    fn add(&mut self, path: &str, object: Object) {
        self.objects.push(object);
        self.names.insert(path.to_owned(), self.objects.len() - 1);
    }

    /// A name in a directory that is there.
    fn place(&self, random: &mut Random) -> String {
        loop {
            let dir = DIRS[random.below(DIRS.len() as u64) as usize];
            if dir.is_empty() || self.kind(dir.trim_end_matches('/')).is_some() {
                return format!("{dir}f{}", random.below(NAMES));
            }
        }
    }

    /// A change that the tree allows and that changes it.
    pub fn draw(&self, random: &mut Random) -> Change {
        loop {
            let drawn = match random.below(20) {
                0 => self.draw_dir(random),
                kind => self.draw_file(kind, random),
            };
            if let Some(change) = drawn {
                return change;
            }
        }
    }

    fn draw_dir(&self, random: &mut Random) -> Option<Change> {
        let [one, other] = match random.below(2) {
            0 => ["d0", "d1"],
            _ => ["d1", "d0"],
        };
        let is_empty = || {
            let inside = format!("{one}/");
            !self.names.keys().any(|name| name.starts_with(&inside))
        };
        match (self.kind(one), self.kind(other)) {
            (None, _) => Some(Change::MakeDir(one.to_owned())),
            (Some(_), None) => Some(Change::Rename(one.to_owned(), other.to_owned())),
            (Some(_), Some(_)) if is_empty() => Some(Change::RemoveDir(one.to_owned())),
            _ => None,
        }
    }

    fn draw_file(&self, kind: u64, random: &mut Random) -> Option<Change> {
        let path = self.place(random);
        match (kind, self.kind(&path)) {
            (1..=3, None) => Some(Change::Make(path)),
            (4, None) => Some(Change::Symlink(path, format!("t{}", random.next()))),
            (5..=10, Some('f')) => {
                let len = 1 + random.below(LONGEST / 3) as usize;
                let (offset, bytes) = (random.below(LONGEST), random.bytes(len));
                Some(Change::Write(path, offset, bytes))
            }
            (11..=12, Some('f')) => {
                let size = random.below(LONGEST);
                let other = self.objects[self.names[&path]].bytes.len() as u64 != size;
                other.then_some(Change::Truncate(path, size))
            }
            (13, Some('f')) => {
                let mode = 0o600 | random.below(0o100) as u32;
                let other = self.objects[self.names[&path]].mode != mode;
                other.then_some(Change::Mode(path, mode))
            }
            (14, Some('f')) => Some(Change::Label(path, random.bytes(8))),
            (15..=17, Some(_)) => {
                let to = self.place(random);
                let other = self.names.get(&to) != self.names.get(&path);
                other.then_some(Change::Rename(path, to))
            }
            (18, Some('f')) => {
                let to = self.place(random);
                let free = !self.names.contains_key(&to);
                free.then_some(Change::Link(path, to))
            }
            (19, Some(_)) => Some(Change::Remove(path)),
            _ => None,
        }
    }

    /// Repeats a change that was made.
    pub fn apply(&mut self, change: &Change) {
        let object = |kind, mode| Object {
            kind,
            mode,
            ..Object::default()
        };
        match change {
            Change::Make(path) => self.add(path, object('f', 0o644)),
            Change::MakeDir(path) => self.add(path, object('d', 0o755)),
            Change::Symlink(path, target) => {
                let bytes = target.clone().into_bytes();
                let link = object('l', 0o777);
                self.add(path, Object { bytes, ..link });
            }
            Change::Link(from, to) => {
                let at = self.names[from];
                self.names.insert(to.clone(), at);
            }
            Change::Write(path, offset, bytes) => {
                let (file, at) = (&mut self.object(path).bytes, *offset as usize);
                file.resize(file.len().max(at + bytes.len()), 0);
                file[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Change::Truncate(path, size) => self.object(path).bytes.resize(*size as usize, 0),
            Change::Mode(path, mode) => self.object(path).mode = *mode,
            Change::Label(path, label) => self.object(path).label.clone_from(label),
            Change::Rename(from, to) => self.rename(from, to),
            Change::Remove(path) | Change::RemoveDir(path) => drop(self.names.remove(path)),
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let (inside, new) = (format!("{from}/"), format!("{to}/"));
        let moved = |name: String| match name.strip_prefix(&inside) {
            Some(rest) => format!("{new}{rest}"),
            None => name,
        };
        let at = self.names.remove(from).unwrap();
        let names = std::mem::take(&mut self.names).into_iter();
        self.names = names.map(|(name, at)| (moved(name), at)).collect();
        self.names.insert(to.to_owned(), at);
    }

    /// The first difference from a tree that was read.
    pub fn differs(&self, seen: &BTreeMap<String, Object>) -> Option<String> {
        let all: BTreeSet<&String> = self.names.keys().chain(seen.keys()).collect();
        let mut firsts = BTreeMap::new();
        for (name, at) in &self.names {
            firsts.entry(at).or_insert(name);
        }
        let differs = |name: &&String| match (self.names.get(*name), seen.get(*name)) {
            (Some(at), Some(there)) => {
                let here = &self.objects[*at];
                let same = (here.kind, here.mode, &here.label, &here.bytes)
                    == (there.kind, there.mode, &there.label, &there.bytes);
                !same || *firsts[at] != there.first
            }
            _ => true,
        };
        let name = all.into_iter().find(differs)?;
        let here = self.names.get(name).map(|at| text(&self.objects[*at]));
        Some(format!(
            "{name}: {here:?} expected, {:?} there",
            seen.get(name).map(text)
        ))
    }
}

fn text(object: &Object) -> String {
    let Object { kind, mode, .. } = object;
    let (bytes, label) = (object.bytes.len(), &object.label);
    format!("{kind} {mode:o} of {bytes} bytes, {label:02x?}")
}

/// Everything in a real directory, by its path.
pub fn seen(root: &Path) -> BTreeMap<String, Object> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{dir}{}", entry.file_name().into_string().unwrap());
            let (object, number) = read(&entry.path());
            if object.kind == 'd' {
                dirs.push(format!("{name}/"));
            }
            all.insert(name, (object, number));
        }
    }
    let mut firsts = BTreeMap::new();
    for (name, (_, number)) in &all {
        firsts.entry(*number).or_insert_with(|| name.clone());
    }
    let with_first = |(name, (object, number))| {
        let first = firsts[&number].clone();
        (name, Object { first, ..object })
    };
    all.into_iter().map(with_first).collect()
}

/// An object, and its number.
fn read(path: &Path) -> (Object, u64) {
    let meta = fs::symlink_metadata(path).unwrap();
    let mut label = [0; 64];
    let (kind, bytes) = match meta.file_type() {
        kind if kind.is_dir() => ('d', Vec::new()),
        kind if kind.is_symlink() => {
            let target = fs::read_link(path).unwrap();
            ('l', target.into_os_string().into_encoded_bytes())
        }
        _ => ('f', fs::read(path).unwrap()),
    };
    let labelled = match kind {
        'f' => getxattr(path, LABEL, &mut label[..]).unwrap_or(0),
        _ => 0,
    };
    assert!(kind == 'd' || meta.size() == bytes.len() as u64, "{path:?}");
    let object = Object {
        kind,
        mode: meta.mode() & 0o7777,
        bytes,
        label: label[..labelled].to_vec(),
        first: String::new(),
    };
    (object, meta.ino())
}
