//! Asks several others at the same time.
//!
//! Guarantees: the answers come in the order in which they are given, with the places of their
//! questions; a caller that has heard enough waits for no other. An answer for which no thread
//! could be started does not come.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// So many are asked at the same time at most: one that does not answer costs a thread for as long
/// as it is waited for.
const THREADS_MAX: usize = 32;

/// Asks all of these.
pub(crate) fn ask<Q, A>(
    questions: Vec<Q>,
    ask: impl Fn(Q) -> A + Send + Sync + 'static,
) -> Receiver<(usize, A)>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    let (send, answers) = mpsc::channel();
    let threads = questions.len().min(THREADS_MAX);
    let left = Arc::new(Mutex::new(questions.into_iter().enumerate()));
    let ask = Arc::new(ask);
    for _ in 0..threads {
        let (left, ask, send) = (Arc::clone(&left), Arc::clone(&ask), send.clone());
        let next = move || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let run = move || {
            while let Some((place, question)) = next() {
                if send.send((place, ask(question))).is_err() {
                    // Enough was heard.
                    return;
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("ask".into()).spawn(run) {
            tracing::debug!(%error, "no thread can be started to ask");
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_waits_for_no_other() {
        let (let_go, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let answers = ask(vec!["slow", "quick"], move |word| {
            if word == "slow" {
                let _ = gate.lock().unwrap().recv();
            }
            word.len()
        });
        assert_eq!(answers.recv(), Ok((1, 5)));
        drop(let_go);
        assert_eq!(answers.recv(), Ok((0, 4)));
        assert!(answers.recv().is_err(), "all have answered");
    }

    #[test]
    fn more_are_asked_than_there_are_threads() {
        let questions: Vec<usize> = (0..5 * THREADS_MAX).collect();
        let mut told: Vec<_> = ask(questions, |n| n * 2).into_iter().collect();
        told.sort_unstable();
        let all = (0..5 * THREADS_MAX).map(|n| (n, n * 2));
        assert!(told.into_iter().eq(all));
    }
}
