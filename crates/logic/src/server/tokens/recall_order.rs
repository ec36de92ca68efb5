//! Recalls that leave behind the bytes of an answer.
//!
//! Short messages overtake long ones. A recall that overtakes the bytes which were granted before
//! it makes their grant void, and the client must read them again. A machine that writes without
//! end would keep another one from ever reading what its kernel caches: each write takes the right
//! of the last read back.
//!
//! Guarantee: the bytes of a read that were granted come before the recall of that grant, on a
//! connection that lives. So each write lets one read through at least. (Bytes that come with other
//! answers are not asked for again.)

use crate::server::api::Bulk;
use crate::server::{Output, Server, Step};
use wire::{Fid, Grant, Recall, RequestId, SessionId, ToClient, What};

impl Server {
    /// The answer to this request has these bytes of the file beside it, and grants this.
    pub(crate) fn note_bytes(
        &mut self,
        (session, fid): (SessionId, Fid),
        (request, bulk): (RequestId, Bulk),
        grants: &[Grant],
    ) {
        if bulk == 0 || grants.is_empty() {
            return;
        }
        let conn = self.sessions.get(&session).and_then(|state| state.conn);
        let file = self.files.get_mut(&fid);
        if let Some(holder) = file.and_then(|file| file.holders.get_mut(&session)) {
            holder.bytes = conn.map(|conn| (conn, request));
        }
    }

    /// May bytes of this file be on their way to that client?
    fn are_bytes_under_way(&self, session: SessionId, fid: Fid) -> bool {
        let holder = self.holder(session, fid);
        let bytes = holder.and_then(|holder| holder.bytes);
        let state = self.sessions.get(&session);
        state.zip(bytes).is_some_and(|(state, (conn, request))| {
            state.conn == Some(conn) && request >= state.acked
        })
    }

    pub(crate) fn send_recall(&self, step: &mut Step<'_>, session: SessionId, recall: Recall) {
        let takes = matches!(recall.what, What::Keep(_));
        let behind = takes && self.are_bytes_under_way(session, recall.fid);
        let Some(to) = self.sessions.get(&session).and_then(|state| state.conn) else {
            return;
        };
        step.out.push(Output::Send {
            to,
            message: ToClient::Recall(recall),
            bulk: 0,
            behind,
        });
    }
}
