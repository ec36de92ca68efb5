//! The control socket of a server or a mount: one line of JSON asks, one line answers.
//!
//! `{"ask":"status"}`, `{"ask":"tokens"}`, `{"ask":"unmount"}` (mounts), `{"ask":"stop"}`
//! (servers); the answer is an object, `{"error":"..."}` when it was refused.
//! `{"ask":"watch","inode":1,"recursive":false}` (mounts) is answered by a line for each event,
//! until one of the two hangs up. A socket that nobody answers at is of a process that was killed,
//! and is replaced.

use crate::runtime;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Most bytes of a question.
const ASK_BYTES_MAX: u64 = 4096;
/// How long somebody may take to ask.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an ordinary answer may take.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long nobody is taken after one could not be: out of descriptors or memory, as a rule, and
/// nothing tells when there are some again.
const PAUSE: Duration = Duration::from_millis(100);

/// Says one line after the other.
pub(crate) type Lines = dyn FnOnce(&Arc<UnixStream>) + Send;

/// An answer.
pub(crate) enum Answer {
    /// One line.
    Line(Value),
    /// Lines for as long as it goes on; the stream is shut down when it must end.
    Lines(Box<Lines>),
}

impl From<Value> for Answer {
    fn from(line: Value) -> Answer {
        Answer::Line(line)
    }
}

/// Answers a question: its word, and all of it.
pub(crate) type Answerer = dyn Fn(&str, &Value) -> Answer + Send + Sync;

/// A refusal.
pub(crate) fn refusal(text: impl std::fmt::Display) -> Value {
    json!({ "error": text.to_string() })
}

struct Shared {
    answer: Box<Answerer>,
    stopping: Mutex<bool>,
    /// Ends a pause when it is time to stop.
    stopped: Condvar,
    /// Threads that talk to somebody.
    talks: Mutex<Vec<JoinHandle<()>>>,
    /// Where they say one line after the other.
    lines: Mutex<Vec<Weak<UnixStream>>>,
}

/// The listening end. Stopping waits for answers under way and removes the socket.
pub(crate) struct Listener {
    path: PathBuf,
    socket: Arc<UnixListener>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Answers at the socket of this name.
    pub(crate) fn start(name: &str, answer: Box<Answerer>) -> anyhow::Result<Listener> {
        Listener::at(&runtime::dir()?.join(name).with_extension("sock"), answer)
    }

    /// Answers at this socket.
    pub(crate) fn at(path: &Path, answer: Box<Answerer>) -> anyhow::Result<Listener> {
        let path = path.to_owned();
        let socket = Arc::new(bind(&path)?);
        let shared = Arc::new(Shared {
            answer,
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
            talks: Mutex::new(Vec::new()),
            lines: Mutex::new(Vec::new()),
        });
        let thread = {
            let (socket, shared) = (Arc::clone(&socket), Arc::clone(&shared));
            let run = move || accept(&socket, &shared);
            thread::Builder::new().name("control".into()).spawn(run)?
        };
        Ok(Listener {
            path,
            socket,
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        *lock(&self.shared.stopping) = true;
        self.shared.stopped.notify_all();
        // Wakes accept, also when no descriptor is left to connect with.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
        for stream in lock(&self.shared.lines).drain(..) {
            if let Some(stream) = stream.upgrade() {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
        let talks = std::mem::take(&mut *lock(&self.shared.talks));
        for talk in talks {
            let _ = talk.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    let failed = || format!("the control socket {} cannot be made", path.display());
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                bail!(
                    "another process answers at {}: end it first",
                    path.display()
                );
            }
            std::fs::remove_file(path).with_context(failed)?;
            UnixListener::bind(path).with_context(failed)
        }
        other => other.with_context(failed),
    }
}

fn accept(socket: &UnixListener, shared: &Arc<Shared>) {
    loop {
        let accepted = socket.accept();
        let stopping = lock(&shared.stopping);
        if *stopping {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a question could not be taken");
                let pause = shared
                    .stopped
                    .wait_timeout_while(stopping, PAUSE, |stop| !*stop);
                drop(pause);
                continue;
            }
        };
        drop(stopping);
        let talk = {
            let shared = Arc::clone(shared);
            let run = move || {
                if let Err(error) = talk(stream, &shared) {
                    tracing::debug!(%error, "a question was not answered");
                }
            };
            thread::Builder::new()
                .name("control-talk".into())
                .spawn(run)
        };
        match talk {
            Ok(talk) => {
                let mut talks = lock(&shared.talks);
                talks.retain(|talk| !talk.is_finished());
                talks.push(talk);
            }
            Err(error) => tracing::warn!(%error, "a question could not be taken"),
        }
    }
}

fn talk(stream: UnixStream, shared: &Shared) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(ASK_TIMEOUT))?;
    stream.set_write_timeout(Some(ASK_TIMEOUT))?;
    let mut line = String::new();
    BufReader::new((&stream).take(ASK_BYTES_MAX)).read_line(&mut line)?;
    let asked: Result<Value, _> = serde_json::from_str(&line);
    let mut asked = asked.unwrap_or_default();
    if let Value::Object(asked) = &mut asked {
        // The asker's user comes from the kernel, whatever the question says.
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        asked.insert("peer".to_owned(), json!(peer.uid.as_raw()));
    }
    let answer = match asked["ask"].as_str() {
        Some(word) => (shared.answer)(word, &asked),
        None => refusal("not a question: one line of JSON such as {\"ask\":\"status\"}").into(),
    };
    match answer {
        Answer::Line(line) => say(&stream, &line)?,
        Answer::Lines(go_on) => {
            // He may read as slowly as he likes, and says nothing more.
            stream.set_write_timeout(None)?;
            stream.set_read_timeout(None)?;
            let stream = Arc::new(stream);
            {
                let stopping = lock(&shared.stopping);
                if *stopping {
                    return Ok(());
                }
                let mut lines = lock(&shared.lines);
                lines.retain(|stream| stream.strong_count() > 0);
                lines.push(Arc::downgrade(&stream));
            }
            go_on(&stream);
        }
    }
    Ok(())
}

/// Says a line.
pub(crate) fn say(stream: &UnixStream, line: &Value) -> std::io::Result<()> {
    say_all(stream, std::slice::from_ref(line))
}

/// Says some lines.
pub(crate) fn say_all(mut stream: &UnixStream, lines: &[Value]) -> std::io::Result<()> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&line.to_string());
        text.push('\n');
    }
    stream.write_all(text.as_bytes())
}

/// Asks at the socket of this name. `None`: nobody answers there. No timeout: it takes as long
/// as it takes, and ends with the process asked.
pub(crate) fn ask(
    name: &str,
    word: &str,
    timeout: Option<Duration>,
) -> anyhow::Result<Option<Value>> {
    let stream = connect(name)?;
    stream
        .map(|stream| ask_at(&stream, word, timeout))
        .transpose()
}

/// Asks something at the socket of this name that is answered by many lines; all that comes is
/// read from what is returned.
pub(crate) fn follow(name: &str, question: &Value) -> anyhow::Result<Option<UnixStream>> {
    let Some(stream) = connect(name)? else {
        return Ok(None);
    };
    say(&stream, question)?;
    Ok(Some(stream))
}

fn connect(name: &str) -> anyhow::Result<Option<UnixStream>> {
    for dir in runtime::asked() {
        let path = dir.join(name).with_extension("sock");
        match UnixStream::connect(&path) {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {}
                _ => return Err(error).with_context(|| path.display().to_string()),
            },
        }
    }
    Ok(None)
}

/// Ends the process at the socket of this name, at once: it does not answer.
pub(crate) fn kill(name: &str) -> anyhow::Result<()> {
    let Some(stream) = connect(name)? else {
        return Ok(());
    };
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.pid;
    rustix::process::kill_process(peer, rustix::process::Signal::KILL)
        .with_context(|| format!("process {} cannot be killed", peer.as_raw_nonzero()))
}

/// Removes a socket of this name that nobody answers at.
pub(crate) fn remove_stale(name: &str) {
    for dir in runtime::candidates() {
        let path = dir.join(name).with_extension("sock");
        let connected = UnixStream::connect(&path);
        if connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            // An error leaves it to the next process that takes the name.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Asks this, and waits for the answer.
pub(crate) fn question(stream: &UnixStream, question: &Value) -> anyhow::Result<Value> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    say(stream, question)?;
    hear(stream)
}

fn ask_at(stream: &UnixStream, word: &str, timeout: Option<Duration>) -> anyhow::Result<Value> {
    stream.set_read_timeout(timeout)?;
    say(stream, &json!({ "ask": word }))?;
    hear(stream)
}

/// Hears one line, and no more.
pub(crate) fn hear(stream: &UnixStream) -> anyhow::Result<Value> {
    let mut line = String::new();
    let read = BufReader::new(stream).read_line(&mut line);
    read.context("no answer in time: is the process stopped, or very busy?")?;
    if line.is_empty() {
        bail!("the process ended before it answered: see its log");
    }
    serde_json::from_str(&line).context("the answer is not JSON: use the same version of ariel")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn unique(name: &str) -> String {
        format!("test-{name}-{}", std::process::id())
    }

    fn ask_now(name: &str, word: &str) -> Option<Value> {
        ask(name, word, Some(ANSWER_TIMEOUT)).unwrap()
    }

    #[test]
    fn questions_are_answered_until_the_end() {
        let name = unique("answers");
        assert_eq!(ask_now(&name, "status"), None);
        let listener =
            Listener::start(&name, Box::new(|word, _| json!({ "asked": word }).into())).unwrap();
        assert_eq!(ask_now(&name, "status"), Some(json!({ "asked": "status" })));
        assert_eq!(ask_now(&name, "tokens"), Some(json!({ "asked": "tokens" })));
        assert!(
            Listener::start(&name, Box::new(|_, _| json!({}).into())).is_err(),
            "it is in use"
        );
        drop(listener);
        assert_eq!(ask_now(&name, "status"), None);
    }

    #[test]
    fn a_socket_left_by_a_killed_process_is_replaced() {
        let name = unique("stale");
        let path = runtime::dir().unwrap().join(&name).with_extension("sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert_eq!(ask_now(&name, "status"), None);
        let _listener =
            Listener::start(&name, Box::new(|_, _| json!({ "new": 1 }).into())).unwrap();
        remove_stale(&name);
        assert_eq!(ask_now(&name, "status"), Some(json!({ "new": 1 })));
    }

    #[test]
    fn lines_come_until_the_end() {
        let name = unique("lines");
        let (ended, end) = std::sync::mpsc::channel();
        let go_on = move |_: &str, _: &Value| {
            let ended = ended.clone();
            Answer::Lines(Box::new(move |stream| {
                say(stream, &json!(1)).unwrap();
                say(stream, &json!(2)).unwrap();
                // Nothing comes, until it is shut down.
                let _ = (&**stream).read(&mut [0]);
                ended.send(()).unwrap();
            }))
        };
        let listener = Listener::start(&name, Box::new(go_on)).unwrap();
        let follow = || follow(&name, &json!({ "ask": "lines" })).unwrap().unwrap();
        let (first, second) = (follow(), follow());
        let lines = |stream: &UnixStream| {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.take(2).map(Result::unwrap).collect::<Vec<_>>()
        };
        assert_eq!(
            (lines(&first), lines(&second)),
            (vec!["1".into(), "2".into()], lines(&follow()))
        );
        drop(first);
        end.recv().unwrap();
        drop(listener);
        assert_eq!((&second).read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn rubbish_is_refused_and_harms_nobody() {
        let name = unique("rubbish");
        let _listener =
            Listener::start(&name, Box::new(|_, _| json!({ "fine": 1 }).into())).unwrap();
        let path = runtime::dir().unwrap().join(&name).with_extension("sock");
        for rubbish in [&b"\xff\xfe\n"[..], b"[1]\n", b"{}\n", &[b'x'; 5000]] {
            let mut stream = UnixStream::connect(&path).unwrap();
            // It may be cut off before all was written.
            let _ = stream.write_all(rubbish);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            assert!(answer.is_empty() || answer.contains("error"), "{answer}");
        }
        assert_eq!(ask_now(&name, "status"), Some(json!({ "fine": 1 })));
    }
}
