//! Demanding programs on mounts, judged by what the same programs do on the local file system: git
//! with thousands of files, rsync, a compiler with a cache of what it has compiled.

use crate::harness::process::{shell, shell_ok};
use crate::harness::status::{server_received, since};
use crate::harness::{Pair, Scratch, has_program, local, long, text};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Git that asks nobody's settings, and makes the same commits at any time: their names are then a
/// sum over everything that is in them.
const GIT: &str = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 \
    GIT_AUTHOR_NAME=T GIT_AUTHOR_EMAIL=t@example.org GIT_COMMITTER_NAME=T \
    GIT_COMMITTER_EMAIL=t@example.org GIT_AUTHOR_DATE='1700000000 +0000' \
    GIT_COMMITTER_DATE='1700000000 +0000' && git() { command git -c safe.directory='*' \
    -c init.defaultBranch=main -c gc.auto=0 -c advice.detachedHead=false \"$@\"; }";
/// A repository of 2,400 files with a second branch that is `$commits` ahead and as many behind.
const HISTORY: &str = "mkdir repo && cd repo && git init -q && for d in $(seq 60); do mkdir d$d; \
    for f in $(seq 40); do echo \"$d $f\" > d$d/f$f; done; done && git add -A && \
    git commit -q -m first && git branch side && for n in $(seq $commits); do \
    for d in $(seq 1 $step 60); do echo \"main $n\" >> d$d/f$n; done; \
    git commit -q -a -m \"main $n\"; done && git checkout -q side && \
    for n in $(seq $commits); do for d in $(seq 1 $step 60); do \
    echo \"side $n\" >> d$d/f$((20 + n)); done; git mv d$n/f40 d$n/moved; \
    git commit -q -a -m \"side $n\"; done";
/// The steps that follow it, each on the other mount than the one before.
const LATER: [&str; 6] = [
    "git clone -q --no-local repo clone && cd clone && git fsck --full 2>&1",
    "cd repo && git gc -q && git fsck --full && git status --porcelain",
    "cd repo && git rebase -q main && git status --porcelain && git log --format=%H -n 1",
    "cd clone && git fetch -q && git checkout -q -B side origin/side && git gc -q --prune=now && \
     git status --porcelain && git log --format='%H %s' -n 30",
    "git clone -q repo local && cd local && git checkout -q main && git merge -q --ff-only \
     origin/side && find . -name .git -prune -o -type f -print | sort | \
     xargs sha256sum | sha256sum",
    "cd local && git reset -q --hard HEAD~$commits && git clean -qfdx && git status --porcelain && \
     git rev-parse 'HEAD^{tree}' && git ls-files | wc -l",
];

#[test]
fn git_clones_packs_and_rebases_thousands_of_files() {
    if !has_program("git-large", "git") {
        return;
    }
    let Some(pair) = Pair::start("git-large") else {
        return;
    };
    let plain = Scratch::new("git-large-plain");
    let size = if long() {
        "commits=12 step=1"
    } else {
        "commits=5 step=3"
    };
    let git = |dir: &Path, line: &str| shell_ok(dir, &format!("{size}; {GIT} && {line}"));
    git(plain.path(), HISTORY);
    git(pair.a.path(), HISTORY);
    for (n, line) in LATER.iter().enumerate() {
        let expected = git(plain.path(), line);
        let side = pair.sides(n + 1).0;
        assert_eq!(git(side, line), expected, "{line}");
    }
    let files = "cd repo && git ls-files | wc -l";
    assert_eq!(git(pair.b.path(), files).trim(), "2400");
}

/// A tree with everything that rsync is told to keep below: 600 files in 20 directories, links of
/// both kinds, holes, lists, attributes, times.
const TREE: &str = "mkdir -p from && cd from && for d in $(seq 20); do mkdir d$d; \
    for f in $(seq 30); do seq $d $((d * f)) > d$d/f$f; done; done && \
    for d in $(seq 20); do ln d$d/f1 d$d/hard; ln -s f2 d$d/soft; done && \
    truncate -s 3000000 sparse && printf end >> sparse && setfacl -m u:1:rw,g:2:r d1/f3 && \
    setfacl -m d:u:3:rx d2 && setfattr -n user.x -v one d3/f1 && chmod 2750 d4 && \
    chown 12:34 d5/f5 && mkfifo pipe && \
    find . -exec touch -h -d '2020-02-02 02:02:02.123456789' {} +";
const RSYNC: &str = "rsync -aHAXS --delete --no-inc-recursive";

#[test]
fn rsync_copies_nothing_the_second_time() {
    for program in ["rsync", "setfacl", "setfattr"] {
        if !has_program("rsync", program) {
            return;
        }
    }
    let Some(pair) = Pair::start("rsync") else {
        return;
    };
    let plain = Scratch::new("rsync-plain");
    shell_ok(plain.path(), TREE);
    let from = plain.join("from");
    let copy = |dir: &Path, more: &str| {
        let line = format!(
            "{RSYNC} {more} --out-format='%i %n' {}/ to/",
            from.display()
        );
        shell_ok(dir, &line)
    };
    let first = copy(pair.a.path(), "");
    assert!(first.lines().count() > 650, "{first}");
    // Changes that are kept at the one mount are reported now.
    shell_ok(pair.a.path(), "sync .");
    // By names, sizes and times; then by what is in the files.
    for (dir, how) in [
        (pair.b.path(), ""),
        (pair.a.path(), ""),
        (pair.b.path(), "-c"),
    ] {
        let before = (!local()).then(|| server_received(pair.cell.addr()));
        assert_eq!(copy(dir, how), "", "copied once more, {how}");
        if let Some(before) = before {
            let asked = since(&before, &server_received(pair.cell.addr()));
            let changes = [
                "Make", "Link", "Rename", "Unlink", "SetAttr", "SetXattr", "Requests",
            ];
            assert_eq!(changes.map(|kind| asked.get(kind)), [None; 7], "{asked:?}");
        }
    }
    // One file is changed elsewhere without a change of its size: it, and nothing else, is copied.
    shell_ok(
        pair.b.path(),
        "printf X | dd of=to/d7/f9 conv=notrunc status=none",
    );
    assert_eq!(copy(pair.a.path(), "").trim(), ">f..t...... d7/f9");
    assert_eq!(copy(pair.b.path(), "-c"), "");
    // From the mount to the mount: read through one, written through the other.
    let inside = format!("{RSYNC} {}/to/ twin/", pair.a.path().display());
    shell_ok(pair.b.path(), &inside);
    assert_eq!(shell_ok(pair.b.path(), &format!("{inside} -ci")), "");
    let back = format!("{RSYNC} -ci {}/twin/ from/", pair.a.path().display());
    assert_eq!(shell_ok(plain.path(), &back), "", "what came back");
}

/// C files, each with much to do for the compiler compared with what a cache has to do, and a
/// Makefile.
fn write_program(dir: &Path, files: usize) {
    fs::create_dir(dir).unwrap();
    let (mut header, mut main) = (String::new(), String::new());
    main.push_str("#include <stdio.h>\n#include \"parts.h\"\nint main(void) {\n  long s = 0;\n");
    for n in 0..files {
        writeln!(header, "long part{n}(long);").unwrap();
        writeln!(main, "  s += part{n}({n});").unwrap();
        let body = format!("long part{n}(long x) {{ return x * {n} + 1; }}\n");
        let text = format!("#include <stdlib.h>\n#include \"parts.h\"\n{body}");
        fs::write(dir.join(format!("part{n}.c")), text).unwrap();
    }
    main.push_str("  printf(\"%ld\\n\", s);\n  return 0;\n}\n");
    fs::write(dir.join("main.c"), main).unwrap();
    fs::write(dir.join("parts.h"), header).unwrap();
    let makefile = "OBJ = $(patsubst %.c,%.o,$(wildcard *.c))\n\
        prog: $(OBJ)\n\tgcc -o $@ $^\n%.o: %.c parts.h\n\tccache gcc -O1 -c -o $@ $<\n";
    fs::write(dir.join("Makefile"), makefile).unwrap();
}

/// The counts of a cache of compiled files.
fn ccache_counts(dir: &Path, environment: &str) -> BTreeMap<String, u64> {
    let told = shell_ok(dir, &format!("{environment} ccache --print-stats"));
    let pairs = told.lines().filter_map(|line| line.split_once('\t'));
    pairs
        .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
        .collect()
}

#[test]
fn a_compilers_cache_is_shared_by_two_mounts() {
    const FILES: usize = 40;
    for program in ["ccache", "gcc", "make"] {
        if !has_program("ccache", program) {
            return;
        }
    }
    let Some(pair) = Pair::start("ccache") else {
        return;
    };
    // The cache is named by a relative path, so that each build finds it through its own mount.
    // The cache keeps the compiler's output although the header was written a moment ago.
    let environment = "CCACHE_DIR=$PWD/../cache CCACHE_NOHASHDIR=1 CCACHE_CONFIGPATH=/dev/null \
        CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime";
    for name in ["one", "two", "three"] {
        write_program(&pair.a.join(name), FILES);
    }
    let compiled = FILES as u64 + 1;
    let build = |dir: &Path| shell(dir, &format!("{environment} make -s -j2 prog"));
    let built = |dir: &Path| {
        let output = build(dir);
        assert!(output.status.success(), "{}", text(&output));
    };
    built(&pair.a.join("one"));
    let counts = ccache_counts(&pair.a.join("one"), environment);
    assert_eq!(counts["cache_miss"], compiled, "{counts:?}");
    // Two builds at once through both mounts find everything.
    std::thread::scope(|scope| {
        scope.spawn(|| built(&pair.b.join("two")));
        scope.spawn(|| built(&pair.a.join("three")));
    });
    let counts = ccache_counts(&pair.b.join("two"), environment);
    assert_eq!(counts["cache_miss"], compiled, "{counts:?}");
    let hits = counts["direct_cache_hit"] + counts["preprocessed_cache_hit"];
    assert_eq!(hits, 2 * compiled, "{counts:?}");
    let expected: usize = (0..FILES).map(|n| n * n + 1).sum();
    for (mount, name) in [(&pair.a, "two"), (&pair.b, "three"), (&pair.b, "one")] {
        let told = shell_ok(&mount.join(name), "./prog");
        assert_eq!(told.trim(), expected.to_string(), "{name}");
    }
    shell_ok(
        pair.b.path(),
        "cmp one/part7.o two/part7.o && cmp one/part7.o three/part7.o",
    );
}
