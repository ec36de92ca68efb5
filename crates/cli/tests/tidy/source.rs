//! A Rust source file, read well enough for tidy: which lines are comments, which belong to tests,
//! and what a line says when strings and comments are taken out. Not a parser: it knows strings,
//! characters, comments and braces, and that is all the rules need.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// One line.
pub struct Line {
    /// As it is in the file.
    pub text: String,
    /// Without comments, and with the content of strings blanked.
    pub code: String,
    /// Within an item marked `#[cfg(test)]`.
    pub is_test: bool,
}

/// A file.
pub struct Source {
    pub path: PathBuf,
    pub lines: Vec<Line>,
    /// The crate's folder name, and the path below it.
    place: Option<(String, String)>,
}

/// A function: its name, the line it begins on (from 1), and how many lines it has.
pub struct Function {
    pub name: String,
    pub line: usize,
    pub length: usize,
}

impl Source {
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        Self::parse(path, &text)
    }

    pub fn parse(path: &Path, text: &str) -> Self {
        let code = blanked(text);
        let lines = text.lines().zip(code.lines());
        let line = |(text, code): (&str, &str)| Line {
            text: text.to_owned(),
            code: code.to_owned(),
            is_test: false,
        };
        let mut source = Self {
            path: path.to_owned(),
            lines: lines.map(line).collect(),
            place: place(path),
        };
        source.mark_tests();
        source
    }

    /// The crate's folder name, when the file belongs to a crate.
    pub fn crate_name(&self) -> Option<&str> {
        self.place.as_ref().map(|(name, _)| name.as_str())
    }

    /// The path below its crate, such as `src/lib.rs`.
    pub fn below_crate(&self) -> Option<&str> {
        self.place.as_ref().map(|(_, below)| below.as_str())
    }

    /// Is the whole file for tests only?
    pub fn is_test_file(&self) -> bool {
        let below = self.below_crate().unwrap_or_default();
        let name = below.rsplit('/').next().unwrap_or_default();
        below.starts_with("tests/") || below.contains("/tests/") || name == "tests.rs"
    }

    fn mark_tests(&mut self) {
        let mut at = 0;
        while at < self.lines.len() {
            if self.lines[at].code.trim() != "#[cfg(test)]" {
                at += 1;
                continue;
            }
            let end = self.end_of_item(at);
            for line in &mut self.lines[at..=end] {
                line.is_test = true;
            }
            at = end + 1;
        }
    }

    /// The last line of the item that begins here: where its braces are closed, or its semicolon.
    fn end_of_item(&self, start: usize) -> usize {
        let mut depth = 0_i64;
        for (at, line) in self.lines.iter().enumerate().skip(start) {
            let opened = line.code.contains('{');
            for c in line.code.chars() {
                depth += i64::from(c == '{') - i64::from(c == '}');
            }
            let ended =
                line.code.trim_end().ends_with([';', ',']) || opened || line.code.contains('}');
            if depth <= 0 && ended && !line.code.trim().starts_with('#') {
                return at;
            }
        }
        self.lines.len() - 1
    }

    /// All functions with a body, nested ones as well.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            if let Some(name) = function_name(&line.code)
                && let Some(end) = self.end_of_body(at)
            {
                found.push(Function {
                    name,
                    line: at + 1,
                    length: end - at + 1,
                });
            }
        }
        found
    }

    /// Where the body of the function that begins here ends; `None` without a body.
    fn end_of_body(&self, start: usize) -> Option<usize> {
        let (mut depth, mut inside) = (0_i64, false);
        // Brackets of the signature: a `;` in an array type there ends nothing.
        let mut brackets = 0_i64;
        for (at, line) in self.lines.iter().enumerate().skip(start) {
            for c in line.code.chars() {
                match c {
                    '(' | '[' => brackets += 1,
                    ')' | ']' => brackets -= 1,
                    ';' if !inside && brackets == 0 => return None,
                    '{' => {
                        depth += 1;
                        inside = true;
                    }
                    '}' => depth -= 1,
                    _ => {}
                }
                if inside && depth == 0 {
                    return Some(at);
                }
            }
        }
        None
    }
}

fn function_name(code: &str) -> Option<String> {
    let words: Vec<&str> = code.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "fn")?;
    let before = ["pub", "const", "async", "unsafe", "extern", "\"\""];
    let leading =
        |word: &&str| before.contains(word) || word.starts_with("pub(") || word.ends_with(')');
    if !words[..at].iter().all(leading) {
        return None;
    }
    let name = words.get(at + 1)?;
    Some(name.split(['(', '<']).next()?.to_owned())
}

/// The folder name of the crate that a file is in, and the path below it.
fn place(path: &Path) -> Option<(String, String)> {
    let inside = path.strip_prefix(super::root().join("crates")).ok()?;
    let mut parts = inside.components();
    let name = parts.next()?.as_os_str().to_string_lossy().into_owned();
    Some((name, parts.as_path().to_string_lossy().into_owned()))
}

/// All Rust files of all crates, read once.
pub fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let paths = super::files(&super::root().join("crates"), ".rs");
        paths.iter().map(|path| Source::read(path)).collect()
    });
    &SOURCES
}

/// The text with comments, and what is inside strings and characters, replaced by spaces.
fn blanked(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_end(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => comment_end(&chars, at),
            '"' => string_end(&chars, at + 1),
            'r' if !follows_word(&chars, at) => raw_end(&chars, at),
            '\'' => char_end(&chars, at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        let quoted = chars[at] != '/';
        for (n, c) in chars[at..end].iter().enumerate() {
            let edge = quoted && (n == 0 || at + n + 1 == end);
            out.push(if *c == '\n' || (edge && *c == '"') {
                *c
            } else {
                ' '
            });
        }
        at = end;
    }
    out
}

fn follows_word(chars: &[char], at: usize) -> bool {
    // `br"..."` is a raw string too.
    let before = at.checked_sub(1).map(|i| chars[i]);
    let byte = before == Some('b') && (at < 2 || !is_word(chars[at - 2]));
    before.is_some_and(is_word) && !byte
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..]
        .iter()
        .position(|c| *c == '\n')
        .map_or(chars.len(), |n| at + n)
}

fn comment_end(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The end of a raw string that begins at this `r`, or `at` when none does.
fn raw_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let mut end = at + 2 + hashes;
    while end < chars.len() {
        let closing = chars[end + 1..].iter().take_while(|c| **c == '#').count();
        if chars[end] == '"' && closing >= hashes {
            return end + 1 + hashes;
        }
        end += 1;
    }
    chars.len()
}

/// The end of a character literal, or `at` when it is a lifetime.
fn char_end(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        let close = chars.iter().skip(at + 3).position(|c| *c == '\'');
        return close.map_or(at, |n| at + 3 + n + 1);
    }
    if chars.get(at + 2) == Some(&'\'') {
        at + 3
    } else {
        at
    }
}

#[test]
fn strings_and_comments_are_blanked() {
    let text = "let a = \"{ // no\"; // } \"\nlet b = '\"'; /* { */ let c = r#\"}\"\"#;\n&'a str {";
    let code = blanked(text);
    assert_eq!(code.lines().count(), 3);
    assert_eq!(code.matches(['{', '}']).count(), 1, "{code}");
    assert!(code.contains("let c") && code.contains("&'a str"), "{code}");
}

#[test]
fn functions_and_tests_are_found() {
    let text = "pub(crate) fn one(a: [u8; 4]) {\n    x();\n}\n\ntrait T {\n    fn none(&self);\n}\n\
                #[cfg(test)]\nmod tests {\n    fn two() {}\n}\nfn after() {}\n";
    let source = Source::parse(Path::new("x.rs"), text);
    let seen: Vec<_> = source
        .functions()
        .into_iter()
        .map(|f| (f.name, f.line, f.length))
        .collect();
    let expected = [("one", 1, 3), ("two", 10, 1), ("after", 12, 1)];
    assert_eq!(seen, expected.map(|(n, l, c)| (n.to_owned(), l, c)));
    let tests: Vec<_> = source.lines.iter().map(|line| line.is_test).collect();
    assert_eq!(tests.iter().filter(|t| **t).count(), 4, "{tests:?}");
}
