//! The pages: links lead somewhere, lines fit, and what every checkout needs is there.

use super::{files, no_complaints, root, shown};
use std::path::Path;

/// The targets of the links of a page: `[text](target)`.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                found.push(rest[..end].to_owned());
            }
        }
    }
    found
}

/// The anchors that a page's headings make, as forges make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

fn complaint(page: &Path, link: &str) -> Option<String> {
    let away = ["http://", "https://", "mailto:"];
    if away.iter().any(|scheme| link.starts_with(scheme)) {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.to_owned(),
        file => page.parent().unwrap().join(file),
    };
    if !target.exists() {
        return Some(format!("{}: {link} leads nowhere", shown(page)));
    }
    if anchor.is_empty() || target.extension().is_none_or(|e| e != "md") {
        return None;
    }
    let known = anchors(&std::fs::read_to_string(&target).unwrap());
    let missing = !known.iter().any(|a| a == anchor);
    missing.then(|| format!("{}: {link} names no heading", shown(page)))
}

#[test]
fn links_lead_somewhere() {
    let mut complaints = Vec::new();
    for page in files(root(), ".md") {
        let text = std::fs::read_to_string(&page).unwrap();
        complaints.extend(
            links(&text)
                .iter()
                .filter_map(|link| complaint(&page, link)),
        );
    }
    no_complaints("links", complaints);
}

#[test]
fn what_every_checkout_needs_is_there() {
    let needed = [
        "README.md",
        "STYLE.md",
        "ARCHITECTURE.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "Makefile",
    ];
    let missing = |name: &&str| !root().join(name).is_file();
    let complaints = needed
        .into_iter()
        .filter(missing)
        .map(str::to_owned)
        .collect();
    no_complaints("missing at the root", complaints);
    let mut complaints = Vec::new();
    for name in [".ci/run", "tools/setup", "demo/run"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(root().join(name)).map(|m| m.permissions().mode());
        if !mode.is_ok_and(|mode| mode & 0o111 != 0) {
            complaints.push(name.to_owned());
        }
    }
    no_complaints("missing, or no programs", complaints);
}

#[test]
fn links_are_found_outside_of_code() {
    let text = "[a](x.md) and [b](y.md#z)\n```\n[c](none.md)\n```\n## The Words, all\n";
    assert_eq!(links(text), ["x.md", "y.md#z"]);
    assert_eq!(anchors(text), ["the-words-all"]);
}
