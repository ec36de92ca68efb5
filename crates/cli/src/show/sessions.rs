//! The sessions of a server, and the one that a mount has lost.

use serde_json::{Value, json};
use server::{ClientLine, Lease};

/// The words of JSON for a lease, and those for people.
const LEASES: [(&str, &str); 5] = [
    ("runs", "its lease runs"),
    (
        "over",
        "its lease is over: others get what they want of what it holds",
    ),
    (
        "stalled",
        "it leaves a question unanswered: nothing renews its lease",
    ),
    (
        "taken",
        "it is away, and others have got what they wanted of what it held",
    ),
    (
        "awaited",
        "it has not come back since the server was started",
    ),
];

fn word(lease: Lease) -> &'static str {
    let at = match lease {
        Lease::Runs => 0,
        Lease::Over => 1,
        Lease::Stalled => 2,
        Lease::Taken => 3,
        Lease::Awaited => 4,
    };
    LEASES[at].0
}

/// The sessions as JSON.
pub(super) fn lines(clients: &[ClientLine]) -> Value {
    let line = |client: &ClientLine| {
        json!({
            "session": format!("{:016x}", client.session),
            "name": client.name,
            "address": client.peer.map(|peer| peer.to_string()),
            "for_s": client.known_for.map(|past| past.as_secs()),
            "silent_s": client.silent_for.as_secs(),
            "lease": word(client.lease),
        })
    };
    clients.iter().map(line).collect()
}

/// The same as text, a line for each.
pub(super) fn text(sessions: &Value) -> String {
    let all = sessions.as_array().into_iter().flatten();
    let lines: Vec<String> = all.map(line).collect();
    match lines.is_empty() {
        true => "none".to_owned(),
        false => lines.join(&format!("\n{:<20} ", "")),
    }
}

fn line(session: &Value) -> String {
    let lease = session["lease"].as_str().unwrap_or_default();
    let found = LEASES.iter().find(|(word, _)| *word == lease);
    let lease = found.map_or(lease, |(_, words)| words);
    let name = match session["name"].as_str().unwrap_or_default() {
        "" => format!(
            "session {}",
            session["session"].as_str().unwrap_or_default()
        ),
        name => name.to_owned(),
    };
    let from = match session["address"].as_str() {
        Some(address) => format!("from {address}"),
        None => "without a connection".to_owned(),
    };
    let since = match session["for_s"].as_u64() {
        Some(past) => format!(", for {}", time(past)),
        None => String::new(),
    };
    let silent = match session["silent_s"].as_u64() {
        Some(past) if lease != LEASES[0].1 => format!(" (silent for {})", time(past)),
        _ => String::new(),
    };
    format!("{name}, {from}{since}, {lease}{silent}")
}

/// The loss of a mount's session as text.
pub(super) fn disconnected(loss: &Value) -> String {
    let past = time(loss["for_s"].as_u64().unwrap_or(0));
    format!("for {past}: {}", loss["why"].as_str().unwrap_or_default())
}

/// A time in its two largest units.
fn time(past_s: u64) -> String {
    let (minutes, hours, days) = (past_s / 60, past_s / 3600, past_s / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{past_s} s"),
        (0, 0, _) => format!("{minutes} min {} s", past_s % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_a_line_with_its_lease() {
        let all = json!([
            { "session": "01", "name": "a:/mnt", "address": "10.0.0.1:7", "for_s": 3700,
              "silent_s": 3, "lease": "runs" },
            { "session": "02", "name": "b:/mnt", "address": null, "for_s": 90, "silent_s": 30,
              "lease": "taken" },
            { "session": "03", "name": "", "address": null, "for_s": null, "silent_s": 5,
              "lease": "awaited" },
        ]);
        let text = text(&all);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines[0],
            "a:/mnt, from 10.0.0.1:7, for 1 h 1 min, its lease runs"
        );
        assert!(lines[1].starts_with("b:/mnt, without a connection, for 1 min 30 s, it is away"));
        assert!(lines[1].ends_with("(silent for 30 s)"), "{}", lines[1]);
        assert!(lines[2].starts_with("session 03, without"), "{}", lines[2]);
        assert_eq!(super::text(&json!([])), "none");
    }

    #[test]
    fn a_loss_is_told_with_its_time_and_cause() {
        let loss = json!({ "for_s": 200_000, "why": "Connection refused" });
        assert_eq!(disconnected(&loss), "for 2 d 7 h: Connection refused");
    }
}
