//! Options of files and of the environment: which counts, what is refused, and what a mount does
//! with them.

use crate::harness::{Cell, ariel, real_system, run, text};
use std::fs;
use std::process::Command;

fn with_files(args: &[&str], dir: &std::path::Path) -> Command {
    let mut command = ariel(args);
    command.env("ARIEL_CONFIG", dir);
    command
}

#[test]
fn each_option_of_a_mount_can_stand_in_a_file() {
    if !real_system("config-mount") {
        return;
    }
    let Some(cell) = Cell::start("config-mount") else {
        return;
    };
    let dir = cell.scratch().dir("config");
    let text_of = "[mount]\ncache-mib = 8\nname-delay = 0.5\noptions = 'noatime'\n";
    fs::write(dir.join("50-mounts.toml"), text_of).unwrap();
    fs::write(dir.join("60-more.toml"), "[mount]\ncache-mib = 16\n").unwrap();
    let point = cell.scratch().dir("mount");
    cell.watch().add_mount(&point);
    let addr = cell.addr().to_string();
    let words = ["mount", &addr, point.to_str().unwrap()];
    let slots = |command: &mut Command| {
        let output = run(command);
        assert!(output.status.success(), "{}", text(&output));
        let status = crate::harness::status::status(&point);
        let output = run(&mut ariel(&["umount", point.to_str().unwrap()]));
        assert!(output.status.success(), "{}", text(&output));
        status["cache"]["slots"].as_u64().unwrap()
    };
    assert_eq!(slots(&mut with_files(&words, &dir)), 16 << 8);
    let mut by_variable = with_files(&words, &dir);
    by_variable.env("ARIEL_MOUNT_CACHE_MIB", "32");
    assert_eq!(slots(&mut by_variable), 32 << 8);
    let line = [&words[..], &["--cache-mib", "64"]].concat();
    let mut by_line = with_files(&line, &dir);
    by_line.env("ARIEL_MOUNT_CACHE_MIB", "32");
    assert_eq!(slots(&mut by_line), 64 << 8);
}

#[test]
fn what_counts_is_shown_with_where_it_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    fs::write(&file, "[serve]\ndata = '/srv/a'\n[mount]\ntrusted = true\n").unwrap();
    let mut command = with_files(&["config", "show", "--json"], dir.path());
    command.env("ARIEL_SERVE_GRACE", "3");
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |command: &str, option: &str| {
        let found = &shown["options"][command][option];
        (found["value"].clone(), found["source"].clone())
    };
    let file = file.to_str().unwrap();
    assert_eq!(of("serve", "data"), ("/srv/a".into(), file.into()));
    assert_eq!(of("mount", "trusted"), ("true".into(), file.into()));
    let variable = "environment ARIEL_SERVE_GRACE";
    assert_eq!(of("serve", "grace"), ("3".into(), variable.into()));
    assert_eq!(of("mount", "cache-mib"), ("auto".into(), "default".into()));
}

#[test]
fn a_word_that_is_wrong_names_its_file_and_keeps_nobody_from_looking() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.toml"), "[mount]\nchache-mib = 8\n").unwrap();
    let output = run(&mut with_files(
        &["mount", "127.0.0.1:1", "/mnt"],
        dir.path(),
    ));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let said = text(&output);
    assert!(
        said.contains("a.toml: `ariel mount` has no option chache-mib; it has"),
        "{said}"
    );
    let output = run(&mut with_files(&["status", "/nonexistent"], dir.path()));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = text(&output);
    assert!(
        said.contains("left out:") && said.contains("no mount of this user"),
        "{said}"
    );
}

#[test]
fn a_variable_or_a_directory_that_is_not_there_is_an_error() {
    let refused = |words: &[&str], (name, value): (&str, &str), told: &[&str]| {
        let output = run(ariel(words).env(name, value));
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        for word in told {
            assert!(said.contains(word), "{words:?}: {said} lacks {word}");
        }
    };
    let wrong = ("ARIEL_MOUNT_CHACHE_MIB", "8");
    let told = [wrong.0, "ARIEL_MOUNT_CACHE_MIB meant?"];
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().to_str().unwrap();
    refused(&["mount", "127.0.0.1:1", point], wrong, &told);
    refused(&["up"], wrong, &told);
    refused(&["config", "show", "mount"], wrong, &told);
    // A file is no directory, and none is none; that the usual one is not there says nothing.
    let file = dir.path().join("a.toml");
    fs::write(&file, "").unwrap();
    for named in [file.to_str().unwrap(), "/no/such/dir"] {
        let told = [named, "there is no such directory"];
        refused(
            &["mount", "127.0.0.1:1", point],
            ("ARIEL_CONFIG", named),
            &told,
        );
        refused(&["config", "show"], ("ARIEL_CONFIG", named), &told);
    }
    let mut usual = ariel(&["config", "show"]);
    if !std::path::Path::new("/etc/ariel").exists() {
        usual.env_remove("ARIEL_CONFIG");
    }
    let output = run(&mut usual);
    assert!(output.status.success(), "{}", text(&output));
    // Looking and unmounting go on.
    let output = run(ariel(&["status", "/nonexistent"]).env("ARIEL_STATUS_JSNO", "1"));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = text(&output);
    assert!(
        said.contains("left out:") && said.contains("JSON meant?"),
        "{said}"
    );
}
