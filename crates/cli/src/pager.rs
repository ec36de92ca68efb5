//! Pagers: where their sockets are, and which pages go where. `ariel run` is one, and
//! `ariel __pager` is one for a program that asks for it by the library.
//!
//! Guarantees: a pager's socket is in the directory of control sockets, which belongs to this user
//! alone; it goes with an orderly end of the pager, and the next pager takes it away after a
//! disorderly one.

use crate::args::{FarArgs, PagerArgs, Remote, TrustArgs};
use crate::failure::Failure;
use crate::{log, runtime, trust};
use files::{Options, Tree};
use segment::{CellStore, Connection, LocalStore, PAGE, Pager, Store};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// The files' own cache. Pages have been in memory already: a page that is here a second time is
/// only on its way.
const CACHE_MIB: u32 = 32;

/// The beginning of the names of sockets; the process number follows.
const PREFIX: &str = "pager-";

/// A pager with its socket.
pub(crate) struct Served {
    pager: Pager,
    pub(crate) path: PathBuf,
    _session: Session,
}

/// Where the files are, unless they are local. It ends in order, also when something fails: a
/// session that is only broken off keeps the next one waiting until its lease is over.
struct Session(Option<Arc<Tree>>);

impl Served {
    /// Waits until the last program is gone, and ends.
    pub(crate) fn end(self) {
        self.pager.wait_unused();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // One that stays is taken away by the next pager.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.as_ref().map(|tree| tree.leave()) {
            tracing::warn!(%error, "the session did not end in order");
        }
    }
}

/// Starts a pager in this process.
pub(crate) fn serve(
    word: &str,
    (place, trust): (&FarArgs, &TrustArgs),
    memory: u64,
) -> Result<Served, Failure> {
    let failed = |error: segment::Error| Failure::of(word, error);
    let frames = u32::try_from(memory / PAGE as u64).unwrap_or(u32::MAX);
    let mut session = Session(None);
    let pager = match (&place.local, at(word, place)?) {
        (Some(dir), _) => start(word, LocalStore::new(dir), frames)?,
        (None, Some(remote)) => {
            let tree = session.0.insert(connect(word, &remote, trust)?);
            let store = CellStore::new(Arc::clone(tree), &remote.path);
            start(word, store, frames)?
        }
        (None, None) => {
            let text = "where shall pages go? Say --at ADDR:DIR, a directory of a server's tree, \
                        or set ARIEL_AT; or --local DIR";
            return Err(Failure::new(
                crate::failure::NOT_RUN,
                format_args!("{word}: {text}"),
            ));
        }
    };
    drop(running());
    let path = runtime::dir()?.join(format!("{PREFIX}{}", std::process::id()));
    // One of a dead process of the same number.
    let _ = std::fs::remove_file(&path);
    pager.listen(&path).map_err(failed)?;
    Ok(Served {
        pager,
        path,
        _session: session,
    })
}

/// The place in a tree, if there is one.
fn at(word: &str, place: &FarArgs) -> Result<Option<Remote>, Failure> {
    if let Some(remote) = &place.at {
        return Ok(Some(remote.clone()));
    }
    let Some(text) = std::env::var("ARIEL_AT").ok() else {
        return Ok(None);
    };
    let remote = crate::args::remote(&text);
    let wrong = |why| Failure::of(word, format_args!("ARIEL_AT: {why}"));
    remote.map(Some).map_err(wrong)
}

fn connect(word: &str, remote: &Remote, trust: &TrustArgs) -> Result<Arc<Tree>, Failure> {
    let options = Options {
        cache_mib: CACHE_MIB,
        name: format!("ariel {word}, process {}", std::process::id()),
        ..Options::default()
    };
    let (server, _) = trust::server(word, &remote.server, trust)?;
    let tree = Tree::connect(server, &options);
    tree.map(Arc::new).map_err(|error| Failure::of(word, error))
}

/// A place that cannot be used is told at once, not at the first page.
fn start(word: &str, store: impl Store + 'static, frames: u32) -> Result<Pager, Failure> {
    let tried = store.make().and_then(|file| file.write(&[0], 0));
    tried.map_err(|error| {
        let cure = "name a directory that is there and in which this user may make files";
        Failure::of(word, format_args!("pages cannot go there: {error}: {cure}"))
    })?;
    Pager::start(store, frames).map_err(|error| Failure::of(word, error))
}

/// The pagers of this user, by process number. Sockets of dead ones are removed.
pub(crate) fn running() -> Vec<(u32, Connection)> {
    let mut found = Vec::new();
    let Ok(entries) = runtime::dir().and_then(|dir| Ok(std::fs::read_dir(dir)?)) else {
        return found;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(PREFIX).and_then(|text| text.parse().ok());
        let Some(number) = number else { continue };
        match Connection::new(&entry.path()) {
            Ok(connection) => found.push((number, connection)),
            Err(_) => drop(std::fs::remove_file(entry.path())),
        }
    }
    found.sort_by_key(|(number, _)| *number);
    found
}

/// `ariel __pager`: serves until its starter has closed its standard input and the last program is
/// gone.
pub(crate) fn pager(args: &PagerArgs) -> Result<ExitCode, Failure> {
    log::to_stderr("warn");
    log::end_on_panic();
    let served = serve("pager", (&args.place, &args.trust), args.memory)?;
    let told = |error: std::io::Error| Failure::of("pager", error);
    writeln!(std::io::stdout(), "{}", served.path.display()).map_err(told)?;
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .map_err(told)?;
    served.end();
    Ok(ExitCode::SUCCESS)
}
