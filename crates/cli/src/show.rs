//! How servers and mounts are shown: as JSON, and the same as text.

mod sessions;

use client::front::{Figures, Memory, TokenLine};
use fuse::front::{Mount, OtherVolume};
use serde_json::{Map, Value, json};
use server::Status;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Prints lines. A reader that closes the pipe has seen enough.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

/// Counters by name.
fn counts(list: &[(&'static str, u64)]) -> Value {
    let entry = |(name, count): &(&'static str, u64)| ((*name).to_owned(), json!(count));
    Value::Object(list.iter().map(entry).collect::<Map<_, _>>())
}

/// How a server is, with its further stores.
pub(crate) fn whole_server(server: &server::Server) -> Value {
    let mut shown = server_status(&server.status());
    let further = server.further_status();
    if !further.is_empty() {
        let line = |of: &Status| {
            json!({
                "data": of.data.display().to_string(),
                "failure": of.failure,
                "clients": of.figures.sessions,
                "sessions": sessions::lines(&of.clients),
                "connections": of.connections,
                "grace": of.figures.grace,
                "store": store_status(of),
            })
        };
        shown["stores"] = further.iter().map(line).collect();
    }
    shown
}

/// How the first store of a server is.
fn server_status(status: &Status) -> Value {
    let figures = &status.figures;
    json!({
        "kind": "server",
        "pid": std::process::id(),
        "addr": status.addr.to_string(),
        "data": status.data.display().to_string(),
        "failure": status.failure,
        "clients": figures.sessions,
        "connections": status.connections,
        "sessions": sessions::lines(&status.clients),
        "grace": figures.grace,
        "waiting": figures.waiting,
        "locks": {
            "held": figures.locks,
            "waiting": figures.lock_waits,
            "delegated_files": figures.lock_files,
        },
        "watches": figures.watches,
        "cooperation": served_cooperation(status),
        "held_bytes": status.held_bytes,
        "store": store_status(status),
        "checks": {
            "running": status.checks.running,
            "done": status.checks.done,
            "bytes": status.checks.bytes,
            "ended": status.checks.ended,
            "damages": status.checks.damages,
            "losses": status.checks.losses,
        },
        "recalls": figures.recalls,
        "received": counts(&status.received),
        "sent": counts(&status.sent),
        "bytes": { "received": status.moved.received, "sent": status.moved.sent },
        "tokens": {
            "files": figures.files,
            "shared": figures.shared,
            "exclusive": figures.exclusive,
            "transient": figures.transient,
        },
    })
}

/// The figures of cooperation at a server.
fn served_cooperation(status: &Status) -> Value {
    let (policy, counts) = &status.cooperation;
    json!({
        "policy": policy.word(),
        "lenders": counts.lenders,
        "hints": counts.hints,
        "forwarded": counts.forwarded,
        "sent": counts.sent,
        "lacking": counts.lacking,
        "failing": counts.failing,
        "leaving": counts.leaving,
        "handed": counts.handed,
    })
}

/// Figures of the store, while it serves.
fn store_status(status: &Status) -> Option<Value> {
    let stats = status.store.as_ref()?;
    Some(json!({
        "objects": stats.objects,
        "bytes": stats.bytes,
        "records": stats.records,
        "stable_records": stats.stable_records,
        "log_bytes": status.log_bytes,
        "appended_bytes": stats.appended_bytes,
        "segments": stats.segments,
        "kept_bytes": stats.kept_bytes,
        "live_bytes": stats.live_bytes,
        "cleaned_bytes": stats.cleaned_bytes,
        "syncs": stats.syncs,
        "checkpoints": stats.checkpoints,
        "index_stops": stats.index_stops,
        "index_rebuilds": stats.index_rebuilds,
        "image_bytes": stats.image_bytes,
        "waiting_segments": stats.waiting_segments,
        "rebuildable": stats.rebuildable,
        "sessions": stats.sessions,
        "answers": stats.answers,
    }))
}

/// The findings of a check of a store.
pub(crate) fn report(report: &store::Report) -> Value {
    let lines = |list: &[String], more: u64| {
        let more = (more > 0).then(|| format!("and {more} more"));
        list.iter().cloned().chain(more).collect::<Vec<_>>()
    };
    let damages: Vec<String> = report.damages.iter().map(ToString::to_string).collect();
    let losses: Vec<String> = report.losses.iter().map(ToString::to_string).collect();
    json!({
        "clean": report.is_clean(),
        "objects": report.objects,
        "bytes": report.bytes,
        "orphans": report.orphans.len(),
        "damages": lines(&damages, report.more),
        "losses": lines(&losses, report.more_losses),
        "warnings": report.warnings,
    })
}

/// Reports of all stores of a server, as one; lines about further stores begin with their places.
pub(crate) fn reports(first: &store::Report, further: &[(PathBuf, store::Report)]) -> Value {
    let mut whole = report(first);
    for (dir, one) in further.iter().map(|(dir, of)| (dir.display(), report(of))) {
        whole["clean"] = json!(whole["clean"] == true && one["clean"] == true);
        for sum in ["objects", "bytes", "orphans"] {
            whole[sum] = json!(whole[sum].as_u64().unwrap_or(0) + one[sum].as_u64().unwrap_or(0));
        }
        for list in ["damages", "losses", "warnings"] {
            let lines = one[list].as_array().into_iter().flatten();
            let lines = lines.filter_map(Value::as_str);
            let lines = lines.map(|line| json!(format!("{dir}: {line}")));
            if let Some(of_all) = whole[list].as_array_mut() {
                of_all.extend(lines);
            }
        }
    }
    whole
}

/// The tokens that a server has granted.
pub(crate) fn server_tokens(tokens: &[server::TokenLine]) -> Value {
    let line = |token: &server::TokenLine| {
        json!({
            "fid": token.fid.to_string(),
            "right": format!("{:?}", token.right),
            "epoch": token.epoch,
            "session": format!("{:016x}", token.session),
            "open": token.open.0,
            "open_for_writing": token.open.1,
        })
    };
    json!({ "kind": "server", "tokens": tokens.iter().map(line).collect::<Vec<_>>() })
}

/// How a mount is; `kept`: for how long its kernel keeps things.
pub(crate) fn mount_status(mount: &Mount, kept: &str, point: &Path) -> Value {
    let client = mount.client();
    let (figures, counters) = (client.figures(), client.counters());
    json!({
        "kind": "mount",
        "pid": std::process::id(),
        "mount": point.display().to_string(),
        "server": client.server().to_string(),
        "kept": kept,
        "session": format!("{:016x}", client.session()),
        "connected": figures.connected,
        "disconnected": client.disconnected().map(|(past, why)| {
            json!({ "for_s": past.as_secs(), "why": why })
        }),
        "connections": counters.connections,
        "sessions_lost": counters.sessions_lost,
        "lost_bytes": counters.lost_bytes,
        "lost_changes": counters.lost_changes,
        "refused_write_backs": counters.refused_write_backs,
        "conflicts": figures.conflicts,
        "elsewhere": mount.other_volumes().iter().map(elsewhere).collect::<Vec<_>>(),
        "resumed_files": figures.resumed,
        "stranded_files": figures.stranded,
        "fuse": {
            "connection": mount.connection_id(),
            "transport": match mount.transport() {
                fuse::Transport::Uring => "uring",
                fuse::Transport::Device | fuse::Transport::Auto => "dev",
            },
            "features": mount.features(),
            "requests": counts(&mount.fuse_counters()),
            "told": counts(&mount.told()),
        },
        "sent": counts(&counters.sent),
        "received": counts(&counters.received),
        "recalls": figures.recalls,
        "outstanding": figures.outstanding,
        "untold_changes": figures.untold,
        "room_bytes": figures.room.bytes,
        "room_objects": figures.room.objects,
        "unstable": { "changes": figures.unstable, "bytes": figures.unstable_bytes },
        "nodes": figures.nodes,
        "opens": figures.opens,
        "locks": {
            "held": figures.locks,
            "waiting": figures.lock_waits,
            "delegated_files": figures.lock_files,
            "decided": figures.lock_calls,
        },
        "abandoned": figures.abandoned,
        "watches": figures.watches,
        "tokens": {
            "shared": figures.shared,
            "exclusive": figures.exclusive,
            "transient": figures.transient,
        },
        "cache": cache(&figures),
        "memory": memory(&client.memory(), &figures),
        "cooperation": mounted_cooperation(&figures),
    })
}

/// A volume of another server that the mount shows.
fn elsewhere(other: &OtherVolume) -> Value {
    json!({
        "volume": other.volume,
        "server": other.server,
        "connected": !other.away,
        "owed_bytes": other.owed.bytes,
        "owed_changes": other.owed.changes,
    })
}

/// The figures of cooperation at a mount.
fn mounted_cooperation(figures: &Figures) -> Value {
    let counts = &figures.lending;
    json!({
        "lends": counts.lends,
        "borrowed": counts.borrowed,
        "fetched": counts.fetched,
        "lent": counts.lent,
        "lacking": counts.lacking,
        "failing": counts.failing,
        "kept": counts.kept,
        "taken": counts.taken,
        "adopted": counts.adopted,
    })
}

fn cache(figures: &Figures) -> Value {
    json!({
        "slots": figures.slots,
        "used": figures.used,
        "dirty": figures.dirty,
        "hits": figures.hits,
        "misses": figures.misses,
    })
}

/// How much memory the cache may have, and what has taken of it.
fn memory(memory: &Memory, figures: &Figures) -> Value {
    let oldest = figures.oldest.filter(|used_ns| *used_ns > 0);
    let age_ns = oldest.map(|used_ns| client::front::now_ns().saturating_sub(used_ns));
    json!({
        "varies": memory.varies,
        "size_bytes": memory.size,
        "least_bytes": memory.least,
        "most_bytes": memory.most,
        "resident_bytes": memory.resident,
        "pressed_by": memory.pressed,
        "presses": memory.presses,
        "given_back_bytes": memory.given_back,
        "oldest_s": age_ns.map(|ns| ns / 1_000_000_000),
        "penalty_s": memory.varies.then_some(memory.penalty_ns / 1_000_000_000),
    })
}

/// The tokens that a mount holds.
pub(crate) fn mount_tokens(tokens: &[TokenLine]) -> Value {
    let line = |token: &TokenLine| {
        json!({
            "fid": token.fid.to_string(),
            "right": format!("{:?}", token.right),
            "epoch": token.epoch,
            "readers": token.opens.0,
            "writers": token.opens.1,
            "dirty_blocks": token.dirty,
        })
    };
    json!({ "kind": "mount", "tokens": tokens.iter().map(line).collect::<Vec<_>>() })
}

/// A status as text: a line for each value, what belongs together on one.
pub(crate) fn status_text(status: &Value) -> String {
    let mut text = String::new();
    let fields = status.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(_, value)| !value.is_null()) {
        // Writing to a string does not fail.
        let words = match name.as_str() {
            "sessions" => sessions::text(value),
            "disconnected" => sessions::disconnected(value),
            _ => words(value),
        };
        let _ = writeln!(text, "{:<20} {words}", name.replace('_', " "));
    }
    text
}

/// A value in words.
fn words(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Array(list) => list.iter().map(words).collect::<Vec<_>>().join("; "),
        Value::Object(fields) if fields.is_empty() => "none".to_owned(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name} {}", words(value));
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Tokens as a table.
pub(crate) fn tokens_text(answer: &Value) -> String {
    let of_server = answer["kind"] == "server";
    let columns: &[&str] = if of_server {
        &[
            "fid",
            "right",
            "epoch",
            "session",
            "open",
            "open_for_writing",
        ]
    } else {
        &[
            "fid",
            "right",
            "epoch",
            "readers",
            "writers",
            "dirty_blocks",
        ]
    };
    let mut rows = vec![
        columns
            .iter()
            .map(|name| name.replace('_', "-"))
            .collect::<Vec<_>>(),
    ];
    let tokens = answer["tokens"].as_array().into_iter().flatten();
    rows.extend(tokens.map(|token| columns.iter().map(|name| words(&token[*name])).collect()));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:<width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_in_words() {
        let status = json!({
            "kind": "server", "grace": false, "failure": null, "lost_bytes": 0,
            "received": { "Hello": 2, "Lookup": 3 }, "sessions": [],
        });
        let text = status_text(&status);
        assert!(text.contains("Hello 2, Lookup 3"), "{text}");
        assert!(
            text.contains("lost bytes") && !text.contains("failure"),
            "{text}"
        );
        assert!(text.contains("none") && text.contains("no\n"), "{text}");
    }

    #[test]
    fn tokens_are_a_table_with_a_head() {
        let answer = json!({ "kind": "mount", "tokens": [
            { "fid": "1.1.1", "right": "Shared", "epoch": 7, "readers": 1, "writers": 0,
              "dirty_blocks": 0 },
        ]});
        let text = tokens_text(&answer);
        assert_eq!(text.lines().count(), 2);
        assert!(text.starts_with("fid"), "{text}");
        assert!(text.contains("1.1.1  Shared  7"), "{text}");
    }
}
