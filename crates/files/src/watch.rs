//! Being told of changes, whichever machine makes them.
//!
//! Guarantees: each change is told once, in the order of the server, or the news say that some were
//! missed; the watch has begun when [`Tree::watch`] returns.

use crate::error::{Error, Result};
use crate::object::Object;
use crate::tree::Tree;
use client::Client;
use client::front::News;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::{Refusal, WatchId};

/// A watch; it ends when it is dropped.
pub struct Watch {
    client: Arc<Client>,
    id: WatchId,
    news: Receiver<News>,
    _object: Arc<Object>,
}

impl Tree {
    /// Has what changes told: in a directory, with all that is below it if `recursive`, or of
    /// anything else.
    ///
    /// # Errors
    /// There is nothing at the path, or the server refuses the watch.
    pub fn watch(&self, path: impl AsRef<Path>, recursive: bool) -> Result<Watch> {
        let path = path.as_ref();
        let found = self.find(path, true)?;
        let fid = found.object.fid();
        let (send, news) = mpsc::channel();
        let send = Mutex::new(send);
        let tell = move |news| {
            if let Ok(send) = send.lock() {
                // A watch that is dropped hears nothing.
                let _ = send.send(news);
            }
        };
        let id = self.client().watch(fid, recursive, Arc::new(tell));
        let id = id.ok_or_else(|| Error::refused(path, Refusal::SessionLost))?;
        let watch = Watch {
            client: Arc::clone(self.client()),
            id,
            news,
            _object: found.object,
        };
        // The first news say that it has begun.
        match watch.next(None) {
            Some(News { end: None, .. }) => Ok(watch),
            Some(News { end: Some(why), .. }) => Err(Error::refused(path, why)),
            None => Err(Error::refused(path, Refusal::SessionLost)),
        }
    }
}

impl Watch {
    /// Waits for the next news, at most for this time; `None`: none came, or none will.
    #[must_use]
    pub fn next(&self, timeout: Option<Duration>) -> Option<News> {
        match timeout {
            None => self.news.recv().ok(),
            Some(timeout) => self.news.recv_timeout(timeout).ok(),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.client.unwatch(self.id);
    }
}
