//! Listings of directories.
//!
//! Guarantees: each name that exists from the beginning of a listing to its end is in it once, and
//! none that existed at no moment of it.

use crate::access::READ;
use crate::attrs::Metadata;
use crate::error::{Error, Result};
use crate::names::os_name;
use crate::object::Object;
use crate::tree::{Tree, ask, nonsense};
use client::Client;
use client::front::{Call, Done, Listed};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{Attr, Caller, Fid, Kind};

/// How many entries are asked for at once.
const ENTRIES: u32 = 1024;

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    name: OsString,
    path: PathBuf,
    fid: Fid,
    kind: Kind,
    attr: Option<Attr>,
}

impl DirEntry {
    /// The name.
    #[must_use]
    pub fn file_name(&self) -> &OsString {
        &self.name
    }

    /// The path of the directory, as it was given, with the name behind it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kind of the object that it names.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The attributes of the object that it names, as they were when it was listed; `None`: these
    /// were not sent.
    #[must_use]
    pub fn metadata(&self) -> Option<Metadata> {
        let attr = self.attr.clone()?;
        Some(Metadata {
            fid: self.fid,
            attr,
        })
    }
}

/// The entries of a directory.
pub struct ReadDir {
    client: Arc<Client>,
    caller: Caller,
    dir: Arc<Object>,
    path: PathBuf,
    after: u64,
    entries: VecDeque<Listed>,
    over: bool,
}

impl Tree {
    /// Lists a directory. `.` and `..` are not in it.
    ///
    /// # Errors
    /// As opendir(3).
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let found = self.find(path, true)?;
        let fid = found.object.fid();
        let attr = self.attr(path, fid)?;
        if attr.kind != Kind::Directory {
            return Err(Error::errno(path, Errno::NOTDIR));
        }
        self.check(path, (fid, &attr), READ)?;
        Ok(ReadDir {
            client: Arc::clone(self.client()),
            caller: self.caller().clone(),
            dir: found.object,
            path: path.to_owned(),
            after: 0,
            entries: VecDeque::new(),
            over: false,
        })
    }
}

impl ReadDir {
    fn fetch(&mut self) -> Result<()> {
        let call = Call::List {
            dir: self.dir.fid(),
            after: self.after,
            max: ENTRIES,
            plus: true,
        };
        match ask(&self.client, self.caller.clone(), call, &[]).done {
            Done::Listing { entries, .. } => {
                self.over = entries.is_empty();
                if let Some(last) = entries.last() {
                    self.after = last.position;
                }
                self.entries = entries.into();
                Ok(())
            }
            Done::Refused(refusal) => Err(Error::refused(&self.path, refusal)),
            _ => Err(nonsense(&self.path)),
        }
    }

    /// An entry whose attributes come with it is a reference, too.
    fn entry(&self, listed: Listed) -> DirEntry {
        let attr = listed.known.map(|(attr, _)| attr);
        if attr.is_some() {
            self.client.forget(listed.fid, 1);
        }
        let name = os_name(&listed.name);
        DirEntry {
            path: self.path.join(&name),
            name,
            fid: listed.fid,
            kind: listed.kind,
            attr,
        }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.entries.is_empty()
            && !self.over
            && let Err(error) = self.fetch()
        {
            self.over = true;
            return Some(Err(error));
        }
        let listed = self.entries.pop_front()?;
        Some(Ok(self.entry(listed)))
    }
}

impl Drop for ReadDir {
    fn drop(&mut self) {
        for listed in std::mem::take(&mut self.entries) {
            self.entry(listed);
        }
    }
}
