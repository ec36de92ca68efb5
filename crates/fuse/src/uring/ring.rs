//! One io_uring, with the two commands that FUSE has. The thread that enables it is the only one
//! that may use it, and nothing happens in it but inside that thread's calls: requests are put into
//! their seats while it waits or submits. Other threads wake it by a descriptor that it polls.
//! (Nobody reads that: each write to it is an alarm, and it would take centuries to overflow.)

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::memory::Part;
use crate::abi::{self, UringCommand};
use crate::device::Device;

/// Submissions that fit into the ring; more are submitted in several calls.
const SUBMISSIONS: u32 = 64;
/// Completions that fit: more than there ever are seats of one ring.
const COMPLETIONS: u32 = 4096;
/// Where a submission says how many parts its address has.
const OFFSET_OF_LEN: usize = 24;
/// The device, among the ring's own files.
const DEVICE: Fixed = Fixed(0);
/// The completion that only wakes.
const WOKEN: u64 = u64::MAX;

/// Wakes the thread of a ring.
#[derive(Clone)]
pub(super) struct Alarm(Arc<OwnedFd>);

impl Alarm {
    pub(super) fn ring(&self) {
        // It fails only when it has been rung very often and not been heard yet.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The ring.
pub(super) struct Ring {
    ring: IoUring<Entry128, cqueue::Entry>,
    alarm: Alarm,
}

// SAFETY: the ring is kept from being sent only by the pointer into its own mapped memory, which is
// valid in every thread; it is sent once, before it is enabled.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring that does nothing yet.
    pub(super) fn new() -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        let alarm = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Ring {
            ring,
            alarm: Alarm(Arc::new(alarm)),
        })
    }

    pub(super) fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }

    /// Makes the ring the calling thread's.
    pub(super) fn enable(&mut self, device: &Device) -> io::Result<()> {
        let submitter = self.ring.submitter();
        submitter.register_files(&[device.as_fd().as_raw_fd()])?;
        submitter.register_enable_rings()?;
        self.listen()
    }

    /// Has each alarm complete something.
    fn listen(&mut self) -> io::Result<()> {
        let alarm = Fd(self.alarm.0.as_raw_fd());
        let poll = opcode::PollAdd::new(alarm, PollFlags::IN.bits().into()).multi(true);
        // SAFETY: it points to nothing.
        unsafe { self.push(&poll.build().user_data(WOKEN).into()) }
    }

    /// # Safety
    /// The memory that the submission points to lives until it is submitted, and memory that the
    /// kernel writes to until it is completed or the ring is gone.
    unsafe fn push(&mut self, submission: &Entry128) -> io::Result<()> {
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(submission) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }

    fn command(
        code: u32,
        token: u64,
        command: &UringCommand,
        parts: Option<&[Part; 2]>,
    ) -> Entry128 {
        let mut bytes = [0; 80];
        bytes[..size_of_val(command)].copy_from_slice(command.as_bytes());
        let address = parts.map(|parts| parts.as_ptr().expose_provenance() as u64);
        let built = opcode::UringCmd80::new(DEVICE, code)
            .cmd(bytes)
            .addr(address);
        let mut submission = built.build().user_data(token);
        if let Some(parts) = parts {
            // SAFETY: a submission is laid out by the kernel's interface; there are its bytes 24 to
            // 27, for which the builder of commands has no word.
            unsafe {
                let at = (&raw mut submission).cast::<u8>().add(OFFSET_OF_LEN);
                at.cast::<u32>().write(parts.len() as u32);
            }
        }
        submission
    }

    /// Registers a seat with a queue. EIO and the like, which come from the ring itself, end it;
    /// what the kernel thinks of the seat comes as its completion.
    pub(super) fn register(&mut self, token: u64, qid: u16, parts: &[Part; 2]) -> io::Result<()> {
        let command = UringCommand {
            qid,
            ..UringCommand::default()
        };
        let submission = Self::command(abi::uring::REGISTER, token, &command, Some(parts));
        // SAFETY: the parts are read by the submission, which is over when this returns; the thread
        // keeps the memory that they name for as long as it has the ring.
        unsafe { self.push(&submission)? };
        self.submit()
    }

    /// Has the answer in a seat taken.
    pub(super) fn commit(&mut self, token: u64, qid: u16, commit_id: u64) -> io::Result<()> {
        let command = UringCommand {
            commit_id,
            qid,
            ..UringCommand::default()
        };
        let submission = Self::command(abi::uring::COMMIT_AND_FETCH, token, &command, None);
        // SAFETY: it points to nothing; the seat's memory is kept as above.
        unsafe { self.push(&submission) }
    }

    /// Submits what was pushed: afterwards the answers among it have been taken.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submitter().submit() {
                Ok(_) if self.ring.submission().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a completion, or at most for so long.
    pub(super) fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        let waited = match most {
            None => submitter.submit_and_wait(1),
            Some(most) => {
                let most = Timespec::from(most);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&most))
            }
        };
        match waited {
            Ok(_) => Ok(()),
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TIME) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The seats something has happened to, and how it went.
    pub(super) fn completions(&mut self, into: &mut Vec<(u64, i32)>) -> io::Result<()> {
        let mut deaf = false;
        for completion in self.ring.completion() {
            match completion.user_data() {
                WOKEN => deaf = !cqueue::more(completion.flags()),
                token => into.push((token, completion.result())),
            }
        }
        if deaf { self.listen() } else { Ok(()) }
    }
}

/// Is it worth another attempt at once?
fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}
