//! A directory, its copy, and the way between them. Questions and answers are JSON on it, but where
//! they are so many that this alone would take the time.

use ariel_ship::{ANSWER_BYTES, Answerer, Ask, ShipError, Source, Target, Told};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub struct World {
    scratch: TempDir,
}

/// Bytes of which no two pieces are equal.
pub fn content(seed: u8, len: usize) -> Vec<u8> {
    let number = |at: usize| (at as u64 ^ u64::from(seed) << 56).to_le_bytes();
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(number).collect();
    bytes.truncate(len);
    bytes
}

#[track_caller]
pub fn noticed(error: &ShipError, word: &str) {
    assert!(
        error.to_string().contains(word),
        "{word:?} is not in: {error}"
    );
}

impl World {
    pub fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("from")).unwrap();
        Self { scratch }
    }

    pub fn from(&self) -> PathBuf {
        self.scratch.path().join("from")
    }

    pub fn to(&self) -> PathBuf {
        self.scratch.path().join("to")
    }

    pub fn target(&self) -> Target {
        Target::open(&self.to()).unwrap()
    }

    /// A source that knows nothing yet.
    pub fn source<'a>(&self) -> Wire<'a> {
        Wire::new(Side::Own(Answerer::new(&self.from())))
    }

    /// A source that remembers.
    pub fn through<'a>(&self, answerer: &'a Answerer) -> Wire<'a> {
        Wire::new(Side::Kept(answerer))
    }

    /// A source that answers so many questions and no more.
    pub fn failing<'a>(&self, answers: u64) -> Wire<'a> {
        let source = self.source();
        source.answers.set(answers);
        source.plain()
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.from().join(name), bytes).unwrap();
    }

    /// Puts a new file in the place of the one that has the name.
    pub fn replace(&self, name: &str, bytes: &[u8]) {
        let new = self.scratch.path().join("new");
        fs::write(&new, bytes).unwrap();
        fs::rename(new, self.from().join(name)).unwrap();
    }

    pub fn append(&self, name: &str, bytes: &[u8]) {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.from().join(name));
        file.unwrap().write_all(bytes).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.from().join(name)).unwrap();
    }

    pub fn open(&self, name: &str) -> File {
        open(&self.from().join(name))
    }

    pub fn open_copy(&self, name: &str) -> File {
        open(&self.to().join(name))
    }

    pub fn copied_bytes(&self) -> u64 {
        files(&self.to())
            .values()
            .map(|bytes| bytes.len() as u64)
            .sum()
    }

    #[track_caller]
    pub fn assert_equal(&self) {
        let (from, to) = (files(&self.from()), files(&self.to()));
        let names = |of: &BTreeMap<String, Vec<u8>>| of.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&from), names(&to));
        for (name, bytes) in from {
            assert!(to[&name] == bytes, "{name} is another one");
        }
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

/// The files of a directory that are to be copied.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_file() && name != "lock" {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    files
}

enum Side<'a> {
    Own(Answerer),
    Kept(&'a Answerer),
}

/// Things that happen before a question is answered, and another answer, if there is to be one.
type Meanwhile<'a> = Box<dyn FnMut(u64, &Ask) -> Option<Told> + 'a>;

pub struct Wire<'a> {
    side: Side<'a>,
    is_plain: bool,
    answers: Cell<u64>,
    asked: Cell<u64>,
    meanwhile: RefCell<Meanwhile<'a>>,
}

impl<'a> Wire<'a> {
    fn new(side: Side<'a>) -> Self {
        Self {
            side,
            is_plain: false,
            answers: Cell::new(u64::MAX),
            asked: Cell::new(0),
            meanwhile: RefCell::new(Box::new(|_, _| None)),
        }
    }

    /// Without JSON.
    pub fn plain(mut self) -> Self {
        self.is_plain = true;
        self
    }

    pub fn fail_after(self, answers: Option<u64>) -> Self {
        self.answers.set(answers.unwrap_or(u64::MAX));
        self
    }

    /// Before each question its number, from 0 on, and the question are given to this.
    pub fn meanwhile(self, meanwhile: impl FnMut(u64, &Ask) -> Option<Told> + 'a) -> Self {
        *self.meanwhile.borrow_mut() = Box::new(meanwhile);
        self
    }
}

impl Source for Wire<'_> {
    fn ask(&self, ask: &Ask) -> Result<Told, String> {
        let number = self.asked.replace(self.asked.get() + 1);
        if number >= self.answers.get() {
            return Err("the cable is cut".into());
        }
        let ask = self.sent(ask, 4096);
        let told = match (self.meanwhile.borrow_mut()(number, &ask), &self.side) {
            (Some(told), _) => Ok(told),
            (None, Side::Own(answerer)) => answerer.answer(&ask),
            (None, Side::Kept(answerer)) => answerer.answer(&ask),
        };
        let told = told.map_err(|error| error.to_string())?;
        Ok(self.sent(&told, ANSWER_BYTES))
    }
}

impl Wire<'_> {
    /// The same, as it comes to the other side.
    fn sent<T: Serialize + DeserializeOwned + Clone>(&self, what: &T, most: usize) -> T {
        if self.is_plain {
            return what.clone();
        }
        let text = serde_json::to_string(what).unwrap();
        assert!(text.len() <= most, "{}", text.len());
        serde_json::from_str(&text).unwrap()
    }
}
