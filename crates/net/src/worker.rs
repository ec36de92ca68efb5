//! A thread that lives as long as what owns it.
//!
//! Guarantees: when [`Worker::join`] has returned, the thread does not run any more, unless the
//! thread itself called: it cannot wait for itself, and ends once it is back.

use parking_lot::Mutex;
use std::io;
use std::thread::{self, JoinHandle};

/// The thread. Its owner tells it to end, each in his own way, and then joins it.
pub struct Worker(Mutex<Option<JoinHandle<()>>>);

impl Worker {
    /// Starts it.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Worker> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Worker(Mutex::new(Some(thread))))
    }

    /// Waits for its end, for the first who calls.
    pub fn join(&self) {
        let thread = self.0.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // A panic in it has been reported by its own thread.
            let _ = thread.join();
        }
    }
}
