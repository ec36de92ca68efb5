//! Sentences of comments and pages have a noun as their subject: none begins with "Who", "What" and
//! the like, unless it is a question.

use super::{files, no_complaints, root, shown};

const OPENINGS: [&str; 14] = [
    "What ",
    "Whatever ",
    "Who ",
    "Whoever ",
    "Whom ",
    "Whose ",
    "To whom ",
    "For whom ",
    "Of what ",
    "By what ",
    "To what ",
    "Of whom ",
    "By whom ",
    "In whose ",
];

/// The paragraphs of a Rust file's comments, or of a page, each with the line it begins on.
fn paragraphs(text: &str, is_page: bool) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut open, mut fenced) = (false, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let said = if is_page {
            fenced ^= line.starts_with("```");
            let prose = !fenced && !line.starts_with(['`', '#', '|']);
            prose.then_some(line)
        } else {
            let doc = line
                .strip_prefix("///")
                .or_else(|| line.strip_prefix("//!"));
            doc.or_else(|| line.strip_prefix("//"))
        };
        let said = said.map(str::trim).filter(|said| !said.is_empty());
        let item =
            said.and_then(|said| said.strip_prefix("- ").or_else(|| said.strip_prefix("* ")));
        match (said, found.last_mut()) {
            (None, _) => {}
            (Some(said), Some((_, paragraph))) if open && item.is_none() => {
                paragraph.push(' ');
                paragraph.push_str(said);
            }
            (Some(said), _) => found.push((at + 1, item.unwrap_or(said).to_owned())),
        }
        open = said.is_some();
    }
    found
}

/// The sentences of a paragraph that open without a noun.
fn subjectless(paragraph: &str) -> Vec<&str> {
    let ends = |at: usize| {
        paragraph[..at].ends_with([' ']) && {
            paragraph[..at]
                .trim_end()
                .ends_with(['.', ':', ';', '!', '?'])
        }
    };
    let starts = paragraph.char_indices().map(|(at, _)| at);
    let starts = starts.filter(|at| *at == 0 || ends(*at));
    let sentences = starts.map(|at| {
        let rest = &paragraph[at..];
        let end = rest.find(['.', ';', '?']).map_or(rest.len(), |end| end + 1);
        &rest[..end]
    });
    let bare = |sentence: &&str| {
        OPENINGS.iter().any(|opening| sentence.starts_with(opening)) && !sentence.ends_with('?')
    };
    sentences.filter(bare).collect()
}

#[test]
fn sentences_have_a_noun_as_their_subject() {
    let sources = files(&root().join("crates"), ".rs").into_iter();
    let pages = files(root(), ".md").into_iter();
    let mut complaints = Vec::new();
    for (path, is_page) in sources.map(|p| (p, false)).chain(pages.map(|p| (p, true))) {
        let text = std::fs::read_to_string(&path).unwrap();
        // Help texts are strings.
        let is_help = shown(&path).starts_with("crates/cli/src/args");
        for (line, paragraph) in paragraphs(&text, is_page || is_help) {
            let bare = subjectless(&paragraph).into_iter();
            complaints.extend(bare.map(|s| format!("{}:{line}: {s}", shown(&path))));
        }
    }
    no_complaints(
        "sentences that open without a noun: say which thing or person",
        complaints,
    );
}

#[test]
fn sentences_without_a_noun_are_noticed() {
    let code = "/// It waits. What\n/// comes is kept.\nfn f() {}\n// Who waits? Who comes.\n";
    let found: Vec<_> = paragraphs(code, false);
    assert_eq!(found.len(), 2);
    assert_eq!(subjectless(&found[0].1), ["What comes is kept."]);
    assert_eq!(subjectless(&found[1].1), ["Who comes."]);
    let page = "## What is it\n\n- One; whose is it.\n- Whose it is.\n\n```\nWho.\n```\n";
    let found = paragraphs(page, true);
    let bare: Vec<_> = found.iter().flat_map(|(_, p)| subjectless(p)).collect();
    assert_eq!(bare, ["Whose it is."]);
}
