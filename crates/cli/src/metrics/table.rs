//! The metrics of a server: name, meaning, and where status or profile has the value; those of a
//! mount are in `mounted`. The names are what dashboards are made of, so a name keeps its meaning
//! for ever. docs/service.md lists them all.

/// Counter or gauge: does it only grow while the process lives?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows. The format adds `_total` to its name.
    Counter,
    /// It goes up and down.
    Gauge,
}
use Kind::{Counter, Gauge};

/// One metric of the status, or a family of them.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    /// The pointer (RFC 6901) to the value in the status. Where it is an object, each of its
    /// numbers is one metric of a family, with its name as this label.
    pub(super) at: &'static str,
    pub(super) label: &'static str,
}

pub(super) const fn one(
    name: &'static str,
    kind: Kind,
    at: &'static str,
    help: &'static str,
) -> Metric {
    family(name, kind, (at, ""), help)
}

pub(super) const fn family(
    name: &'static str,
    kind: Kind,
    (at, label): (&'static str, &'static str),
    help: &'static str,
) -> Metric {
    Metric {
        name,
        help,
        kind,
        at,
        label,
    }
}

/// Of a server.
pub(super) const SERVER: [Metric; 39] = [
    one(
        "ariel_server_clients",
        Gauge,
        "/clients",
        "Clients with a session",
    ),
    one(
        "ariel_server_connections",
        Gauge,
        "/connections",
        "Open connections",
    ),
    one(
        "ariel_server_grace",
        Gauge,
        "/grace",
        "1 while clients of the last run are awaited",
    ),
    one(
        "ariel_server_waiting_requests",
        Gauge,
        "/waiting",
        "Requests that wait for a client",
    ),
    one(
        "ariel_server_recalls",
        Gauge,
        "/recalls",
        "Recalls that were not answered yet",
    ),
    one(
        "ariel_server_watches",
        Gauge,
        "/watches",
        "Watches of clients",
    ),
    one(
        "ariel_server_lenders",
        Gauge,
        "/cooperation/lenders",
        "Clients that lend cached blocks to others",
    ),
    one(
        "ariel_server_hints",
        Gauge,
        "/cooperation/hints",
        "Blocks whose lenders are known",
    ),
    one(
        "ariel_server_forwarded_blocks",
        Counter,
        "/cooperation/forwarded",
        "Blocks that readers were sent to other clients for",
    ),
    one(
        "ariel_server_sent_blocks",
        Counter,
        "/cooperation/sent",
        "Blocks sent to clients that lend",
    ),
    one(
        "ariel_server_lacking_lenders",
        Counter,
        "/cooperation/lacking",
        "Hints that were wrong",
    ),
    one(
        "ariel_server_failing_lenders",
        Counter,
        "/cooperation/failing",
        "Lenders that answered late or wrongly",
    ),
    one(
        "ariel_server_leaving_blocks",
        Counter,
        "/cooperation/leaving",
        "Last copies that clients were about to give up",
    ),
    one(
        "ariel_server_handed_blocks",
        Counter,
        "/cooperation/handed",
        "Last copies that another client was told to keep",
    ),
    one(
        "ariel_server_held_bytes",
        Gauge,
        "/held_bytes",
        "Memory for unanswered writes, bytes",
    ),
    one(
        "ariel_server_locks",
        Gauge,
        "/locks/held",
        "Locks held at the server",
    ),
    one(
        "ariel_server_lock_waits",
        Gauge,
        "/locks/waiting",
        "Lock requests that wait",
    ),
    one(
        "ariel_server_lock_delegated_files",
        Gauge,
        "/locks/delegated_files",
        "Files whose locks one client decides about",
    ),
    one(
        "ariel_server_token_files",
        Gauge,
        "/tokens/files",
        "Objects that some client caches",
    ),
    one(
        "ariel_server_tokens_shared",
        Gauge,
        "/tokens/shared",
        "Shared tokens granted",
    ),
    one(
        "ariel_server_tokens_exclusive",
        Gauge,
        "/tokens/exclusive",
        "Exclusive tokens granted",
    ),
    one(
        "ariel_server_received_bytes",
        Counter,
        "/bytes/received",
        "Bytes from clients",
    ),
    one(
        "ariel_server_sent_bytes",
        Counter,
        "/bytes/sent",
        "Bytes to clients",
    ),
    family(
        "ariel_server_received_messages",
        Counter,
        ("/received", "kind"),
        "Messages from clients, by kind",
    ),
    family(
        "ariel_server_sent_messages",
        Counter,
        ("/sent", "kind"),
        "Messages to clients, by kind",
    ),
    one(
        "ariel_store_objects",
        Gauge,
        "/store/objects",
        "Files, directories and others",
    ),
    one("ariel_store_bytes", Gauge, "/store/bytes", "Bytes of files"),
    one(
        "ariel_store_log_bytes",
        Gauge,
        "/store/log_bytes",
        "Bytes of the log on disk",
    ),
    one(
        "ariel_store_appended_bytes",
        Counter,
        "/store/appended_bytes",
        "Bytes appended to the log",
    ),
    one(
        "ariel_store_live_bytes",
        Gauge,
        "/store/live_bytes",
        "Bytes of the log that are in use",
    ),
    one(
        "ariel_store_segments",
        Gauge,
        "/store/segments",
        "Segments of the log",
    ),
    one(
        "ariel_store_records",
        Counter,
        "/store/records",
        "Records ever written to the log",
    ),
    one(
        "ariel_store_stable_records",
        Counter,
        "/store/stable_records",
        "Records that are on stable storage",
    ),
    one(
        "ariel_store_syncs",
        Counter,
        "/store/syncs",
        "Syncs of the log",
    ),
    one(
        "ariel_store_checkpoints",
        Counter,
        "/store/checkpoints",
        "Checkpoints of the index",
    ),
    one(
        "ariel_store_cleaned_bytes",
        Counter,
        "/store/cleaned_bytes",
        "Bytes moved by the cleaner",
    ),
    one(
        "ariel_store_image_bytes",
        Counter,
        "/store/image_bytes",
        "Bytes written into images of the index",
    ),
    one(
        "ariel_store_index_rebuilds",
        Counter,
        "/store/index_rebuilds",
        "Times that the index was made again",
    ),
    one(
        "ariel_check_damages",
        Gauge,
        "/checks/damages",
        "Damages that the last check of the store found",
    ),
];
