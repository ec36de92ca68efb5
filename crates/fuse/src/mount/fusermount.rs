//! The set-uid helper `fusermount3`: it mounts for an ordinary user and passes the open device
//! back over a socket whose descriptor number it finds in `_FUSE_COMMFD`. The socket is passed as
//! its standard input: then no other child of this process can inherit it.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use super::{MountError, MountOptions, Unmounted};

const HELPER: &str = "fusermount3";

/// The cure for the helper's message.
pub(super) fn cure(message: &str) -> &'static str {
    if message.contains("user_allow_other") {
        ": add the line user_allow_other to /etc/fuse.conf, or mount without allow_other"
    } else if message.contains("/dev/fuse") && message.contains("not permitted") {
        ": this container or service may not use the device: allow it (--device /dev/fuse, or \
         DeviceAllow=/dev/fuse)"
    } else if message.contains("/dev/fuse") && message.contains("denied") {
        ": its mode forbids it (as root: chmod 666 /dev/fuse)"
    } else if message.contains("/dev/fuse") {
        ": load the module (modprobe fuse), or give the container the device"
    } else if message.contains("Operation not permitted") {
        ": is fusermount3 set-uid root (chmod u+s)?"
    } else {
        ""
    }
}

pub(super) fn mount(mount_point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| refused(mount_point, errno))?;
    let output = run(Command::new(HELPER)
        .arg("-o")
        .arg(option_list(options))
        .arg("--")
        .arg(mount_point)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs)))?;
    if !output.status.success() {
        return Err(said(&output));
    }
    receive(&ours).map_err(|errno| refused(mount_point, errno))
}

pub(super) fn unmount(mount_point: &Path) -> Result<Unmounted, MountError> {
    let attempt = |flags| run(Command::new(HELPER).arg(flags).arg("--").arg(mount_point));
    if attempt("-u")?.status.success() {
        return Ok(Unmounted::Clean);
    }
    let output = attempt("-uz")?;
    if output.status.success() {
        Ok(Unmounted::Detached)
    } else {
        Err(said(&output))
    }
}

fn refused(mount_point: &Path, errno: Errno) -> MountError {
    MountError::Refused {
        what: "mount",
        dir: mount_point.to_owned(),
        errno,
    }
}

fn said(output: &Output) -> MountError {
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    MountError::Helper { message }
}

/// Runs the helper to its end. Its messages are looked at, so they are in English.
fn run(command: &mut Command) -> Result<Output, MountError> {
    command
        .env("LC_ALL", "C")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn();
    // The command holds the socket's other end; closed, a helper that dies ends our wait.
    command.stdin(Stdio::null());
    child
        .and_then(std::process::Child::wait_with_output)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => MountError::NoHelper,
            _ => MountError::Helper {
                message: error.to_string(),
            },
        })
}

fn option_list(options: &MountOptions) -> String {
    // A comma separates options, a backslash quotes it.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("fsname={source},subtype=ariel,default_permissions");
    if options.allow_other {
        list.push_str(",allow_other");
    }
    for word in options.flags.words() {
        list.push(',');
        list.push_str(word);
    }
    list
}

/// The one descriptor the helper sends with its one byte.
fn receive(socket: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => break,
        }
    }
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .ok_or(Errno::BADMSG)
}
