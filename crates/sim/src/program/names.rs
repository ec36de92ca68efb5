//! Calls of programs about names: make, link, remove, list.

use super::{BOTH, DIRECTORY, LOG, Path, Program, REGISTER, name};
use crate::history::{Effect, Fate, Seen};
use wire::{Access, Fid, Refusal};

impl Program {
    pub(super) async fn create(&mut self, path: &Path, how: (Access, bool), exclusive: bool) {
        let Some(dir) = self.parent(path).await else {
            return;
        };
        let (fid, name) = (dir.fid(), path.name.clone());
        let effect = Effect::Make {
            dir: fid,
            name: name.clone(),
            mode: 0o644,
            fid: None,
        };
        let begin = self.moment();
        let change = self.begin(effect);
        let result = self
            .kernel
            .create((&dir, &name), how, (exclusive, 0o644))
            .await;
        let seen = match &result {
            Ok((handle, true)) => {
                self.world.history.about(change, handle.pin.fid());
                self.end(change, &result);
                None
            }
            Ok((handle, false)) => {
                let found = Some(handle.pin.fid());
                self.world.history.end(change, self.moment(), Fate::Failed);
                Some(Seen::Name {
                    dir: fid,
                    name: name.clone(),
                    fid: found,
                })
            }
            Err(refusal) => {
                self.end(change, &result);
                let exists = *refusal == Refusal::Exists;
                exists.then(|| Seen::Present {
                    dir: fid,
                    name: name.clone(),
                })
            }
        };
        if let Some(seen) = seen {
            self.saw(begin, seen);
        }
        if let Ok((handle, _)) = result {
            self.handles.push((handle, name.as_bytes()[0]));
            if self.handles.len() > 3 {
                self.kernel.close(self.handles.remove(0).0);
            }
        }
    }

    pub(super) async fn remove(&self, letter: u8, as_dir: bool) {
        let path = if as_dir {
            self.dir_path()
        } else {
            self.path(letter)
        };
        let Some(dir) = self.parent(&path).await else {
            return;
        };
        let begin = self.moment();
        let (fid, name) = (dir.fid(), path.name);
        let change = self.begin(Effect::Remove {
            dir: fid,
            name: name.clone(),
            fid: None,
        });
        let result = self.kernel.remove(&dir, &name, as_dir).await;
        if let Ok(removed) = result {
            self.world.history.about(change, removed);
        }
        self.end(change, &result);
        if result == Err(Refusal::NotFound) {
            self.saw(
                begin,
                Seen::Name {
                    dir: fid,
                    name,
                    fid: None,
                },
            );
        }
    }

    pub(super) async fn link(&self, letter: u8) {
        let (old, new) = (self.path(letter), self.path(letter));
        let Some(pin) = self.find(&old).await else {
            return;
        };
        let Some(dir) = self.parent(&new).await else {
            return;
        };
        let begin = self.moment();
        let (parent, name) = (dir.fid(), new.name);
        let effect = Effect::Link {
            dir: parent,
            name: name.clone(),
            fid: pin.fid(),
        };
        let change = self.begin(effect);
        let result = self.kernel.link(&pin, &dir, &name).await;
        self.end(change, &result);
        if result == Err(Refusal::Exists) {
            self.saw(begin, Seen::Present { dir: parent, name });
        }
    }

    /// Makes a file without a name, writes it and gives it a name: mostly, if that is free.
    pub(super) async fn nameless(&mut self) {
        let path = self.path(REGISTER);
        let Some(dir) = self.parent(&path).await else {
            return;
        };
        let made = self.kernel.create_nameless(&dir, BOTH, 0o600).await;
        let Ok(handle) = made else {
            return;
        };
        let (fid, values) = (handle.pin.fid(), self.stamps(3));
        let change = self.begin(Effect::Write {
            fid,
            unit: 0,
            values: values.clone(),
        });
        let result = self.kernel.write(&handle, 0, values).await;
        self.written(change, &result, 3);
        let (parent, name) = (dir.fid(), path.name);
        let change = self.begin(Effect::Link {
            dir: parent,
            name: name.clone(),
            fid,
        });
        let result = self.kernel.link(&handle.pin, &dir, &name).await;
        self.end(change, &result);
        self.handles.push((handle, REGISTER));
        if self.handles.len() > 3 {
            self.kernel.close(self.handles.remove(0).0);
        }
    }

    pub(super) async fn mkdir(&self, path: &Path) {
        let Some(dir) = self.parent(path).await else {
            return;
        };
        let begin = self.moment();
        let (parent, name) = (dir.fid(), path.name.clone());
        let effect = Effect::Make {
            dir: parent,
            name: name.clone(),
            mode: 0o755,
            fid: None,
        };
        let change = self.begin(effect);
        let result = self.kernel.mkdir(&dir, &name, 0o755).await;
        if let Ok(fid) = result {
            self.world.history.about(change, fid);
        }
        self.end(change, &result);
        if result == Err(Refusal::Exists) {
            self.saw(begin, Seen::Present { dir: parent, name });
        }
    }

    pub(super) async fn list(&self) {
        let dir = self.below(self.world.plan.dirs + 1);
        let letter = REGISTER;
        let dirs = match (self.world.plan.deep, dir) {
            (true, _) => self.dirs(),
            (false, 0) => Vec::new(),
            (false, dir) => vec![name(DIRECTORY, dir - 1)],
        };
        let path = Path {
            dirs,
            name: name(letter, 0),
        };
        self.list_dir(&path).await;
    }

    /// Every name that could be there is seen as present or absent.
    pub(super) async fn list_dir(&self, path: &Path) {
        let Some(dir) = self.parent(path).await else {
            return;
        };
        let begin = self.moment();
        let max = 1 + self.below(6) as u32;
        let Ok(entries) = self.kernel.list(&dir, max).await else {
            return;
        };
        for letter in [REGISTER, LOG, DIRECTORY] {
            for number in 0..self.world.plan.names.max(self.world.plan.dirs + 1) {
                let name = name(letter, number);
                let found: Vec<Fid> = entries
                    .iter()
                    .filter(|entry| entry.0 == name)
                    .map(|entry| entry.1)
                    .collect();
                // A name that is moved while the listing is read may be met twice.
                if found.len() < 2 {
                    let fid = found.first().copied();
                    self.saw(
                        begin,
                        Seen::Name {
                            dir: dir.fid(),
                            name,
                            fid,
                        },
                    );
                }
            }
        }
    }
}
