//! References to objects.
//!
//! Guarantees: a reference that an answer gave is given back when the last user of it is gone, so
//! the client may then give back its token.

use client::Client;
use std::sync::Arc;
use wire::{Attr, Fid};

/// An object that an answer named: one reference, given back at the end.
pub(crate) struct Object {
    client: Arc<Client>,
    fid: Fid,
    counted: bool,
}

impl Object {
    /// The object of an answer that gave a reference to it.
    pub(crate) fn counted(client: &Arc<Client>, fid: Fid) -> Arc<Self> {
        Arc::new(Self {
            client: Arc::clone(client),
            fid,
            counted: true,
        })
    }

    /// The root, which needs no reference.
    pub(crate) fn root(client: &Arc<Client>, fid: Fid) -> Arc<Self> {
        Arc::new(Self {
            client: Arc::clone(client),
            fid,
            counted: false,
        })
    }

    pub(crate) fn fid(&self) -> Fid {
        self.fid
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.counted {
            self.client.forget(self.fid, 1);
        }
    }
}

/// An object with its attributes as an answer said them.
pub(crate) struct Found {
    pub(crate) object: Arc<Object>,
    pub(crate) attr: Attr,
}
