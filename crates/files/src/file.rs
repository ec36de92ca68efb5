//! Open files.
//!
//! Guarantees: a file that is dropped is closed. A read or a write of up to 1 MiB is one operation;
//! a longer one is several.

use crate::access::{READ, WRITE};
use crate::attrs::{Metadata, SetAttributes};
use crate::error::{Error, Result};
use crate::object::{Found, Object};
use crate::tree::{Tree, ask, nonsense};
use client::Client;
use client::front::{Call, Completion, Done, How};
use rustix::io::Errno;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{Access, Caller, Kind, Make, Op, Refusal, limits};

const MOST: usize = limits::BULK_BYTES as usize;

/// How a file is opened, like `std::fs::OpenOptions`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: Option<u32>,
}

impl OpenOptions {
    /// Nothing is asked for yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For reading.
    #[must_use]
    pub fn read(self, read: bool) -> Self {
        Self { read, ..self }
    }

    /// For writing.
    #[must_use]
    pub fn write(self, write: bool) -> Self {
        Self { write, ..self }
    }

    /// For writing, each time at the end of the file, wherever that is then.
    #[must_use]
    pub fn append(self, append: bool) -> Self {
        Self { append, ..self }
    }

    /// The file is emptied.
    #[must_use]
    pub fn truncate(self, truncate: bool) -> Self {
        Self { truncate, ..self }
    }

    /// The file is made if it does not exist.
    #[must_use]
    pub fn create(self, create: bool) -> Self {
        Self { create, ..self }
    }

    /// The file is made, and must not exist.
    #[must_use]
    pub fn create_new(self, create_new: bool) -> Self {
        Self { create_new, ..self }
    }

    /// The mode of a file that is made, less the umask [default: 0666].
    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        Self {
            mode: Some(mode),
            ..self
        }
    }

    fn access(self) -> Access {
        Access {
            read: self.read,
            write: self.write || self.append,
        }
    }
}

/// An open file.
pub struct File {
    client: Arc<Client>,
    caller: Caller,
    object: Arc<Object>,
    path: PathBuf,
    access: Access,
    append: bool,
    /// Tells it apart from all that this tree has ever opened.
    number: u64,
    offset: u64,
}

impl Tree {
    /// Opens a file.
    ///
    /// # Errors
    /// As open(2).
    pub fn open_with(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File> {
        let path = path.as_ref();
        let access = options.access();
        if !(access.write || (access.read && !options.truncate)) {
            return Err(Error::errno(path, Errno::INVAL));
        }
        if options.create_new {
            return self.make_file(path, self.place(path, Errno::EXIST)?, options);
        }
        // Another program may change the name meanwhile: that decides whether the file is made or
        // opened.
        loop {
            match self.find(path, true) {
                Ok(found) => return self.open_found(path, found, options),
                Err(error) if !error.is_not_found() || !options.create => return Err(error),
                Err(_) => {}
            }
            let place = self.place_to_make(path)?;
            if place.slash {
                return Err(Error::errno(path, Errno::ISDIR));
            }
            match self.make_file(path, place, options) {
                Err(Error::Refused { errno, .. }) if errno == Errno::EXIST => {}
                made => return made,
            }
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Makes a file, or empties it, and opens it for writing.
    ///
    /// # Errors
    /// As open(2).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        self.open_with(path, options)
    }

    /// All that was done to an object before is on the server's disk when this returns.
    ///
    /// # Errors
    /// As fsync(2).
    pub fn sync(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let found = self.find(path, true)?;
        let fid = found.object.fid();
        match self.ask(Call::Sync { fid, handle: None }, &[]).done {
            Done::Refused(refusal) => Err(Error::refused(path, refusal)),
            _ => Ok(()),
        }
    }

    /// All bytes of a file.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let mut bytes = Vec::new();
        loop {
            let part = file.read_bytes(bytes.len() as u64, MOST)?;
            let end = part.bytes.is_empty();
            for slice in part.bytes.slices() {
                bytes.extend_from_slice(slice);
            }
            if end {
                return Ok(bytes);
            }
        }
    }

    /// Makes a file of these bytes, or replaces the content of the one that is there.
    ///
    /// # Errors
    /// As open(2) and write(2).
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.create(path)?.write_all_at(bytes.as_ref(), 0)
    }

    fn make_file(
        &self,
        path: &Path,
        place: crate::walk::Place,
        options: OpenOptions,
    ) -> Result<File> {
        let op = Op::Make {
            dir: place.dir.fid(),
            name: place.name,
            make: Make::File,
            mode: self.new_mode(options.mode.unwrap_or(0o666)),
            open: Some(options.access()),
        };
        let found = self.operate_on(path, op)?;
        let number = self.next_descriptor();
        Ok(self.file(path, (found.object, number), options))
    }

    fn open_found(&self, path: &Path, found: Found, options: OpenOptions) -> Result<File> {
        let access = options.access();
        match found.attr.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::errno(path, Errno::ISDIR)),
            // A device or FIFO of another machine is of no use here.
            _ => return Err(Error::errno(path, Errno::NXIO)),
        }
        let fid = found.object.fid();
        let attr = self.attr(path, fid)?;
        let read = if access.read { READ } else { 0 };
        let write = if access.write { WRITE } else { 0 };
        self.check(path, (fid, &attr), read | write)?;
        let number = self.next_descriptor();
        let call = Call::Open {
            fid,
            access,
            append: options.append,
            handle: number,
        };
        match self.ask(call, &[]).done {
            Done::Opened { .. } => {}
            Done::Refused(refusal) => return Err(Error::refused(path, refusal)),
            _ => return Err(nonsense(path)),
        }
        let file = self.file(path, (found.object, number), options);
        if options.truncate {
            let size = Some(0);
            let empty = SetAttributes {
                size,
                ..SetAttributes::default()
            };
            self.set(path, fid, &empty)?;
        }
        Ok(file)
    }

    fn file(&self, path: &Path, opened: (Arc<Object>, u64), options: OpenOptions) -> File {
        let (object, number) = opened;
        File {
            client: Arc::clone(self.client()),
            caller: self.caller().clone(),
            object,
            path: path.to_owned(),
            access: options.access(),
            append: options.append,
            number,
            offset: 0,
        }
    }
}

impl File {
    fn ask(&self, call: Call, data: &[u8]) -> Result<Completion> {
        let completion = ask(&self.client, self.caller.clone(), call, data);
        match completion.done {
            Done::Refused(refusal) => Err(Error::refused(&self.path, refusal)),
            _ => Ok(completion),
        }
    }

    fn read_bytes(&self, offset: u64, len: usize) -> Result<Completion> {
        if !self.access.read {
            return Err(Error::errno(&self.path, Errno::BADF));
        }
        let call = Call::Read {
            fid: self.object.fid(),
            offset,
            len: len.min(MOST) as u32,
            pages: false,
        };
        self.ask(call, &[])
    }

    /// Reads bytes from an offset on: how many were read; 0 at the end.
    ///
    /// # Errors
    /// As pread(2).
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let completion = self.read_bytes(offset, buffer.len())?;
        let mut count = 0;
        for slice in completion.bytes.slices() {
            buffer[count..count + slice.len()].copy_from_slice(slice);
            count += slice.len();
        }
        Ok(count)
    }

    /// Reads bytes from an offset on, at most 1 MiB, and gives them to `take` where they are: they
    /// are not copied before. There are none at the end.
    ///
    /// # Errors
    /// As pread(2).
    pub fn read_parts_at<R>(
        &self,
        len: usize,
        offset: u64,
        take: impl FnOnce(&mut [IoSlice<'_>]) -> R,
    ) -> Result<R> {
        let completion = match len {
            0 => None,
            len => Some(self.read_bytes(offset, len)?),
        };
        let slices = completion.iter().flat_map(|done| done.bytes.slices());
        let mut parts: Vec<_> = slices.map(IoSlice::new).collect();
        Ok(take(&mut parts))
    }

    /// Writes bytes at an offset (of a file opened for appending: at its end), at most 1 MiB: how
    /// many were written.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        if !self.access.write {
            return Err(Error::errno(&self.path, Errno::BADF));
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let bytes = &bytes[..bytes.len().min(MOST)];
        let call = Call::Write {
            fid: self.object.fid(),
            offset,
            len: bytes.len() as u32,
            how: if self.append {
                How::Append
            } else {
                How::Direct
            },
        };
        match self.ask(call, bytes)?.done {
            Done::Written { len } => Ok(len as usize),
            _ => Err(nonsense(&self.path)),
        }
    }

    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write_at(&bytes[done..], offset + done as u64)?;
        }
        Ok(())
    }

    /// The attributes of the file now.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub fn metadata(&self) -> Result<Metadata> {
        let fid = self.object.fid();
        match self.ask(Call::Op(Op::GetAttr { fid }), &[])?.done {
            Done::Attr { attr, .. } => Ok(Metadata { fid, attr }),
            _ => Err(nonsense(&self.path)),
        }
    }

    /// Sets the size of the file.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn set_len(&self, size: u64) -> Result<()> {
        if !self.access.write {
            return Err(Error::errno(&self.path, Errno::INVAL));
        }
        let set = wire::Set {
            size: Some(size),
            kill_set_id: true,
            ..wire::Set::default()
        };
        let fid = self.object.fid();
        self.ask(Call::Op(Op::SetAttr { fid, set }), &[]).map(drop)
    }

    /// All that was written to the file before is on the server's disk when this returns.
    ///
    /// # Errors
    /// As fsync(2).
    pub fn sync(&self) -> Result<()> {
        let fid = self.object.fid();
        let handle = Some(self.number);
        self.ask(Call::Sync { fid, handle }, &[]).map(drop)
    }

    /// The first byte from an offset on that is in a hole (`hole`), or that is in none; `None`:
    /// there is none before the end.
    ///
    /// # Errors
    /// As lseek(2) with `SEEK_HOLE` and `SEEK_DATA`.
    pub fn find(&self, offset: u64, hole: bool) -> Result<Option<u64>> {
        let fid = self.object.fid();
        let call = Call::Op(Op::Find { fid, offset, hole });
        match ask(&self.client, self.caller.clone(), call, &[]).done {
            Done::Position(at) => Ok(Some(at)),
            Done::Refused(Refusal::NothingBehind) => Ok(None),
            Done::Refused(refusal) => Err(Error::refused(&self.path, refusal)),
            _ => Err(nonsense(&self.path)),
        }
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.write_at(bytes, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }

    /// Nothing is kept here. [`File::sync`] makes it stable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(offset) => {
                self.offset = offset;
                return Ok(offset);
            }
            SeekFrom::Current(by) => (self.offset, by),
            SeekFrom::End(by) => (self.metadata()?.len(), by),
        };
        match base.checked_add_signed(by) {
            Some(offset) => {
                self.offset = offset;
                Ok(offset)
            }
            None => Err(Error::errno(&self.path, Errno::INVAL).into()),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let call = Call::Release {
            fid: self.object.fid(),
            access: self.access,
            handle: self.number,
        };
        // It is answered without waiting for anybody.
        ask(&self.client, self.caller.clone(), call, &[]);
    }
}
