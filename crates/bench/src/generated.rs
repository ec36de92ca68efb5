//! Trees and C sources that are made from numbers: the same ones on every machine.

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::fmt::Write;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// So many files are in a directory, on the average.
const FILES_PER_DIRECTORY: u32 = 75;
/// So many directories are in one that has any.
const BRANCHES: u32 = 4;
/// Every so many-th name is a symbolic link to the file before it in its directory.
const LINK_EVERY: u32 = 50;
/// When the first file was changed, s since 1970.
const FIRST_CHANGE: i64 = 1_400_000_000;
/// Functions in a C source: about a third of a second of a compiler's time.
const FUNCTIONS: u32 = 20;

/// A number that looks like a random one, for each number.
fn mixed(n: u32) -> u64 {
    // SplitMix64 (Steele and others, "Fast splittable pseudorandom number generators").
    let mut z = u64::from(n)
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The directories of a tree of so many files.
fn directories(files: u32) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for n in 0..files.div_ceil(FILES_PER_DIRECTORY).max(BRANCHES) {
        let name = format!("part-{n}");
        let above = (n / BRANCHES).checked_sub(1);
        paths.push(above.map_or(name.as_str().into(), |above| {
            paths[above as usize].join(&name)
        }));
    }
    paths
}

/// Makes a tree of so many files of 300 to 6,000 bytes (symbolic links among them), of several
/// modes and times, in directories within directories.
pub(crate) fn tree(top: &Path, files: u32) -> io::Result<()> {
    let dirs = directories(files);
    for dir in &dirs {
        fs::create_dir_all(top.join(dir))?;
    }
    for n in 0..files {
        let random = mixed(n);
        let name = format!("file-{n}.txt");
        let dir = top.join(&dirs[n as usize % dirs.len()]);
        if n % LINK_EVERY == LINK_EVERY - 1 {
            let before = n.saturating_sub(dirs.len() as u32);
            symlink(format!("file-{before}.txt"), dir.join(name))?;
            continue;
        }
        let path = dir.join(&name);
        fs::write(&path, text(n, 300 + random as usize % 5_701))?;
        let mode = [0o644, 0o644, 0o755, 0o600][(random >> 32) as usize % 4];
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        let changed = Timespec {
            tv_sec: FIRST_CHANGE + (random >> 40) as i64,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: changed,
            last_modification: changed,
        };
        utimensat(CWD, &path, &times, AtFlags::empty())?;
    }
    Ok(())
}

/// So many bytes of text.
fn text(n: u32, bytes: usize) -> Vec<u8> {
    let mut text = String::new();
    let mut line = 0;
    while text.len() < bytes {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{line:4} {:016x} of file {n}",
            mixed(n ^ (line << 20))
        );
        line += 1;
    }
    text.truncate(bytes);
    text.into_bytes()
}

/// Makes a C project of so many sources; `make` builds `program` there.
pub(crate) fn project(dir: &Path, sources: u32) -> io::Result<()> {
    fs::create_dir(dir)?;
    let mut header = "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n".to_owned();
    let (mut calls, mut objects) = (String::new(), "main.o".to_owned());
    for n in 0..sources {
        // Writing to a string does not fail.
        let _ = writeln!(header, "uint64_t unit_{n}(uint64_t x);");
        let _ = writeln!(calls, "    x = unit_{n}(x);");
        let _ = write!(objects, " unit-{n}.o");
        fs::write(dir.join(format!("unit-{n}.c")), source(n))?;
    }
    fs::write(dir.join("units.h"), header)?;
    let main = format!(
        "#include \"units.h\"\nint main(void)\n{{\n    uint64_t x = 1;\n{calls}    \
         return printf(\"%llu\\n\", (unsigned long long)x) < 0;\n}}\n"
    );
    fs::write(dir.join("main.c"), main)?;
    let makefile = format!(
        "CFLAGS = -O2\nprogram: {objects}\n\t$(CC) -o $@ {objects}\n\
         %.o: %.c units.h\n\t$(CC) $(CFLAGS) -c -o $@ $<\n"
    );
    fs::write(dir.join("Makefile"), makefile)
}

/// A C source, of functions that a compiler has to think about.
fn source(n: u32) -> String {
    let mut code = "#include \"units.h\"\n".to_owned();
    let mut calls = String::new();
    for f in 0..FUNCTIONS {
        let random = mixed(n * FUNCTIONS + f);
        let (a, b) = (random & 0xFFFF | 1, random >> 16 & 0xFFFF | 1);
        let (c, d) = (random >> 32 & 0xFF, 3 + (random >> 40) % 29);
        let _ = write!(
            code,
            "static __attribute__((noinline)) uint64_t f{f}(uint64_t x, unsigned char *p)\n{{\n    \
             uint64_t sum = x;\n    for (int i = 0; i < {d}; i++) {{\n        \
             switch ((sum + i) % 7) {{\n        case 0: sum = sum * {a} + p[i]; break;\n        \
             case 1: sum ^= sum >> {shift}; p[i] ^= sum; break;\n        \
             case 2: sum += {b} * (uint64_t)i; break;\n        \
             case 3: memset(p, (int)sum, {d}); break;\n        \
             case 4: for (int j = 0; j < i; j++) sum += p[j] * {c}u; break;\n        \
             case 5: sum = sum % {b} ? sum / {a} : ~sum; break;\n        \
             default: memmove(p, p + i, {d}); sum--;\n        }}\n    }}\n    return sum;\n}}\n",
            shift = 1 + random % 31,
        );
        let _ = writeln!(calls, "    x = f{f}(x, bytes);");
    }
    let _ = write!(
        code,
        "uint64_t unit_{n}(uint64_t x)\n{{\n    unsigned char bytes[64] = {{ {n} }};\n{calls}    \
         return x;\n}}\n"
    );
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_tree_of_5000_files_has_some_sixty_directories_in_several_depths() {
        let paths = directories(5_000);
        assert_eq!(paths.len(), 67);
        let depths: BTreeSet<usize> = paths.iter().map(|path| path.iter().count()).collect();
        assert_eq!(depths.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
        let different: BTreeSet<_> = paths.into_iter().collect();
        assert_eq!(different.len(), 67);
    }

    #[test]
    fn sizes_vary_and_are_kept() {
        let sizes: BTreeSet<usize> = (0..1_000).map(|n| mixed(n) as usize % 5_701).collect();
        assert!(sizes.len() > 800, "{}", sizes.len());
        assert_eq!(text(3, 777).len(), 777);
        assert_eq!(text(3, 777), text(3, 777));
        assert_ne!(text(3, 777), text(4, 777));
    }
}
