//! Calls of programs about extended attributes.

use super::{LOG, Path, Program, REGISTER};
use crate::history::{Effect, Seen};
use crate::kernel::Pin;

impl Program {
    /// Sets or removes one, of a file or of a directory.
    pub(super) async fn set_label(&self) {
        let path = match self.below(4) {
            0 => self.dir_path(),
            1 => self.path(LOG),
            _ => self.path(REGISTER),
        };
        let Some(pin) = self.find(&path).await else {
            return;
        };
        let label = match self.below(4) {
            0 => 0,
            _ => 1 + self.below(1 << 40),
        };
        let fid = pin.fid();
        let change = self.begin(Effect::Label { fid, label });
        let result = self.kernel.set_label(&pin, label).await;
        self.end(change, &result);
    }

    /// Looks at one.
    pub(super) async fn get_label(&self) {
        let path = match self.below(4) {
            0 => self.dir_path(),
            _ => self.path(REGISTER),
        };
        if let Some(pin) = self.find(&path).await {
            self.look_at_label(&pin).await;
        }
    }

    /// The same in the end, where there may be any.
    pub(super) async fn look_at_label_of(&self, path: &Path) {
        if self.world.plan.has_labels()
            && let Some(pin) = self.find(path).await
        {
            self.look_at_label(&pin).await;
        }
    }

    async fn look_at_label(&self, pin: &Pin) {
        let (begin, fid) = (self.moment(), pin.fid());
        if self.below(3) == 0 {
            if let Ok(false) = self.kernel.has_label(pin).await {
                self.saw(begin, Seen::Label { fid, label: 0 });
            }
        } else if let Ok(label) = self.kernel.label(pin).await {
            self.saw(begin, Seen::Label { fid, label });
        }
    }
}
