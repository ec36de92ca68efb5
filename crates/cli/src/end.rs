//! The end of a process that serves until it is told to stop: why it comes, and the answer to the
//! process that asked for it.
//!
//! Guarantees: every question at the control socket is answered. The answer says what became of the
//! end that it asked for, or that it was under way already: the questions are dropped with the
//! receiver, and the answers with them.

use crate::control;
use crate::failure::Failure;
use crate::{service, signals};
use serde_json::{Value, json};
use std::fmt::Display;
use std::sync::mpsc::{self, Receiver, Sender};

/// Why the process is to end.
pub(crate) enum End {
    /// A signal came.
    Signal,
    /// Somebody asked at the control socket, and waits for the answer.
    Asked(Sender<Value>),
    /// Somebody asked for it whatever is lost, and waits for the answer.
    Forced(Sender<Value>),
    /// The mount or server that it runs has ended by itself.
    Itself,
}

/// Where ends are told and awaited. Signals are told from now on; `command` names the command in
/// the error if they cannot be; `is_daemon`: it has no terminal.
pub(crate) fn channel(
    command: &str,
    is_daemon: bool,
) -> Result<(Sender<End>, Receiver<End>), Failure> {
    let (send, receive) = mpsc::channel();
    let signal = send.clone();
    let end = move || {
        service::stopping();
        drop(signal.send(End::Signal));
    };
    match is_daemon {
        true => signals::on_end_of_daemon(end),
        false => signals::on_end(end),
    }
    .map_err(|error| Failure::of(command, error))?;
    Ok((send, receive))
}

/// Asks for the end and awaits it: the answer at the control socket of this process.
pub(crate) fn ask(
    ends: &Sender<End>,
    process: &str,
    how: impl FnOnce(Sender<Value>) -> End,
) -> Value {
    let (reply, answer) = mpsc::channel();
    let sent = ends.send(how(reply));
    match sent.map(|()| answer.recv()) {
        Ok(Ok(answer)) => answer,
        _ => control::refusal(format_args!("the {process} is ending already")),
    }
}

/// Answers the asker with the outcome of the end.
pub(crate) fn tell(asker: &Sender<Value>, ended: &Result<(), impl Display>) {
    let answer = match ended {
        Ok(()) => json!({ "ok": true }),
        Err(error) => control::refusal(error),
    };
    // The asker may be gone.
    let _ = asker.send(answer);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::thread;

    #[test]
    fn whoever_asks_is_told_what_became_of_it() {
        for ended in [Ok(()), Err("in use")] {
            let (send, receive) = mpsc::channel();
            let asker = thread::spawn(move || ask(&send, "mount", End::Asked));
            match receive.recv().unwrap() {
                End::Asked(reply) => tell(&reply, &ended),
                _ => panic!("it was asked for"),
            }
            let answer = asker.join().unwrap();
            assert_eq!(answer["ok"] == true, ended.is_ok(), "{answer}");
            assert_eq!(answer["error"].as_str(), ended.err(), "{answer}");
        }
    }

    #[test]
    fn who_asks_too_late_is_told_so() {
        let late = json!({ "error": "the server is ending already" });
        let (send, receive) = mpsc::channel();
        let early = send.clone();
        let asker = thread::spawn(move || ask(&early, "server", End::Asked));
        // Taken and not answered: its end is under way.
        drop(receive.recv().unwrap());
        assert_eq!(asker.join().unwrap(), late);
        drop(receive);
        assert_eq!(ask(&send, "server", End::Asked), late);
    }
}
