//! Calls of programs that move files and directories: rename them, and exchange their names.

use super::{DIRECTORY, Program};
use crate::history::{Effect, Fate, Seen};
use crate::kernel::{Pin, Renamed};
use wire::{Fid, Name, Refusal};

impl Program {
    /// Two names of one letter, and the directories that they are in.
    async fn two(&self, letter: u8) -> Option<[(Pin, Name); 2]> {
        let (old, new) = (self.path(letter), self.path(letter));
        let from = self.parent(&old).await?;
        let to = self.parent(&new).await?;
        let same = from.fid() == to.fid() && old.name == new.name;
        (!same).then_some([(from, old.name), (to, new.name)])
    }

    pub(super) async fn rename(&self, letter: u8) {
        let Some([old, new]) = self.two(letter).await else {
            return;
        };
        let [source, target] = [&old, &new].map(|(dir, name)| (dir.fid(), name.clone()));
        let begin = self.moment();
        let effect = Effect::Rename {
            from: source.clone(),
            to: target.clone(),
            fid: None,
        };
        let change = self.begin(effect);
        let result = self.kernel.rename((&old.0, &old.1), (&new.0, &new.1)).await;
        match &result {
            Ok(Renamed::Nothing(fid)) => self.nothing(change, begin, ([source, target], *fid)),
            Ok(Renamed::Moved(moved)) => {
                self.world.history.about(change, *moved);
                self.end(change, &result);
            }
            Err(refusal) => {
                self.end(change, &result);
                if *refusal == Refusal::NotFound && source.0 == target.0 {
                    let ((dir, name), fid) = (source, None);
                    self.saw(begin, Seen::Name { dir, name, fid });
                }
            }
        }
    }

    /// Two names of one object: so the kernel believed.
    fn nothing(&self, change: usize, begin: u64, (names, fid): ([(Fid, Name); 2], Fid)) {
        self.world.history.end(change, self.moment(), Fate::Failed);
        for (dir, name) in names.clone() {
            let fid = Some(fid);
            self.saw(begin, Seen::Name { dir, name, fid });
        }
        self.saw(begin, Seen::Twins { names, fid });
    }

    /// Each of two names comes to mean what the other one meant: two files', or two directories'.
    pub(super) async fn exchange(&self, letter: u8) {
        let letter = match self.below(2) {
            0 => DIRECTORY,
            _ => letter,
        };
        let Some([one, other]) = self.two(letter).await else {
            return;
        };
        let names = [&one, &other].map(|(dir, name)| (dir.fid(), name.clone()));
        let begin = self.moment();
        let change = self.begin(Effect::Exchange {
            names: names.clone(),
        });
        let result = self
            .kernel
            .exchange((&one.0, &one.1), (&other.0, &other.1))
            .await;
        match &result {
            Ok(Renamed::Nothing(fid)) => self.nothing(change, begin, (names, *fid)),
            _ => self.end(change, &result),
        }
    }
}
