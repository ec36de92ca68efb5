//! The uses that crates may make of each other. The list below is the architecture; the manifests
//! and the sources must agree.

use super::source::{Source, sources};
use super::{no_complaints, root, shown};
use std::collections::BTreeMap;

const CRATES: [&str; 20] = [
    "wire", "access", "logic", "store", "net", "blocks", "cell", "server", "client", "fuse",
    "files", "segment", "preload", "sim", "trace", "stream", "ship", "torture", "bench", "cli",
];

/// Each crate, and the crates of ours that it may use.
const MAY_USE: [(&str, &[&str]); 20] = [
    ("wire", &[]),
    ("access", &["wire"]),
    ("logic", &["wire"]),
    ("store", &["wire", "access"]),
    ("net", &["wire"]),
    ("blocks", &[]),
    ("cell", &["wire", "access", "logic", "net", "ship"]),
    ("server", &["wire", "access", "logic", "store", "net"]),
    ("client", &["wire", "logic", "net", "blocks"]),
    ("fuse", &["wire", "client"]),
    ("files", &["wire", "client"]),
    ("segment", &["logic", "files"]),
    ("preload", &["segment"]),
    ("sim", &["wire", "logic", "store"]),
    ("trace", &["wire", "logic"]),
    ("stream", &["wire"]),
    ("ship", &[]),
    ("torture", &[]),
    ("bench", &[]),
    ("cli", &CRATES),
];

/// The names in the sections of a manifest: `[dependencies]`, `[dev-dependencies]`, ...
fn sections(manifest: &str) -> BTreeMap<String, Vec<String>> {
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_matches(['[', ']']);
            // `[dependencies.wire]` is a way to write one as well.
            match name.split_once("dependencies.") {
                Some((before, one)) => {
                    current = String::new();
                    let section = format!("{before}dependencies");
                    sections.entry(section).or_default().push(one.to_owned());
                }
                None => current = name.to_owned(),
            }
        } else if let Some((name, _)) = line.split_once(['=', '.'])
            && !line.starts_with('#')
        {
            let name = name.trim().trim_matches('"').to_owned();
            sections.entry(current.clone()).or_default().push(name);
        }
    }
    sections
}

/// Every dependency of a crate, the sections for one platform included.
fn dependencies(name: &str, with_dev: bool) -> Vec<String> {
    let path = root().join("crates").join(name).join("Cargo.toml");
    let sections = sections(&std::fs::read_to_string(path).unwrap());
    let wanted = |section: &str| {
        let dev = section.ends_with("dev-dependencies");
        section.ends_with("dependencies") && (with_dev || !dev)
    };
    let found = sections.iter().filter(|(section, _)| wanted(section));
    found.flat_map(|(_, names)| names.clone()).collect()
}

fn ours(dependency: &str) -> Option<&'static str> {
    let short = dependency.strip_prefix("ariel-").unwrap_or(dependency);
    CRATES.into_iter().find(|name| *name == short)
}

#[test]
fn crates_use_only_what_stands_below_them() {
    let mut complaints = Vec::new();
    for (name, allowed) in MAY_USE {
        for dependency in dependencies(name, true) {
            if let Some(used) = ours(&dependency)
                && !allowed.contains(&used)
            {
                complaints.push(format!("{name} uses {used}; it may use only {allowed:?}"));
            }
        }
    }
    no_complaints("edges that ARCHITECTURE.md does not draw", complaints);
}

#[test]
fn the_list_of_crates_is_the_folder() {
    let mut folder: Vec<String> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut list = CRATES.map(str::to_owned).to_vec();
    folder.sort();
    list.sort();
    assert_eq!(
        folder, list,
        "crates/ (left) and the list in this test (right)"
    );
}

#[test]
fn logic_has_no_dependency_but_wire_and_no_std() {
    assert_eq!(dependencies("logic", false), ["wire"]);
    for name in ["logic", "access", "wire"] {
        let lib = Source::read(&root().join("crates").join(name).join("src/lib.rs"));
        // Tests may bring the standard library in.
        let no_std = lib.lines.iter().any(|line| {
            let code = line.code.replace(' ', "");
            code == "#![no_std]" || code == "#![cfg_attr(not(test),no_std)]"
        });
        assert!(no_std, "crates/{name}/src/lib.rs is not no_std");
    }
    let mut complaints = Vec::new();
    let src = root().join("crates/logic/src");
    for source in sources().iter().filter(|s| s.path.starts_with(&src)) {
        if source.is_test_file() {
            continue;
        }
        for (at, line) in source.lines.iter().enumerate() {
            if !line.is_test && line.code.contains("std::") {
                complaints.push(format!("{}:{}", shown(&source.path), at + 1));
            }
        }
    }
    no_complaints("logic names std", complaints);
}

#[test]
fn no_crate_shows_another_as_its_own() {
    let mut complaints = Vec::new();
    for source in sources() {
        for (at, line) in source.lines.iter().enumerate() {
            let code = line.code.trim();
            let used = code.strip_prefix("pub use ");
            let used = used.and_then(|used| used.split_once("::"));
            let of_crate = used.is_some_and(|(name, _)| CRATES.contains(&name));
            if of_crate && !declares(source, code) {
                complaints.push(format!("{}:{}: {code}", shown(&source.path), at + 1));
            }
        }
    }
    no_complaints("a `pub use` across crates hides an edge", complaints);
}

/// A module of the file itself may have the name of a crate.
fn declares(source: &Source, code: &str) -> bool {
    let name = code
        .trim_start_matches("pub use ")
        .split("::")
        .next()
        .unwrap_or_default();
    source
        .lines
        .iter()
        .any(|line| line.code.trim().ends_with(&format!("mod {name};")))
}

#[test]
fn manifests_are_read_as_they_are_written() {
    let text = "[package]\nname = \"x\"\n[dependencies]\nwire.workspace = true\nserde = \"1\"\n\
                # net = \"1\"\n[target.'cfg(unix)'.dependencies]\nlogic = { path = \"\" }\n\
                [dev-dependencies.store]\npath = \"\"\n";
    let sections = sections(text);
    assert_eq!(sections["dependencies"], ["wire", "serde"]);
    assert_eq!(sections["target.'cfg(unix)'.dependencies"], ["logic"]);
    assert_eq!(sections["dev-dependencies"], ["store"]);
}
