//! Extended attributes: the kernel keeps none of them.

use super::{Kernel, Pin, Result, refused};
use logic::client::{Call, Done};
use wire::{Op, Refusal, XattrMode};

/// The name of the only one that programs set.
pub(crate) const LABEL: &[u8] = b"user.label";

/// The number in its value; 0: none that a program has set.
pub(crate) fn label_of(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_le_bytes)
}

impl Kernel {
    /// setxattr(2), or for 0 removexattr(2).
    pub(crate) async fn set_label(&self, pin: &Pin, label: u64) -> Result<()> {
        let inode = &pin.inode;
        let _alone = inode.lock.lock(&self.world.sched, true).await;
        let _change = self.change(inode);
        let (fid, name) = (inode.fid, LABEL.to_vec());
        let op = match label {
            0 => Op::RemoveXattr { fid, name },
            label => Op::SetXattr {
                fid,
                name,
                value: label.to_le_bytes().to_vec(),
                mode: XattrMode::Any,
            },
        };
        let reply = self.ask(Call::Op(op), Vec::new()).await;
        match reply.done {
            Done::Nothing => {
                inode.valid.set(false);
                Ok(())
            }
            _ => refused(&self.world, &reply),
        }
    }

    /// getxattr(2): 0 if there is none.
    pub(crate) async fn label(&self, pin: &Pin) -> Result<u64> {
        let (fid, name) = (pin.fid(), LABEL.to_vec());
        let op = Op::GetXattr { fid, name };
        let reply = self.ask(Call::Op(op), Vec::new()).await;
        match &reply.done {
            Done::Bytes(value) => Ok(label_of(value)),
            Done::Refused(Refusal::NoAttribute) => Ok(0),
            _ => refused(&self.world, &reply),
        }
    }

    /// listxattr(2): is there one?
    pub(crate) async fn has_label(&self, pin: &Pin) -> Result<bool> {
        let op = Op::ListXattr { fid: pin.fid() };
        let reply = self.ask(Call::Op(op), Vec::new()).await;
        match &reply.done {
            Done::Bytes(names) => Ok(!names.is_empty()),
            _ => refused(&self.world, &reply),
        }
    }
}
