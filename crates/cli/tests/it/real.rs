//! Real programs on two mounts: git, tar, a C build, sqlite.

use crate::harness::process::shell_ok;
use crate::harness::{Pair, Scratch, has_program};
use std::fmt::Write;
use std::fs;
use std::path::Path;

#[test]
fn git_works_across_mounts() {
    if !has_program("git", "git") {
        return;
    }
    let Some(pair) = Pair::start("git") else {
        return;
    };
    let (a, b) = (pair.a.path(), pair.b.path());
    let git = "git -c user.name=Test -c user.email=test@example.org -c safe.directory='*' \
               -c init.defaultBranch=main";
    shell_ok(a, &format!("mkdir repo && cd repo && {git} init -q"));
    for round in 0..10 {
        let (one, other) = pair.sides(round);
        let work = format!(
            "cd repo && for n in $(seq 30); do echo {round} $n > f{round}-$n; done && \
             echo {round} >> common && {git} add -A && {git} commit -q -m 'round {round}'"
        );
        shell_ok(one, &work);
        let status = shell_ok(other, &format!("cd repo && {git} status --porcelain"));
        assert_eq!(status, "", "round {round}: not clean on the other mount");
        let count = shell_ok(other, &format!("cd repo && {git} rev-list --count HEAD"));
        assert_eq!(
            count.trim(),
            (round + 1).to_string(),
            "round {round}: commits"
        );
    }
    shell_ok(
        b,
        &format!("{git} clone -q repo clone && cd clone && {git} fsck --full"),
    );
    let status = shell_ok(
        a,
        &format!("cd clone && {git} status --porcelain && {git} gc -q"),
    );
    assert_eq!(status, "");
    shell_ok(
        b,
        &format!("cd clone && {git} fsck --full && diff -r ../repo . --exclude=.git"),
    );
}

/// A tree with everything that tar keeps.
const TREE: &str = "mkdir -p t/a/b t/empty && cd t && for n in $(seq 60); do seq $n > a/f$n; done \
    && ln -s ../f1 a/b/link && ln a/f1 a/b/hard && mkfifo a/fifo && chmod 4711 a/f2 \
    && chmod 2750 a/b && chown 12:34 a/f3 && cd .. \
    && find t -exec touch -h -d '2020-02-02 02:02:02.123456789' {} +";
const TAR: &str = "tar --sort=name --format=pax --pax-option=delete=atime,delete=ctime -cf - t \
    | sha256sum";

#[test]
fn tar_is_the_same_through_both_mounts_and_locally() {
    let Some(pair) = Pair::start("tar") else {
        return;
    };
    let plain = Scratch::new("tar-plain");
    shell_ok(plain.path(), TREE);
    shell_ok(pair.a.path(), TREE);
    let sums = [plain.path(), pair.a.path(), pair.b.path()].map(|dir| shell_ok(dir, TAR));
    assert_eq!(
        sums[1], sums[0],
        "the mount that made the tree, the local file system"
    );
    assert_eq!(sums[2], sums[0], "the other mount, the local file system");
    // Unpacked by the other mount it is the same again.
    shell_ok(plain.path(), "tar --format=pax -cf t.tar t");
    fs::copy(plain.join("t.tar"), pair.b.join("t.tar")).unwrap();
    shell_ok(pair.b.path(), "rm -r t && tar -xpf t.tar");
    let list = "find t -printf '%p %M %U %G %s %T@ %l\\n' | grep -v '^t[^ ]* d' | sort";
    assert_eq!(shell_ok(pair.a.path(), list), shell_ok(plain.path(), list));
}

/// A C program of many files and a Makefile with true dependencies.
pub fn write_sources(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let (mut main, mut header) = (String::new(), String::new());
    main.push_str("#include <stdio.h>\n#include \"parts.h\"\nint main(void) {\n  long s = 0;\n");
    for n in 0..30 {
        let body =
            format!("#include \"parts.h\"\nlong part{n}(long x) {{ return x * {n} + 1; }}\n");
        fs::write(dir.join(format!("part{n}.c")), body).unwrap();
        writeln!(header, "long part{n}(long);").unwrap();
        writeln!(main, "  s += part{n}({n});").unwrap();
    }
    main.push_str("  printf(\"%ld\\n\", s);\n  return 0;\n}\n");
    fs::write(dir.join("main.c"), main).unwrap();
    fs::write(dir.join("parts.h"), header).unwrap();
    let makefile = "OBJ = $(patsubst %.c,%.o,$(wildcard *.c))\n\
        prog: libparts.a main.o\n\t$(CC) -o $@ main.o libparts.a\n\
        libparts.a: $(filter-out main.o,$(OBJ))\n\tar rcs $@ $^\n\
        %.o: %.c parts.h\n\t$(CC) -O1 -c -o $@ $<\n";
    fs::write(dir.join("Makefile"), makefile).unwrap();
}

#[test]
fn a_c_program_is_built_through_one_mount_and_runs_from_the_other() {
    if !has_program("build", "gcc") || !has_program("build", "make") {
        return;
    }
    let Some(pair) = Pair::start("build") else {
        return;
    };
    write_sources(&pair.a.join("src"));
    shell_ok(pair.b.path(), "cd src && make -s -j2 prog");
    let expected: i64 = (0..30).map(|n| n * n + 1).sum();
    let told = shell_ok(pair.a.path(), "src/prog");
    assert_eq!(told.trim(), expected.to_string());
    let nothing = shell_ok(pair.a.path(), "cd src && make -j2 prog");
    assert!(
        nothing.contains("up to date"),
        "built again without a change: {nothing}"
    );
    // A change on one side, built by both sides in turn.
    for round in 1..5 {
        let (one, other) = pair.sides(round);
        let body = format!("#include \"parts.h\"\nlong part0(long x) {{ return {round} + x; }}\n");
        fs::write(one.join("src/part0.c"), body).unwrap();
        shell_ok(other, "cd src && make -s -j2 prog");
        let told = shell_ok(one, "src/prog");
        assert_eq!(
            told.trim(),
            (expected - 1 + round as i64).to_string(),
            "round {round}"
        );
    }
    shell_ok(pair.b.path(), "rm -r src && test ! -e src");
    assert!(!pair.a.join("src").exists());
}

/// A statement or two on a database, by the sqlite3 program or else by Python's module.
fn sql(dir: &Path, statements: &str) -> String {
    let script = format!(
        "if command -v sqlite3 > /dev/null; then sqlite3 db.sqlite \"{statements}\"; else \
         python3 -c \"import sqlite3, sys; c = sqlite3.connect('db.sqlite'); \
         [print('|'.join(map(str, row))) for s in sys.argv[1].split(';') if s.strip() \
         for row in c.execute(s)]; c.commit()\" \"{statements}\"; fi"
    );
    shell_ok(dir, &script)
}

#[test]
fn sqlite_is_written_alternately_from_both_mounts() {
    if !has_program("sqlite", "python3") {
        return;
    }
    let Some(pair) = Pair::start("sqlite") else {
        return;
    };
    sql(
        pair.a.path(),
        "create table t (n integer primary key, side text, filler text);",
    );
    for round in 0..40 {
        let (one, other) = pair.sides(round);
        let filler = "x".repeat(round * 50 % 3_000);
        sql(
            one,
            &format!("insert into t values ({round}, 'side', '{filler}');"),
        );
        let seen = sql(other, "select count(*), max(n) from t;");
        assert_eq!(
            seen.trim(),
            format!("{}|{round}", round + 1),
            "round {round}"
        );
    }
    for mount in [&pair.a, &pair.b] {
        assert_eq!(sql(mount.path(), "pragma integrity_check;").trim(), "ok");
    }
}
