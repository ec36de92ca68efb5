//! A C project is built on a volume that moves to and fro meanwhile: the build succeeds, and its
//! files equal those of a build on a local disk.

use super::{move_to, pause_ms, with_a_volume};
use crate::harness::machines::Machines;
use crate::harness::process::run_within;
use crate::harness::{eventually, has_program, long, say, text};
use crate::servers::can_have_servers;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Source files in each directory.
const DIRECTORY: usize = 20;
/// Functions in each of them.
const FUNCTIONS: usize = 20;
/// The longest that a move may make programs wait, where no other test runs.
const PAUSE_MS: u64 = 1000;
/// Longer than a build takes.
const LIMIT: Duration = Duration::from_secs(600);

/// Moves in a row during one build.
fn moves() -> usize {
    if long() { 20 } else { 3 }
}

/// Source files.
fn files() -> usize {
    if long() { 300 } else { 60 }
}

/// Each command is said before it is run.
const MAKEFILE: &str = "\
OBJECTS := $(patsubst %.c,out/%.o,$(wildcard */*.c))
out/prog: $(OBJECTS)
\t$(CC) -o $@ $^
out/%.o: %.c
\t@mkdir -p $(@D)
\t$(CC) -O1 -MMD -Wall -Werror -c -o $@ $<
-include $(OBJECTS:.o=.d)
";

/// The sources: a header for each directory, one for all, and a program that calls everything.
fn write_sources(dir: &Path) {
    let mut main = String::from("#include \"../parts.h\"\nint main(void) {\n  long sum = 0;\n");
    let mut all = String::from(
        "#ifndef PARTS_H\n#define PARTS_H\n#include <stdio.h>\n#include <stdlib.h>\n\
         #include <string.h>\n#include <stdint.h>\n#include <sys/stat.h>\n",
    );
    for file in 0..files() {
        let of = dir.join(format!("d{}", file / DIRECTORY));
        if file % DIRECTORY == 0 {
            fs::create_dir_all(&of).unwrap();
            let step = format!("#define STEP {file}L\n");
            fs::write(of.join("step.h"), step).unwrap();
        }
        let mut body = String::from("#include \"../parts.h\"\n#include \"step.h\"\n");
        for n in 0..FUNCTIONS {
            writeln!(
                body,
                "static long f{n}(long x) {{\n  char text[64];\n  long sum = STEP;\n  \
                 for (long i = 0; i < x % {}; i++) {{\n    \
                 snprintf(text, sizeof text, \"%ld %d\", i, {n});\n    \
                 sum += (long)strlen(text) * {n};\n  }}\n  return sum;\n}}",
                n + 3
            )
            .unwrap();
        }
        writeln!(body, "long part{file}(long x) {{\n  return 0").unwrap();
        (0..FUNCTIONS).for_each(|n| writeln!(body, "    + f{n}(x + {n})").unwrap());
        body.push_str("    ;\n}\n");
        fs::write(of.join(format!("part{file}.c")), body).unwrap();
        writeln!(all, "long part{file}(long);").unwrap();
        writeln!(main, "  sum += part{file}({file});").unwrap();
    }
    all.push_str("#endif\n");
    main.push_str("  printf(\"%ld\\n\", sum);\n  return 0;\n}\n");
    fs::create_dir_all(dir.join("main")).unwrap();
    fs::write(dir.join("main/main.c"), main).unwrap();
    fs::write(dir.join("parts.h"), all).unwrap();
    fs::write(dir.join("Makefile"), MAKEFILE).unwrap();
}

/// Begins a build on the volume. Its exit status is in the file `status` when it is over, and its
/// words are in the file `told`.
fn begin_build(m: &mut Machines) {
    m.must(
        "build-1",
        "cp -r source /mnt/work/project; mkdir /mnt/work/tmp",
    );
    let make = "TMPDIR=/mnt/work/tmp make -j2 -C /mnt/work/project > told 2>&1; \
                echo $? > status.new; mv status.new status";
    let line = format!("setsid sh -c '{make}' > /dev/null 2>&1 < /dev/null &");
    m.must("build-1", &line);
}

/// The moves, evenly over the build: each begins when so many more files are compiled. How long
/// nobody was served in each, ms.
fn move_meanwhile(m: &mut Machines) -> Vec<u64> {
    let (told, status) = (m.path().join("told"), m.path().join("status"));
    let compiled = || {
        let told = fs::read_to_string(&told).unwrap_or_default();
        told.matches(" -c -o ").count()
    };
    let mut pauses_ms = Vec::new();
    for round in 1..=moves() {
        let enough = files() * round / (moves() + 1);
        let begins = eventually(LIMIT, || compiled() >= enough || status.exists());
        assert!(begins && !status.exists(), "the build stands or has ended");
        let to = ["server-1", "server-2"][round % 2];
        let told = move_to(m, to);
        assert!(told.contains(&format!("work is on {to} now")), "{told}");
        pauses_ms.push(pause_ms(&told));
    }
    assert!(!status.exists(), "the build was over before the last move");
    pauses_ms
}

#[test]
fn a_project_is_built_while_its_volume_moves_to_and_fro() {
    let programs = ["make", "gcc"];
    if !can_have_servers("moving-build")
        || !programs
            .iter()
            .all(|name| has_program("moving-build", name))
    {
        return;
    }
    let mut machines = with_a_volume();
    let m = &mut machines;
    write_sources(&m.path().join("source"));
    let begin = Instant::now();
    let local = "cp -r source local; make -s -j2 -C local";
    let output = run_within(&mut m.command("build-1", local), LIMIT);
    assert!(output.status.success(), "{}", text(&output));
    let locally = begin.elapsed();
    let begin = Instant::now();
    begin_build(m);
    let pauses_ms = move_meanwhile(m);
    let status = m.path().join("status");
    let ended = eventually(LIMIT, || status.exists());
    say(&format!(
        "moving: {} moves during a build of {} files that took {:?} (on a local disk {locally:?}); \
         pauses {pauses_ms:?} ms",
        moves(),
        files(),
        begin.elapsed()
    ));
    let told = fs::read_to_string(m.path().join("told")).unwrap();
    assert!(ended, "the build goes on: {told}");
    assert_eq!(fs::read_to_string(&status).unwrap(), "0\n", "{told}");
    assert!(!told.contains("warning"), "{told}");
    let longest_ms = pauses_ms.iter().copied().max().unwrap_or(0);
    assert!(!long() || longest_ms <= PAUSE_MS, "{pauses_ms:?} ms");
    is_as_built_locally(m);
}

/// The files equal those that were built on a local disk, as the other client sees them through the
/// mount point, and no source seems to be newer than its object.
fn is_as_built_locally(m: &mut Machines) {
    m.must("build-1", "diff -r local /mnt/1/work/project");
    let expected = m.must("build-1", "local/out/prog");
    let there = m.must("build-1", "/mnt/1/work/project/out/prog");
    assert_eq!(there, expected);
    m.must("build-1", "make -q -C /mnt/work/project");
    assert_eq!(m.must("build-1", "ls -A /mnt/work/tmp"), "");
}
