//! Users by the names that the cell gives them, on machines that have no such users.

use crate::acl::{ANN, BOB, Person, acl, closed, group, start, word};
use crate::harness::process::{run, text};
use crate::harness::{Pair, ariel};

/// Of nobody who logs in.
const KEY: &str = "ssh-ed25519 \
                   AAAAC3NzaC1lZDI1NTE5AAAAIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH";

/// A user of the cell, whom this machine does not know.
pub fn add_user(pair: &Pair, name: &str, uid: u32) {
    let key = pair.cell.scratch().join("key.pub");
    std::fs::write(&key, KEY).unwrap();
    let (uid, data) = (uid.to_string(), pair.cell.data());
    let mut command = ariel(&["user", "add", name, "--uid", &uid, "--ssh-key"]);
    command.arg(key).arg("--data").arg(data);
    let done = run(&mut command);
    assert!(done.status.success(), "{}", text(&done));
}

/// A command that must be refused; why.
pub fn refused(words: &[&str]) -> String {
    let done = run(&mut ariel(words));
    assert!(!done.status.success(), "{words:?}: {}", text(&done));
    String::from_utf8(done.stderr).unwrap()
}

/// Two mounts of a cell with two users.
fn peopled(name: &str) -> Option<Pair> {
    let pair = start(name).filter(|pair| !pair.cell.is_insecure())?;
    add_user(&pair, "it-ann", ANN);
    add_user(&pair, "it-bob", BOB);
    Some(pair)
}

#[test]
fn lists_and_groups_take_and_show_the_names_of_the_cells_users() {
    let Some(pair) = peopled("cell-names") else {
        return;
    };
    let (a, b) = (pair.a.path(), pair.b.path());
    closed(&a.join("d"));
    let d = b.join("d");
    acl(&["set", word(&a.join("d")), "it-ann", "read", "4711", "write"]);
    let shown = acl(&["get", word(&d)]);
    assert!(
        shown.contains("\n  it-ann rl\n") && shown.contains("4711 rlidwk"),
        "{shown}"
    );
    assert!(Person::at(b, ANN).can("read x < d/f"), "it is her number");
    let shown = acl(&["get", "--json", word(&d)]);
    assert!(shown.contains("\"it-ann\""), "{shown}");
    let (mount, data) = (word(b), pair.cell.data());
    let said = refused(&["acl", "set", word(&d), "it-dora", "read"]);
    let cure = format!("`ariel user list --mount {mount}`");
    assert!(said.contains("it-dora") && said.contains(&cure), "{said}");
    group(&["create", "crew"], a);
    group(&["add", "crew", "it-ann", &BOB.to_string(), "4711"], a);
    let members = "crew of the administrators:\n  4711\n  it-ann\n  it-bob\n";
    assert_eq!(group(&["show", "crew"], b), members);
    let json: serde_json::Value =
        serde_json::from_str(&group(&["show", "crew", "--json"], b)).unwrap();
    assert_eq!(
        json["member_names"],
        serde_json::json!(["4711", "it-ann", "it-bob"])
    );
    let by_data = run(ariel(&["group", "show", "crew", "--data"]).arg(&data));
    assert_eq!(String::from_utf8_lossy(&by_data.stdout), members);
    group(&["chown", "crew", "it-ann"], a);
    assert!(group(&["list"], b).contains("it-ann"));
    // The cure that is named works for everybody for whom the machine speaks.
    let list = format!("{} user list --mount .", env!("CARGO_BIN_EXE_ariel"));
    assert!(Person::at(b, BOB).can(&format!("{list} | grep 'it-ann *{ANN}'")));
}

#[test]
fn all_members_of_a_command_are_tried_and_those_that_failed_are_named() {
    let Some(pair) = peopled("cell-names-members") else {
        return;
    };
    let mount = word(pair.a.path());
    group(&["create", "crew"], pair.a.path());
    let all = ["it-dora", "it-ann", "it-carl", "it-bob"];
    let words = [&["group", "add", "crew", "--mount", mount][..], &all].concat();
    let said = refused(&words);
    assert!(
        said.contains("2 of 4") && said.contains("it-dora: "),
        "{said}"
    );
    assert!(
        said.contains("it-carl: ") && !said.contains("it-ann"),
        "{said}"
    );
    assert!(said.contains("ariel user list --mount DIR"), "{said}");
    let members = "crew of the administrators:\n  it-ann\n  it-bob\n";
    assert_eq!(group(&["show", "crew"], pair.a.path()), members);
}

#[test]
fn root_makes_no_group_of_a_user_whom_the_cell_does_not_have() {
    let Some(pair) = peopled("cell-names-prefix") else {
        return;
    };
    let mount = word(pair.a.path());
    let said = refused(&["group", "create", "it-dora:friends", "--mount", mount]);
    assert!(said.contains("no user it-dora"), "{said}");
    let create = ["group", "create", "it-dora:friends", "--data"];
    let done = run(ariel(&create).arg(pair.cell.data()));
    assert!(text(&done).contains("no user it-dora"), "{}", text(&done));
    group(&["create", "it-ann:friends"], pair.a.path());
    let said = refused(&[
        "group",
        "rename",
        "it-ann:friends",
        "it-dora:x",
        "--mount",
        mount,
    ]);
    assert!(said.contains("no user it-dora"), "{said}");
}
