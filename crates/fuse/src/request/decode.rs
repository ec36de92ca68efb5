//! From bytes to `Request`: one small function for each form of arguments, one line for each
//! opcode. Every access is checked. Structures are copied out (88 bytes at most), so the buffer
//! needs no alignment; names and data stay where they are.

use std::mem::size_of;

use zerocopy::FromBytes;

use super::{
    Create, Dialect, Forgets, Header, Open, Operation, ParseError, Read, Release, Rename, Request,
    Setxattr, Write,
};
use crate::abi::{self, Opcode};

type Parsed<T> = Result<T, ParseError>;

/// The arguments not yet taken.
struct Body<'a> {
    header: Header,
    rest: &'a [u8],
    dialect: Dialect,
}

pub(super) fn request(bytes: &[u8], dialect: Dialect) -> Parsed<Request<'_>> {
    let no_head = ParseError::NoHead { len: bytes.len() };
    let (head, rest) = abi::InHeader::read_from_prefix(bytes).map_err(|_| no_head)?;
    let header = Header {
        unique: head.unique,
        opcode: Opcode(head.opcode),
        nodeid: head.nodeid,
        uid: head.uid,
        gid: head.gid,
        pid: head.pid,
    };
    let (unique, opcode) = (header.unique, header.opcode);
    if head.len as usize != bytes.len() {
        let (said, read) = (head.len as usize, bytes.len());
        return Err(ParseError::Length {
            unique,
            opcode,
            said,
            read,
        });
    }
    let extensions = usize::from(head.total_extlen) * abi::RECORD_ALIGN;
    let rest = rest
        .len()
        .checked_sub(extensions)
        .map(|end| &rest[..end])
        .ok_or(ParseError::Short {
            unique,
            opcode,
            what: "extensions",
        })?;
    let operation = operation(&mut Body {
        header,
        rest,
        dialect,
    })?;
    let whole = (bytes, dialect);
    Ok(Request {
        header,
        operation,
        whole,
    })
}

impl<'a> Body<'a> {
    fn short(&self, what: &'static str) -> ParseError {
        ParseError::Short {
            unique: self.header.unique,
            opcode: self.header.opcode,
            what,
        }
    }

    /// The next structure.
    fn take<T: FromBytes>(&mut self) -> Parsed<T> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| self.short("arguments"))?;
        self.rest = rest;
        Ok(value)
    }

    /// The next name, without its zero byte.
    fn name(&mut self) -> Parsed<&'a [u8]> {
        let (unique, opcode) = (self.header.unique, self.header.opcode);
        match self.rest.iter().position(|byte| *byte == 0) {
            None | Some(0) => Err(ParseError::Name { unique, opcode }),
            Some(end) => {
                let name = &self.rest[..end];
                self.rest = &self.rest[end + 1..];
                Ok(name)
            }
        }
    }

    /// The next `len` bytes.
    fn bytes(&mut self, len: u32) -> Parsed<&'a [u8]> {
        match self.rest.split_at_checked(len as usize) {
            None => Err(self.short("data")),
            Some((data, rest)) => {
                self.rest = rest;
                Ok(data)
            }
        }
    }
}

fn operation<'a>(body: &mut Body<'a>) -> Parsed<Operation<'a>> {
    use Operation as Op;
    Ok(match body.header.opcode {
        Opcode::LOOKUP => Op::Lookup { name: body.name()? },
        Opcode::FORGET => Op::Forget(forget(body)?),
        Opcode::BATCH_FORGET => Op::BatchForget(batch_forget(body)?),
        Opcode::GETATTR => Op::Getattr { fh: getattr(body)? },
        Opcode::SETATTR => Op::Setattr(body.take()?),
        Opcode::READLINK => Op::Readlink,
        Opcode::SYMLINK => Op::Symlink {
            name: body.name()?,
            target: body.name()?,
        },
        Opcode::MKNOD => mknod(body)?,
        Opcode::MKDIR => mkdir(body)?,
        Opcode::UNLINK => Op::Unlink { name: body.name()? },
        Opcode::RMDIR => Op::Rmdir { name: body.name()? },
        Opcode::RENAME | Opcode::RENAME2 => Op::Rename(rename(body)?),
        Opcode::LINK => link(body)?,
        Opcode::OPEN => Op::Open(open(body)?),
        Opcode::OPENDIR => Op::Opendir(open(body)?),
        Opcode::READ => Op::Read(read(body)?),
        Opcode::READDIR => Op::Readdir(read(body)?),
        Opcode::READDIRPLUS => Op::Readdirplus(read(body)?),
        Opcode::WRITE => Op::Write(write(body)?),
        Opcode::STATFS => Op::Statfs,
        Opcode::RELEASE => Op::Release(release(body)?),
        Opcode::RELEASEDIR => Op::Releasedir(release(body)?),
        Opcode::FSYNC => fsync(body, |fh, datasync| Op::Fsync { fh, datasync })?,
        Opcode::FSYNCDIR => fsync(body, |fh, datasync| Op::Fsyncdir { fh, datasync })?,
        Opcode::SETXATTR => Op::Setxattr(setxattr(body)?),
        Opcode::GETXATTR => getxattr(body)?,
        Opcode::LISTXATTR => Op::Listxattr {
            size: body.take::<abi::GetxattrIn>()?.size,
        },
        Opcode::REMOVEXATTR => Op::Removexattr { name: body.name()? },
        Opcode::FLUSH => flush(body)?,
        Opcode::CREATE => Op::Create(create(body)?),
        Opcode::TMPFILE => Op::Tmpfile(create(body)?),
        _ => rare_operation(body)?,
    })
}

fn rare_operation<'a>(body: &mut Body<'a>) -> Parsed<Operation<'a>> {
    use Operation as Op;
    Ok(match body.header.opcode {
        Opcode::INIT => Op::Init(init(body)?),
        Opcode::ACCESS => Op::Access(body.take()?),
        Opcode::INTERRUPT => Op::Interrupt {
            unique: body.take::<abi::InterruptIn>()?.unique,
        },
        Opcode::DESTROY => Op::Destroy,
        Opcode::LSEEK => lseek(body)?,
        Opcode::FALLOCATE => Op::Fallocate(body.take()?),
        Opcode::COPY_FILE_RANGE => Op::CopyFileRange(body.take()?),
        Opcode::COPY_FILE_RANGE_64 => Op::CopyFileRange64(body.take()?),
        Opcode::SYNCFS => Op::Syncfs,
        Opcode::STATX => Op::Statx(body.take()?),
        Opcode::GETLK => Op::Getlk(body.take()?),
        Opcode::SETLK => Op::Setlk(body.take()?),
        Opcode::SETLKW => Op::Setlkw(body.take()?),
        Opcode::IOCTL => ioctl(body)?,
        Opcode::POLL => Op::Poll(body.take()?),
        Opcode::BMAP => Op::Bmap(body.take()?),
        other => Op::Unknown(other),
    })
}

fn forget<'a>(body: &mut Body<'a>) -> Parsed<Forgets<'a>> {
    let nlookup = body.take::<abi::ForgetIn>()?.nlookup;
    let one = abi::ForgetOne {
        nodeid: body.header.nodeid,
        nlookup,
    };
    Ok(Forgets {
        one: Some(one),
        rest: &[],
    })
}

fn batch_forget<'a>(body: &mut Body<'a>) -> Parsed<Forgets<'a>> {
    let count = body.take::<abi::BatchForgetIn>()?.count;
    let len = count.checked_mul(size_of::<abi::ForgetOne>() as u32);
    let rest = body.bytes(len.ok_or_else(|| body.short("items"))?)?;
    Ok(Forgets { one: None, rest })
}

/// The whole items in `bytes`, wherever they lie.
pub(super) fn forget_items(bytes: &[u8]) -> impl Iterator<Item = abi::ForgetOne> + '_ {
    bytes
        .chunks_exact(size_of::<abi::ForgetOne>())
        .filter_map(|item| abi::ForgetOne::read_from_bytes(item).ok())
}

fn getattr(body: &mut Body<'_>) -> Parsed<Option<u64>> {
    let args: abi::GetattrIn = body.take()?;
    Ok((args.getattr_flags & abi::GETATTR_FH != 0).then_some(args.fh))
}

fn mknod<'a>(body: &mut Body<'a>) -> Parsed<Operation<'a>> {
    let args: abi::MknodIn = body.take()?;
    let name = body.name()?;
    Ok(Operation::Mknod {
        name,
        mode: args.mode,
        rdev: args.rdev,
        umask: args.umask,
    })
}

fn mkdir<'a>(body: &mut Body<'a>) -> Parsed<Operation<'a>> {
    let args: abi::MkdirIn = body.take()?;
    Ok(Operation::Mkdir {
        name: body.name()?,
        mode: args.mode,
        umask: args.umask,
    })
}

fn rename<'a>(body: &mut Body<'a>) -> Parsed<Rename<'a>> {
    let (new_parent, flags) = if body.header.opcode == Opcode::RENAME2 {
        let args: abi::Rename2In = body.take()?;
        (args.newdir, args.flags)
    } else {
        (body.take::<abi::RenameIn>()?.newdir, 0)
    };
    Ok(Rename {
        name: body.name()?,
        new_parent,
        new_name: body.name()?,
        flags,
    })
}

fn link<'a>(body: &mut Body<'a>) -> Parsed<Operation<'a>> {
    let nodeid = body.take::<abi::LinkIn>()?.oldnodeid;
    Ok(Operation::Link {
        nodeid,
        name: body.name()?,
    })
}

fn open(body: &mut Body<'_>) -> Parsed<Open> {
    let args: abi::OpenIn = body.take()?;
    let kill_suidgid = args.open_flags & abi::OPEN_KILL_SUIDGID != 0;
    Ok(Open {
        flags: args.flags,
        kill_suidgid,
    })
}

fn create<'a>(body: &mut Body<'a>) -> Parsed<Create<'a>> {
    let args: abi::CreateIn = body.take()?;
    Ok(Create {
        name: body.name()?,
        flags: args.flags,
        mode: args.mode,
        umask: args.umask,
        kill_suidgid: args.open_flags & abi::OPEN_KILL_SUIDGID != 0,
    })
}

fn read(body: &mut Body<'_>) -> Parsed<Read> {
    let args: abi::ReadIn = body.take()?;
    Ok(Read {
        fh: args.fh,
        offset: args.offset,
        size: args.size,
        flags: args.flags,
        lock_owner: (args.read_flags & abi::READ_LOCKOWNER != 0).then_some(args.lock_owner),
    })
}

fn write<'a>(body: &mut Body<'a>) -> Parsed<Write<'a>> {
    let args: abi::WriteIn = body.take()?;
    Ok(Write {
        fh: args.fh,
        offset: args.offset,
        data: body.bytes(args.size)?,
        flags: args.flags,
        lock_owner: (args.write_flags & abi::WRITE_LOCKOWNER != 0).then_some(args.lock_owner),
        from_cache: args.write_flags & abi::WRITE_CACHE != 0,
        kill_suidgid: args.write_flags & abi::WRITE_KILL_SUIDGID != 0,
    })
}

fn release(body: &mut Body<'_>) -> Parsed<Release> {
    let args: abi::ReleaseIn = body.take()?;
    Ok(Release {
        fh: args.fh,
        flags: args.flags,
        flush: args.release_flags & abi::RELEASE_FLUSH != 0,
        flock_unlock: args.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0,
        lock_owner: args.lock_owner,
    })
}

fn fsync<'a>(body: &mut Body<'a>, make: fn(u64, bool) -> Operation<'a>) -> Parsed<Operation<'a>> {
    let args: abi::FsyncIn = body.take()?;
    Ok(make(args.fh, args.fsync_flags & abi::FSYNC_FDATASYNC != 0))
}

fn setxattr<'a>(body: &mut Body<'a>) -> Parsed<Setxattr<'a>> {
    let (size, flags, setxattr_flags) = if body.dialect.setxattr_ext {
        let args: abi::SetxattrIn = body.take()?;
        (args.size, args.flags, args.setxattr_flags)
    } else {
        let args: abi::SetxattrCompatIn = body.take()?;
        (args.size, args.flags, 0)
    };
    let acl_kill_sgid = setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0;
    Ok(Setxattr {
        name: body.name()?,
        value: body.bytes(size)?,
        flags,
        acl_kill_sgid,
    })
}

fn getxattr<'a>(body: &mut Body<'a>) -> Parsed<Operation<'a>> {
    let size = body.take::<abi::GetxattrIn>()?.size;
    Ok(Operation::Getxattr {
        name: body.name()?,
        size,
    })
}

fn flush<'a>(body: &mut Body<'a>) -> Parsed<Operation<'a>> {
    let args: abi::FlushIn = body.take()?;
    Ok(Operation::Flush {
        fh: args.fh,
        lock_owner: args.lock_owner,
    })
}

/// Both forms; the fields that the short one lacks are zero. A form between them, of a kernel to
/// come or one gone by, is read as far as it goes.
fn init(body: &mut Body<'_>) -> Parsed<abi::InitIn> {
    if let Ok((full, _)) = abi::InitIn::read_from_prefix(body.rest) {
        return Ok(full);
    }
    let short: abi::InitCompatIn = body.take()?;
    Ok(abi::InitIn {
        major: short.major,
        minor: short.minor,
        max_readahead: short.max_readahead,
        flags: short.flags,
        ..abi::InitIn::default()
    })
}

fn lseek<'a>(body: &mut Body<'a>) -> Parsed<Operation<'a>> {
    let args: abi::LseekIn = body.take()?;
    Ok(Operation::Lseek {
        fh: args.fh,
        offset: args.offset,
        whence: args.whence,
    })
}

fn ioctl<'a>(body: &mut Body<'a>) -> Parsed<Operation<'a>> {
    let args: abi::IoctlIn = body.take()?;
    Ok(Operation::Ioctl(args, body.bytes(args.in_size)?))
}
