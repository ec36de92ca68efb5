//! Names of modules: each is made of words that a reader knows, or finds in the glossary.

use super::{files, no_complaints, root, shown};
use std::collections::BTreeSet;

/// Words that mean in `logic` what they mean everywhere.
const PLAIN: [&str; 89] = [
    "api",
    "apply",
    "arrival",
    "attr",
    "audit",
    "batch",
    "before",
    "call",
    "change",
    "check",
    "clock",
    "cost",
    "cut",
    "data",
    "decision",
    "delivery",
    "dir",
    "done",
    "drop",
    "error",
    "execute",
    "failure",
    "fairness",
    "fault",
    "figure",
    "file",
    "flush",
    "fork",
    "idle",
    "job",
    "kernel",
    "learn",
    "leave",
    "lib",
    "lifecycle",
    "listing",
    "liveness",
    "local",
    "lock",
    "log",
    "mapping",
    "memory",
    "mod",
    "move",
    "name",
    "node",
    "notice",
    "notify",
    "number",
    "op",
    "open",
    "option",
    "order",
    "owner",
    "page",
    "plan",
    "policy",
    "poll",
    "queue",
    "range",
    "rate",
    "reach",
    "read",
    "record",
    "release",
    "rename",
    "repeat",
    "reply",
    "request",
    "reread",
    "retry",
    "root",
    "rules",
    "runs",
    "shared",
    "ship",
    "size",
    "space",
    "start",
    "table",
    "test",
    "through",
    "told",
    "used",
    "version",
    "wait",
    "worth",
    "write",
    "xattr",
];

/// The first column of the table of words in ARCHITECTURE.md: its single words, and its terms
/// without hyphens and spaces.
fn glossary(page: &str) -> BTreeSet<String> {
    let section = page.split("\n## ").find(|part| part.starts_with("Words"));
    let rows = section
        .unwrap_or("")
        .lines()
        .filter(|l| l.starts_with("| "));
    let terms = rows.filter_map(|row| row.split('|').nth(1));
    let terms: Vec<&str> = terms.collect();
    let joined = terms.iter().flat_map(|term| term.split(','));
    let joined = joined.map(|term| words(term).concat());
    terms
        .iter()
        .flat_map(|term| words(term))
        .chain(joined)
        .collect()
}

/// The words of a term or a name.
fn words(term: &str) -> Vec<String> {
    let parts = term.split(|c: char| !c.is_alphanumeric());
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(str::to_lowercase).collect()
}

/// A word as it may stand in a list: as it is, and in the singular.
fn forms(word: &str) -> Vec<String> {
    let cut = |end: &str, put: &str| Some(format!("{}{put}", word.strip_suffix(end)?));
    let singular = [cut("s", ""), cut("es", ""), cut("ies", "y")];
    let mut forms = vec![word.to_owned()];
    forms.extend(singular.into_iter().flatten());
    forms
}

/// The words in a module's name that are neither plain nor in the glossary.
fn unknown(stem: &str, glossary: &BTreeSet<String>) -> Vec<String> {
    let is_listed = |form: &String| PLAIN.contains(&form.as_str()) || glossary.contains(form);
    let is_known = |word: &String| forms(word).iter().any(is_listed);
    words(stem).into_iter().filter(|w| !is_known(w)).collect()
}

#[test]
fn modules_of_logic_have_names_that_a_reader_knows() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let glossary = glossary(&page);
    assert!(glossary.contains("token"), "no table of words");
    let src = root().join("crates/logic/src");
    let mut complaints = Vec::new();
    for file in files(&src, ".rs") {
        let stem = file.strip_prefix(&src).unwrap().with_extension("");
        for word in unknown(&stem.to_string_lossy(), &glossary) {
            complaints.push(format!("{}: {word}", shown(&file)));
        }
    }
    no_complaints(
        "words of module names that are neither in the table of words in ARCHITECTURE.md nor in \
         the list of plain words of tidy/words.rs",
        complaints,
    );
}

#[test]
fn plain_words_are_used_and_sorted() {
    let src = root().join("crates/logic/src");
    let stems = files(&src, ".rs")
        .into_iter()
        .map(|file| file.with_extension(""));
    let below = |path: std::path::PathBuf| path.strip_prefix(&src).unwrap().to_owned();
    let used: BTreeSet<String> = stems
        .map(below)
        .flat_map(|stem| words(&stem.to_string_lossy()))
        .flat_map(|word| forms(&word))
        .collect();
    let unused = PLAIN.iter().filter(|word| !used.contains(**word));
    no_complaints(
        "plain words that no module of logic has in its name",
        unused.map(|word| (*word).to_owned()).collect(),
    );
    assert!(PLAIN.is_sorted(), "the plain words are sorted");
}

#[test]
fn coined_words_are_noticed() {
    let page = "# A\n\n## Words\n\n| word | meaning |\n|---|---|\n| wound-wait | taken |\n\n## B\n";
    let glossary = glossary(page);
    assert_eq!(unknown("names/wound_wait", &glossary), [""; 0]);
    assert_eq!(unknown("names/woundwaits", &glossary), [""; 0]);
    assert_eq!(unknown("names/taken", &glossary), ["taken"]);
    assert_eq!(unknown("names/barred_dirs", &glossary), ["barred"]);
}
