//! `ariel bench` on a cell of its own.

use crate::harness::{Scratch, ariel, real_system, run, text};

#[test]
fn a_bench_measures_its_own_cell_and_leaves_nothing() {
    if !real_system("bench") {
        return;
    }
    let scratch = Scratch::new("bench");
    let dir = scratch.path();
    let json = dir.join("figures.json");
    let mut command = ariel(&[
        "bench",
        "--rounds",
        "2",
        "--files",
        "40",
        "--large-mib",
        "8",
    ]);
    let project = dir.join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("hello.c"), "int main(void) { return 0; }\n").unwrap();
    command
        .arg("--project")
        .arg(&project)
        .args(["--build", "gcc -o hello hello.c && ./hello"]);
    for name in [
        "stat",
        "open-silent",
        "getattr",
        "first-touch",
        "cold-read",
        "create",
        "andrew",
        "idle",
        "extract",
        "messages",
        "list-other",
        "git-clone",
        "build",
        "apply",
    ] {
        command.args(["--only", name]);
    }
    let output = run(command.arg("--local").arg(dir).arg("--json").arg(&json));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("first touch after mount"), "{table}");
    let figures = std::fs::read_to_string(&json).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert!(
        figures["not_taken"].as_array().unwrap().is_empty(),
        "{figures}"
    );
    // `create` has five figures, `git-clone` three; `getattr`, `andrew`, `idle`, `extract` and
    // `apply` two.
    let lines = figures["figures"].as_array().unwrap();
    assert_eq!(lines.len(), 7 + 5 * 2 + 3 + 5, "{figures}");
    for line in lines {
        let values = line["mount"].as_array().unwrap();
        assert_eq!(values.len(), 2, "{line}");
        assert!(
            values.iter().all(|value| value.as_f64() > Some(0.0)),
            "{line}"
        );
    }
    std::fs::remove_file(json).unwrap();
    std::fs::remove_dir_all(project).unwrap();
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_tree_with_snapshots_is_measured_beside_one_without() {
    if !real_system("bench-snapshots") {
        return;
    }
    let scratch = Scratch::new("bench-snapshots");
    let json = scratch.join("figures.json");
    let words = "bench --cost-of-snapshots 3 --rounds 1 --files 40 --large-mib 8 --only create";
    let words: Vec<&str> = words.split(' ').collect();
    let mut command = ariel(&words);
    command.arg("--local").arg(scratch.path());
    let output = run(command.arg("--json").arg(&json));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let figures = std::fs::read_to_string(&json).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["beside"], "none");
    for line in figures["figures"].as_array().unwrap() {
        for side in ["local", "mount"] {
            let values = line[side].as_array().unwrap();
            assert!(matches!(&values[..], [value] if value.as_f64() > Some(0.0)));
        }
    }
}
