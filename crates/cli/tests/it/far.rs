//! Memory that is paged to a cell: unchanged programs under `ariel run`, with a fraction of the
//! memory they want, over restarts of the server and the pager's death; and the C interface.

use crate::harness::cell::{CellOptions, first_line};
use crate::harness::process::{Proc, run_within, shell_ok, system_python, text};
use crate::harness::{Cell, Random, ariel, eventually, has_program, long, skipped};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// The longest that one program may take.
const LIMIT: Duration = Duration::from_secs(300);
/// How long a program may take to see that its pager is gone.
const SEEN: Duration = Duration::from_secs(20);
/// The exit code of a program without its pager.
const NO_PAGER: i32 = 70;
const LIBRARY: &str = "libariel_segment.so";

/// A program that fills memory, then reads and changes all of it again and again, and knows at each
/// word what has to be there. `walk MIB PASSES`: it prints `ready` when it is filled, and `right`
/// at the end.
const WALK: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    size_t pages = (size_t)atoi(argv[1]) * 256;
    int passes = atoi(argv[2]);
    volatile uint64_t *m = malloc(pages * 4096);
    if (argc < 3 || !m)
        return 2;
    for (size_t p = 0; p < pages; p++)
        m[p * 512] = p + 1;
    printf("ready\n");
    fflush(stdout);
    for (int pass = 0; pass < passes; pass++)
        for (size_t i = 0; i < pages; i++) {
            size_t p = i * 7919 % pages;
            if (m[p * 512] != p + 1 + pass) {
                printf("page %zu in pass %d is %llu\n", p, pass, (unsigned long long)m[p * 512]);
                return 3;
            }
            m[p * 512] = p + 2 + pass;
        }
    printf("right\n");
    return 0;
}
"#;

/// Forks, and compares what parent and child have afterwards.
const FORKS: &str = r"
import os, subprocess, sys
size = 12 << 20
memory = bytearray(size)
pages = range(0, size, 4096)
for at in pages:
    memory[at] = at // 4096 % 251
child = os.fork()
if child == 0:
    right = all(memory[at] == at // 4096 % 251 for at in pages)
    for at in range(0, size, 8192):
        memory[at] = 7
    right &= all(memory[at] == (7 if at % 8192 == 0 else at // 4096 % 251) for at in pages)
    os._exit(0 if right else 1)
for at in pages:
    memory[at] = 9
status = os.waitpid(child, 0)[1]
right = all(memory[at] == 9 for at in pages)
said = subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip()
print(status, right, said)
";

/// Where the library is that `ariel run` loads: beside the program. Cargo builds it for the tests
/// among their dependencies.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_ariel"));
        let dir = program.parent().unwrap();
        let (beside, new) = (dir.join(LIBRARY), dir.join(format!(".{LIBRARY}")));
        fs::copy(dir.join("deps").join(LIBRARY), &new).unwrap();
        // Other programs may have the old one loaded.
        fs::rename(new, &beside).unwrap();
        beside
    })
}

/// A cell, where this user may handle page faults; `None`, said loudly, elsewhere.
fn cell(test: &str) -> Option<Cell> {
    let may = rustix::process::geteuid().is_root()
        || Path::new("/proc/sys/vm/unprivileged_userfaultfd").exists();
    if !may || !has_program(test, "gcc") {
        skipped(test, "page faults are not for this user");
        return None;
    }
    library();
    let options = CellOptions {
        limit: if long() { 4 * LIMIT } else { LIMIT },
        ..CellOptions::default()
    };
    Cell::start_with(test, options)
}

fn run(cell: &Cell, memory: &str, program: &[&str]) -> Command {
    let at = format!("{}:/", cell.addr());
    let mut args = vec!["run", "--memory", memory, "--far", "1G", "--at", &at, "--"];
    args.extend(program);
    let mut command = ariel(&args);
    command
        .current_dir(cell.scratch().path())
        .env("LC_ALL", "C");
    command
}

fn walk(cell: &Cell) -> String {
    let dir = cell.scratch().path();
    std::fs::write(dir.join("walk.c"), WALK).unwrap();
    shell_ok(dir, "gcc -O1 walk.c -o walk");
    dir.join("walk").to_str().unwrap().to_owned()
}

#[track_caller]
fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Nothing of a program's memory is left in the tree.
fn assert_nothing_is_left(cell: &Cell) {
    let place = format!("{}:/", cell.addr());
    let mut seen = String::new();
    let gone = eventually(Duration::from_secs(40), || {
        let listed = run_within(&mut ariel(&["ls", "-a", &place]), LIMIT);
        seen = ok(&listed);
        !seen.contains(".segment")
    });
    assert!(gone, "left: {seen}");
}

#[test]
fn unchanged_programs_get_right_results_with_a_quarter_of_their_memory() {
    let name = "unchanged_programs_get_right_results_with_a_quarter_of_their_memory";
    let Some(cell) = cell(name) else { return };
    let dir = cell.scratch().path();
    let mut random = Random(7);
    let lines: Vec<String> = (0..70_000)
        .map(|_| format!("{:016x}\n", random.next()))
        .collect();
    std::fs::write(dir.join("in"), lines.concat()).unwrap();
    let sort = ["sort", "-S", "8M", "--parallel=1", "in", "-o", "out"];
    ok(&run_within(&mut run(&cell, "2M", &sort), LIMIT));
    let mut sorted = lines;
    sorted.sort();
    assert!(std::fs::read(dir.join("out")).unwrap() == sorted.concat().into_bytes());
    let walk = walk(&cell);
    let walked = run_within(&mut run(&cell, "2M", &[&walk, "8", "1"]), LIMIT);
    assert_eq!(ok(&walked), "ready\nright\n");
    let python = [
        "-c",
        "a = [str(i) for i in range(80000)]; a.sort(); print(hash(sum(map(int, a))))",
    ];
    let plain = run_within(Command::new(system_python()).args(python), LIMIT);
    let python = [system_python(), python[0], python[1]];
    let paged = run_within(&mut run(&cell, "2M", &python), LIMIT);
    assert_eq!(ok(&paged), ok(&plain));
    if has_program(name, "sqlite3") {
        let line = "pragma cache_size=-8000; create table t(x); with recursive c(i) as (select 1 \
                    union all select i+1 from c where i<20000) insert into t select i*7919%20000 \
                    from c; create index j on t(x); select count(distinct x), sum(x) from t;";
        let output = run_within(&mut run(&cell, "2M", &["sqlite3", "db", line]), LIMIT);
        assert_eq!(ok(&output), "20000|199990000\n");
    }
    assert_nothing_is_left(&cell);
}

#[test]
fn a_child_has_its_parents_memory_and_changes_its_own() {
    let name = "a_child_has_its_parents_memory_and_changes_its_own";
    let Some(cell) = cell(name) else { return };
    let output = run_within(
        &mut run(&cell, "4M", &[system_python(), "-c", FORKS]),
        LIMIT,
    );
    assert_eq!(ok(&output), "0 True child\n");
    assert_nothing_is_left(&cell);
}

#[test]
fn the_exit_code_is_the_programs_and_failures_name_the_cure() {
    let Some(cell) = cell("the_exit_code_is_the_programs_and_failures_name_the_cure") else {
        return;
    };
    let code = |program: &[&str]| {
        run_within(&mut run(&cell, "4M", program), LIMIT)
            .status
            .code()
    };
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), Some(128 + 15));
    assert_eq!(code(&["./there-is-no-such-program"]), Some(1));
    let said = |args: &[&str]| {
        let output = run_within(ariel(args).env_remove("ARIEL_AT"), LIMIT);
        assert!(!output.status.success(), "{}", text(&output));
        text(&output)
    };
    let at = format!("{}:/there/is/none", cell.addr());
    let wrong = said(&["run", "--memory", "4M", "--at", &at, "--", "true"]);
    assert!(wrong.contains("name a directory that is there"), "{wrong}");
    let nowhere = said(&["run", "--memory", "4M", "--", "true"]);
    assert!(nowhere.contains("--at ADDR:DIR"), "{nowhere}");
    let none = said(&["segment", "stat", "1"]);
    assert!(none.contains("ariel segment list"), "{none}");
}

#[test]
fn a_restart_of_the_server_is_a_pause() {
    let Some(mut cell) = cell("a_restart_of_the_server_is_a_pause") else {
        return;
    };
    let walk = walk(&cell);
    for kill in [false, true] {
        let mut command = run(&cell, "4M", &[&walk, "24", "4"]);
        let out = std::fs::File::create(cell.scratch().join("out")).unwrap();
        let mut program = Proc::spawn(command.stdout(out), Some(cell.watch())).unwrap();
        let said = || std::fs::read_to_string(cell.scratch().join("out")).unwrap_or_default();
        assert!(eventually(LIMIT, || said().contains("ready")));
        if kill {
            cell.kill9();
            cell.start_server();
        } else {
            cell.restart();
        }
        let status = program.wait(LIMIT);
        let said = std::fs::read_to_string(cell.scratch().join("out")).unwrap();
        assert!(
            status.is_some_and(|status| status.success()),
            "{status:?}: {said}"
        );
        assert_eq!(said, "ready\nright\n");
    }
    assert_nothing_is_left(&cell);
}

/// A pager that the test can kill, and its socket.
fn pager(cell: &Cell, place: [&str; 2]) -> (Proc, String) {
    let mut command = ariel(&["__pager", "--memory", "1M", place[0], place[1]]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut pager = Proc::spawn(&mut command, Some(cell.watch())).unwrap();
    let path = first_line(&mut pager, LIMIT).unwrap();
    (pager, path)
}

#[test]
fn a_program_whose_pager_is_killed_ends_and_reads_no_zeros() {
    let name = "a_program_whose_pager_is_killed_ends_and_reads_no_zeros";
    let Some(cell) = cell(name) else { return };
    let walk = walk(&cell);
    let rounds = if long() { 100 } else { 8 };
    let mut random = Random(11);
    for round in 0..rounds {
        let dir = cell.scratch().dir("pages");
        let (mut pager, path) = pager(&cell, ["--local", dir.to_str().unwrap()]);
        let mut command = Command::new(&walk);
        command
            .args(["4", "1000000"])
            .env("LD_PRELOAD", library())
            .env("ARIEL_PAGER", &path)
            .env("ARIEL_FAR", (64 << 20).to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut program = Proc::spawn(&mut command, Some(cell.watch())).unwrap();
        let mut errors = program.child().stderr.take().unwrap();
        let first = first_line(&mut program, LIMIT);
        assert_eq!(first.as_deref(), Ok("ready"), "round {round}");
        // Anywhere in the middle: the program does nothing but fault from here on.
        (0..random.below(2000)).for_each(|_| std::thread::yield_now());
        pager.kill9();
        let status = program.wait(SEEN);
        let code = status.and_then(|status| status.code());
        assert_eq!(code, Some(NO_PAGER), "round {round}: {status:?}");
        let mut said = String::new();
        errors.read_to_string(&mut said).unwrap();
        assert!(said.contains("the pager of its memory is gone"), "{said}");
    }
    // Once more with files of the cell: the server takes them away.
    let at = format!("{}:/", cell.addr());
    let (mut pager, path) = pager(&cell, ["--at", &at]);
    let mut command = Command::new(&walk);
    command.args(["4", "1000000"]).env("LD_PRELOAD", library());
    command.env("ARIEL_PAGER", &path).stdout(Stdio::piped());
    let mut program = Proc::spawn(&mut command, Some(cell.watch())).unwrap();
    assert_eq!(first_line(&mut program, LIMIT).as_deref(), Ok("ready"));
    pager.kill9();
    let status = program.wait(SEEN);
    assert_eq!(status.and_then(|status| status.code()), Some(NO_PAGER));
    assert_nothing_is_left(&cell);
}

#[test]
fn segments_are_listed_while_a_program_runs() {
    let Some(cell) = cell("segments_are_listed_while_a_program_runs") else {
        return;
    };
    let walk = walk(&cell);
    let mut command = run(&cell, "4M", &[&walk, "16", "1000000"]);
    command.stdout(Stdio::piped());
    let mut program = Proc::spawn(&mut command, Some(cell.watch())).unwrap();
    assert_eq!(first_line(&mut program, LIMIT).as_deref(), Ok("ready"));
    let number = program.child().id();
    let listed = ok(&run_within(
        &mut ariel(&["segment", "list", "--json"]),
        LIMIT,
    ));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let mine = |line: &&serde_json::Value| line["pager"] == number;
    let line = listed.as_array().unwrap().iter().find(mine);
    let line = line.unwrap_or_else(|| panic!("{listed}"));
    assert_eq!(line["bytes"], 1_u64 << 30);
    assert!(line["local_bytes"].as_u64().unwrap() <= 4 << 20, "{line}");
    assert!(line["far_bytes"].as_u64().unwrap() >= 8 << 20, "{line}");
    let stat = ["segment", "stat", &number.to_string(), "--json"];
    let stat = ok(&run_within(&mut ariel(&stat), LIMIT));
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert!(stat["fetched"].as_u64().unwrap() > 0, "{stat}");
    program.signal(rustix::process::Signal::TERM);
    assert_eq!(program.wait(LIMIT).and_then(|s| s.code()), Some(128 + 15));
}

#[test]
fn a_c_program_saves_a_snapshot_while_it_goes_on() {
    let name = "a_c_program_saves_a_snapshot_while_it_goes_on";
    let Some(cell) = cell(name) else { return };
    let dir = cell.scratch().path();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/examples/kv.c");
    let libraries = library().parent().unwrap();
    let line = format!(
        "gcc -Wall -Werror -O2 {} -o kv -L{} -lariel_segment -lpthread",
        source.display(),
        libraries.display()
    );
    shell_ok(dir, &line);
    let mut kv = Command::new(dir.join("kv"));
    kv.args([&format!("{}:/", cell.addr()), "8", "saved"])
        .current_dir(dir)
        .env("LD_LIBRARY_PATH", libraries)
        .env("ARIEL", env!("CARGO_BIN_EXE_ariel"));
    let output = run_within(&mut kv, LIMIT);
    assert!(
        ok(&output).contains("while the snapshot is saved"),
        "{}",
        text(&output)
    );
    // The table began as its own indices, and 20,000 sets before the fork added one each.
    let saved = std::fs::read(dir.join("saved")).unwrap();
    assert_eq!(saved.len(), 8 << 20);
    let words = saved
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    let added: u64 = words.zip(0..).map(|(word, at): (u64, u64)| word - at).sum();
    assert_eq!(added, 20_000);
    assert_nothing_is_left(&cell);
}
