//! The programs: each a loop of random system calls on few names and few blocks, and a record of
//! what it asked for and what it was shown.

mod files;
mod labels;
mod moves;
mod names;
mod ranges;

use crate::disk::UNIT;
use crate::history::{Effect, Fate, Seen};
use crate::kernel::{Handle, Kernel, PAGE, PAGE_UNITS, Pin, Result};
use crate::plan::{KINDS, Kind};
use crate::rng::{Branch, Rng};
use crate::world::World;
use crate::wrong::wrong;
use std::rc::Rc;
use wire::{Access, Name, Refusal};

/// A path: directories from the root on, and a name in the last of them.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) dirs: Vec<Name>,
    pub(crate) name: Name,
}

/// More directories than programs make.
const MOST_DIRECTORIES: u32 = 10_000;
/// So deep are the directories that programs walk to, where there are directories in directories.
const DEPTH: u64 = 3;

pub(crate) const READ: Access = Access {
    read: true,
    write: false,
};
pub(crate) const WRITE: Access = Access {
    read: false,
    write: true,
};
pub(crate) const BOTH: Access = Access {
    read: true,
    write: true,
};

/// The first letter of a name says how files of that name are used.
pub(crate) const REGISTER: u8 = b'r';
/// Files that are only appended to.
pub(crate) const LOG: u8 = b'l';
/// Directories.
const DIRECTORY: u8 = b'd';

pub(crate) fn name(letter: u8, number: u64) -> Name {
    Name::new(format!("{}{number}", letter as char).as_bytes()).expect("a letter and a number")
}

/// One program of one machine.
pub(crate) struct Program {
    world: Rc<World>,
    kernel: Rc<Kernel>,
    host: u32,
    /// Among the programs of its machine; 0 prepares, and looks around at the end.
    number: u32,
    handles: Vec<(Handle, u8)>,
}

impl Program {
    pub(crate) fn new(world: &Rc<World>, kernel: &Rc<Kernel>, (host, number): (u32, u32)) -> Self {
        Self {
            world: Rc::clone(world),
            kernel: Rc::clone(kernel),
            host,
            number,
            handles: Vec::new(),
        }
    }

    pub(crate) fn host(&self) -> u32 {
        self.host
    }

    fn below(&self, bound: u64) -> u64 {
        self.world.rng.borrow_mut().below(bound)
    }

    fn moment(&self) -> u64 {
        self.world.sched.moment()
    }

    fn saw(&self, begin: u64, seen: Seen) {
        let end = self.moment();
        self.world
            .trace(|| format!("h{} saw {seen:?} ({begin}..{end})", self.host));
        self.world.history.saw(self.host, (begin, end), seen);
    }

    fn begin(&self, effect: Effect) -> usize {
        let moment = self.moment();
        self.world
            .trace(|| format!("h{} begins {effect:?} ({moment}..)", self.host));
        self.world.history.begin(self.host, moment, effect)
    }

    fn end<T>(&self, change: usize, result: &Result<T>) {
        let fate = match result {
            Ok(_) => Fate::Done,
            Err(Refusal::SessionLost | Refusal::Interrupted | Refusal::Disk) => Fate::Open,
            Err(_) => Fate::Failed,
        };
        let moment = self.moment();
        self.world
            .trace(|| format!("h{} ends {fate:?} (..{moment})", self.host));
        self.world.history.end(change, moment, fate);
    }

    /// The next draws are those of a call: its own, whatever was drawn before.
    fn draw_for(&self, call: u32) {
        let key = [self.host, self.number, call].map(u64::from);
        let key = [self.world.key, key[0], key[1], key[2]];
        *self.world.rng.borrow_mut() = Rng::of(Branch::Call, &key);
    }

    /// Makes the directories and some of the files.
    pub(crate) async fn prepare(&mut self) {
        for dir in 0..self.world.plan.dirs {
            self.mkdir(&Path {
                dirs: Vec::new(),
                name: name(b'd', dir),
            })
            .await;
            if self.world.plan.deep {
                let (dirs, name) = (vec![name(DIRECTORY, dir)], name(DIRECTORY, 0));
                self.mkdir(&Path { dirs, name }).await;
            }
        }
        for letter in [REGISTER, LOG] {
            let path = Path {
                dirs: Vec::new(),
                name: name(letter, 0),
            };
            self.create(&path, (BOTH, letter == LOG), true).await;
        }
        self.close_all();
    }

    /// Does as many operations as asked, of those that take part. Of the others is left the pause
    /// before them, so that the rest meet about the same world.
    pub(crate) async fn run(&mut self, operations: u32) {
        let last = self
            .world
            .only
            .last_call((self.host, self.number), operations);
        for call in 1..=last {
            self.draw_for(call);
            let think = self.world.plan.think_ns;
            let pause = self.below(think + 1);
            if pause > 0 {
                self.world.sched.sleep(pause).await;
            }
            if !self.world.plays((self.host, self.number, call)) {
                continue;
            }
            let kind = KINDS[self
                .world
                .rng
                .borrow_mut()
                .weighted(&self.world.plan.weights)];
            let world = Rc::clone(&self.world);
            let running = world
                .history
                .call(self.host, format!("{kind:?}"), world.sched.now());
            world.trace(|| {
                let (host, number) = (self.host, self.number);
                format!("h{host} does {kind:?} (call {host}.{number}:{call})")
            });
            self.operation(kind).await;
            world.history.returned(running, world.sched.now());
        }
        self.close_all();
    }

    fn close_all(&mut self) {
        for (handle, _) in self.handles.drain(..) {
            self.kernel.close(handle);
        }
    }

    async fn operation(&mut self, kind: Kind) {
        let letter = if self.below(4) == 0 { LOG } else { REGISTER };
        match kind {
            Kind::Open => self.open(letter).await,
            Kind::Create => {
                let exclusive = self.below(2) == 0;
                let path = self.path(letter);
                self.create(&path, (BOTH, letter == LOG), exclusive).await;
            }
            Kind::Read => self.read().await,
            Kind::Write => self.write().await,
            Kind::Append => self.append().await,
            Kind::Close => {
                if !self.handles.is_empty() {
                    let index = self.below(self.handles.len() as u64) as usize;
                    self.kernel.close(self.handles.swap_remove(index).0);
                }
            }
            Kind::Stat => {
                let path = self.path(letter);
                self.stat(&path).await;
            }
            Kind::FStat => self.fstat().await,
            Kind::Unlink => self.remove(letter, false).await,
            Kind::Rename => self.rename(letter).await,
            Kind::Link => self.link(letter).await,
            Kind::Mkdir => {
                let path = self.dir_path();
                self.mkdir(&path).await;
            }
            Kind::Rmdir => self.remove(b'd', true).await,
            Kind::List => self.list().await,
            Kind::Truncate => self.truncate().await,
            Kind::Chmod => {
                let path = self.path(letter);
                self.chmod(&path, 0o600).await;
            }
            Kind::Sync => self.sync().await,
            Kind::Load => self.load().await,
            Kind::Zero => self.zero().await,
            Kind::Copy => self.copy().await,
            Kind::Nameless => self.nameless().await,
            Kind::StableWrite => self.write_stable().await,
            Kind::StatDir => {
                let path = self.dir_path();
                self.stat(&path).await;
            }
            Kind::MoveDir => self.rename(DIRECTORY).await,
            Kind::Exchange => self.exchange(letter).await,
            Kind::Store => self.store().await,
            Kind::SetLabel => self.set_label().await,
            Kind::GetLabel => self.get_label().await,
            Kind::ChmodDir => {
                let path = self.dir_path();
                self.chmod(&path, 0o700).await;
            }
        }
    }

    /// A path of a file, or, by its letter, of a directory.
    fn path(&self, letter: u8) -> Path {
        if letter == DIRECTORY {
            return self.dir_path();
        }
        let plan = &self.world.plan;
        let dirs = match plan.deep {
            true => self.dirs(),
            false => match self.below(plan.dirs + 1) {
                0 => Vec::new(),
                dir => vec![name(DIRECTORY, dir - 1)],
            },
        };
        Path {
            dirs,
            name: name(letter, self.below(plan.names)),
        }
    }

    fn dir_path(&self) -> Path {
        let plan = &self.world.plan;
        Path {
            dirs: if plan.deep { self.dirs() } else { Vec::new() },
            name: name(DIRECTORY, self.below(plan.dirs + 1)),
        }
    }

    /// Directories one in another.
    fn dirs(&self) -> Vec<Name> {
        let depth = self.below(DEPTH + 1).min(self.below(DEPTH + 1));
        let plan = &self.world.plan;
        let any = |_| name(DIRECTORY, self.below(plan.dirs + 1));
        let mut dirs: Vec<Name> = (0..depth).map(any).collect();
        if plan.homes && self.below(8) > 0 {
            let home = name(DIRECTORY, u64::from(self.host) % (plan.dirs + 1));
            dirs.splice(..dirs.len().min(1), [home]);
        }
        dirs
    }

    async fn parent(&self, path: &Path) -> Option<Pin> {
        self.kernel.parent(path).await.ok().flatten()
    }

    /// Finds an object and records what its name showed.
    async fn find(&self, path: &Path) -> Option<Pin> {
        let dir = self.parent(path).await?;
        let begin = self.moment();
        let found = self.kernel.find(&dir, &path.name).await.ok()?;
        let fid = found.as_ref().map(Pin::fid);
        self.saw(
            begin,
            Seen::Name {
                dir: dir.fid(),
                name: path.name.clone(),
                fid,
            },
        );
        found
    }

    async fn open(&mut self, letter: u8) {
        let path = self.path(letter);
        let access = *self.world.rng.borrow_mut().pick(&[READ, READ, BOTH, WRITE]);
        let Some(pin) = self.find(&path).await else {
            return;
        };
        self.keep(pin, (access, letter)).await;
    }

    async fn keep(&mut self, pin: Pin, (access, letter): (Access, u8)) {
        if let Ok(handle) = self.kernel.open(pin, (access, letter == LOG)).await {
            self.handles.push((handle, letter));
            if self.handles.len() > 3 {
                self.kernel.close(self.handles.remove(0).0);
            }
        }
    }

    /// When all is quiet: looks at everything there is.
    pub(crate) async fn look_around(&mut self) {
        let world = Rc::clone(&self.world);
        let running = world
            .history
            .call(self.host, "last look".into(), world.sched.now());
        let mut left = vec![Vec::new()];
        let mut looked = 0;
        while let Some(dirs) = left.pop() {
            looked += 1;
            if looked > MOST_DIRECTORIES {
                return world.fail(wrong!("a directory is in itself"));
            }
            self.look_at_all_in(&dirs).await;
            left.extend(self.dirs_in(dirs).await);
        }
        world.history.returned(running, world.sched.now());
    }

    async fn look_at_all_in(&self, dirs: &[Name]) {
        let first = Path {
            dirs: dirs.to_vec(),
            name: name(REGISTER, 0),
        };
        self.list_dir(&first).await;
        if let Some((name, dirs)) = dirs.split_last() {
            let (dirs, name) = (dirs.to_vec(), name.clone());
            self.look_at_label_of(&Path { dirs, name }).await;
        }
        for letter in [REGISTER, LOG] {
            for number in 0..self.world.plan.names {
                let path = Path {
                    dirs: dirs.to_vec(),
                    name: name(letter, number),
                };
                self.stat(&path).await;
                self.look_at_label_of(&path).await;
                self.read_all(&path).await;
            }
        }
    }

    /// The directories in one, the last first.
    async fn dirs_in(&self, dirs: Vec<Name>) -> Vec<Vec<Name>> {
        let plan = &self.world.plan;
        let mut found = Vec::new();
        if !plan.deep && !dirs.is_empty() {
            return found;
        }
        for number in (0..plan.dirs + u64::from(plan.deep)).rev() {
            let (dirs, name) = (dirs.clone(), name(DIRECTORY, number));
            let path = Path { dirs, name };
            if !plan.deep || self.find(&path).await.is_some() {
                let Path { mut dirs, name } = path;
                dirs.push(name);
                found.push(dirs);
            }
        }
        found
    }

    async fn read_all(&self, path: &Path) {
        let Some(pin) = self.find(path).await else {
            return;
        };
        let Ok(handle) = self.kernel.open(pin, (READ, false)).await else {
            return;
        };
        let mut at = 0;
        while self.read_at(&handle, at, 2 * PAGE_UNITS).await == Some(false) {
            at += 2 * PAGE_UNITS;
            if at * UNIT > 1000 * PAGE {
                self.world.fail(wrong!("a file has no end"));
                break;
            }
        }
        self.kernel.close(handle);
    }
}
