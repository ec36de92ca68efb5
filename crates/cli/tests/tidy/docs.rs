//! The pages: links lead somewhere, tests that they name are there, lines fit, and what every
//! checkout needs is there.

use super::source::sources;
use super::{files, no_complaints, root, shown};
use std::collections::BTreeSet;
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

/// Pieces of a page that are shown as code.
fn code(text: &str) -> Vec<&str> {
    let odd = text.split('`').skip(1).step_by(2);
    odd.filter(|piece| !piece.contains('\n')).collect()
}

/// `module::a_test_s_name`: the name.
fn test_named(piece: &str) -> Option<&str> {
    let (path, name) = piece.rsplit_once("::")?;
    let is_word = |word: &str| {
        let of_a_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        !word.is_empty() && word.chars().all(of_a_name)
    };
    let is_test = path.split("::").all(is_word) && is_word(name) && name.matches('_').count() > 2;
    is_test.then_some(name)
}

/// `25_lending: Title`: the file, and the title of a scenario in it.
fn scenario_named(piece: &str) -> Option<(&str, &str)> {
    let (file, title) = piece.split_once(": ")?;
    let number = file.get(..2)?.chars().all(|c| c.is_ascii_digit());
    (number && file.as_bytes().get(2) == Some(&b'_')).then_some((file, title))
}

fn is_scenario((file, title): (&str, &str)) -> bool {
    let path = root().join(format!("crates/logic/scenarios/{file}.txt"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .any(|line| line.strip_prefix("== ") == Some(title))
}

#[test]
fn tests_that_pages_name_are_there() {
    let functions: BTreeSet<String> = sources()
        .iter()
        .flat_map(|source| source.functions())
        .map(|function| function.name)
        .collect();
    let (mut complaints, mut named) = (Vec::new(), 0);
    for page in files(root(), ".md") {
        let text = std::fs::read_to_string(&page).unwrap();
        for piece in code(&text) {
            let is_there = match (test_named(piece), scenario_named(piece)) {
                (Some(name), _) => functions.contains(name),
                (None, Some(scenario)) => is_scenario(scenario),
                (None, None) => continue,
            };
            named += 1;
            if !is_there {
                complaints.push(format!("{}: there is no test {piece}", shown(&page)));
            }
        }
    }
    no_complaints("docs::tests_that_pages_name_are_there", complaints);
    assert!(named > 50, "pages name {named} tests");
}
