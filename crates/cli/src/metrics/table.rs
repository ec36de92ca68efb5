//! All metrics: name, meaning, and where status or profile has the value. The names are what
//! dashboards are made of, so a name keeps its meaning for ever. docs/service.md lists them all.

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

const fn one(name: &'static str, kind: Kind, at: &'static str, help: &'static str) -> Metric {
    family(name, kind, (at, ""), help)
}

const fn family(
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
pub(super) const SERVER: [Metric; 36] = [
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

/// Of a mount.
pub(super) const MOUNT: [Metric; 37] = [
    one(
        "ariel_mount_connected",
        Gauge,
        "/connected",
        "1 while the server is connected",
    ),
    one(
        "ariel_mount_connections",
        Counter,
        "/connections",
        "Connections made to the server",
    ),
    one(
        "ariel_mount_sessions_lost",
        Counter,
        "/sessions_lost",
        "Sessions that the server ended",
    ),
    one(
        "ariel_mount_conflicts",
        Counter,
        "/conflicts",
        "What was kept beside what others did while this machine was away",
    ),
    one(
        "ariel_mount_lost_bytes",
        Counter,
        "/lost_bytes",
        "Written bytes that were lost",
    ),
    one(
        "ariel_mount_lost_changes",
        Counter,
        "/lost_changes",
        "Changes of names that were lost",
    ),
    one(
        "ariel_mount_refused_write_backs",
        Counter,
        "/refused_write_backs",
        "Write-backs that the server refused",
    ),
    one(
        "ariel_mount_outstanding_requests",
        Gauge,
        "/outstanding",
        "Requests at the server",
    ),
    one(
        "ariel_mount_untold_changes",
        Gauge,
        "/untold_changes",
        "Changes of names that the server does not know yet",
    ),
    one(
        "ariel_mount_recalls",
        Gauge,
        "/recalls",
        "Recalls being answered",
    ),
    one("ariel_mount_nodes", Gauge, "/nodes", "Objects known"),
    one("ariel_mount_opens", Gauge, "/opens", "Open files"),
    one(
        "ariel_mount_watches",
        Gauge,
        "/watches",
        "Watches of programs",
    ),
    one(
        "ariel_mount_locks",
        Gauge,
        "/locks/held",
        "Locks of this machine's programs",
    ),
    one(
        "ariel_mount_lock_waits",
        Gauge,
        "/locks/waiting",
        "Lock requests that wait",
    ),
    one(
        "ariel_mount_tokens_shared",
        Gauge,
        "/tokens/shared",
        "Shared tokens held",
    ),
    one(
        "ariel_mount_tokens_exclusive",
        Gauge,
        "/tokens/exclusive",
        "Exclusive tokens held",
    ),
    one(
        "ariel_mount_cache_blocks_max",
        Gauge,
        "/cache/slots",
        "Most cached blocks of 4 KiB",
    ),
    one(
        "ariel_mount_cache_blocks",
        Gauge,
        "/cache/used",
        "Cached blocks of 4 KiB",
    ),
    one(
        "ariel_mount_cache_dirty_blocks",
        Gauge,
        "/cache/dirty",
        "Blocks not written back yet",
    ),
    one(
        "ariel_mount_memory_size_bytes",
        Gauge,
        "/memory/size_bytes",
        "Memory that cached blocks may take now",
    ),
    one(
        "ariel_mount_memory_least_bytes",
        Gauge,
        "/memory/least_bytes",
        "The least that they may ever take",
    ),
    one(
        "ariel_mount_memory_most_bytes",
        Gauge,
        "/memory/most_bytes",
        "The most that they may ever take",
    ),
    one(
        "ariel_mount_memory_resident_bytes",
        Gauge,
        "/memory/resident_bytes",
        "Memory that they take",
    ),
    one(
        "ariel_mount_memory_presses",
        Counter,
        "/memory/presses",
        "Looks at which others wanted memory of the cache",
    ),
    one(
        "ariel_mount_memory_given_back_bytes",
        Counter,
        "/memory/given_back_bytes",
        "Memory given back since others wanted it",
    ),
    one(
        "ariel_mount_cache_hits",
        Counter,
        "/cache/hits",
        "Blocks read from the cache",
    ),
    one(
        "ariel_mount_cache_misses",
        Counter,
        "/cache/misses",
        "Blocks fetched for a read",
    ),
    one(
        "ariel_mount_lends",
        Gauge,
        "/cooperation/lends",
        "1 while cached blocks are lent to other clients",
    ),
    one(
        "ariel_mount_borrowed_blocks",
        Counter,
        "/cooperation/borrowed",
        "Blocks that other clients lent",
    ),
    one(
        "ariel_mount_fetched_blocks",
        Counter,
        "/cooperation/fetched",
        "Blocks that the server sent for reads",
    ),
    one(
        "ariel_mount_lent_blocks",
        Counter,
        "/cooperation/lent",
        "Blocks lent to other clients",
    ),
    one(
        "ariel_mount_lacking_blocks",
        Counter,
        "/cooperation/lacking",
        "Blocks that a lender had given up",
    ),
    one(
        "ariel_mount_failing_lenders",
        Counter,
        "/cooperation/failing",
        "Lenders that answered late or wrongly",
    ),
    family(
        "ariel_mount_kernel_requests",
        Counter,
        ("/fuse/requests", "kind"),
        "Requests of the kernel, by kind",
    ),
    family(
        "ariel_mount_sent_messages",
        Counter,
        ("/sent", "kind"),
        "Messages to the server, by kind",
    ),
    family(
        "ariel_mount_received_messages",
        Counter,
        ("/received", "kind"),
        "Messages from the server, by kind",
    ),
];
