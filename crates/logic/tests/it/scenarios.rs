//! Scenarios: one server's machine, several clients' machines, and every message in sight.
//!
//! Each file of `scenarios/` holds scenarios, begun by `== name`. A line that begins with `> ` is a
//! command; the lines after it are the trace that it must give. `UPDATE=1` writes the traces anew:
//! read the difference before keeping it. The invariants are asserted too, whatever the trace says:
//! `want`, `state`, `stored` and `gone` are checked in either case, and the tokens of all machines
//! are compared after every step.
//!
//!     cell A B                    a server and connected clients (`in parts of 1`: a restarted
//!                                 server is told one thing a message; `with bytes ahead`;
//!                                 `with delegation`; `fenced after 300`: who is silent for so many
//!                                 seconds, not for a month; `passing`: kernels keep what
//!                                 is read once, and lending begins with the second reading)
//!     disk f "ab"                 a file that nobody has asked for yet (`"a*9"`: nine times a)
//!     quiet / trace               what follows is not traced / is traced
//!     A open f r|w|rw|a           `a`: for appending; `A close f r` as it was opened
//!     A read f 0 5                for the kernel's pages; `direct`: through a direct descriptor
//!     A write f 0 "ab"            `page`: from the kernel's pages; `append f "ab"`
//!     publish 2                   the server publishes by itself what was received as volume 2
//!     A mount v m                 a mount point of volume v; `A unmount m`
//!     A mount-elsewhere 9 m       a mount point of volume 9 of another server
//!     A lookup|create|mkdir|unlink|rmdir|rename|exchange|link|stat|truncate|chmod|list|sync
//!     A forget|leave
//!     A enter d                   attributes, and a reference, without any name
//!     A handed v:/                another machine's answer gives the kernel that reference
//!     A forget d 1                one of the references; without a number all
//!     A utime f 7                 sets the time of modification
//!     A list d 1                  one entry of a listing; `A more d` goes on with it, `A more d
//!                                 earlier` with the one before it
//!     A cut / A connect           the connection ends, messages on their way are lost / a new one
//!     A keeps nothing             it begins anew, and keeps no blocks of others
//!     A squashed                  it begins anew, and its root is nobody at the server; `A reads`:
//!                                 and it changes nothing
//!     A slow / A drops / A fast   the kernel drops what it was told to only when told so
//!     A thread 2                  what A calls from now on is called by this thread; 1 at first
//!                                 (0: it is not known which one)
//!     A lock f 1 shared 0 9 try   owner 1 locks bytes; `exclusive`; `always`, and `wait`: unless
//!                                 that is for ever; `A unlock f 1 0 9`, `A test f 1 shared 0 9`
//!     A flock f 1 shared wait     the whole file; `A funlock f 1`; `A close f r 1` closes what it
//!                                 was locked through
//!     A watch 1 d deep            wants to be told what changes in d (`deep`: and below it), as
//!                                 watch 1; three changes are kept; `A unwatch 1`
//!     A interrupt                 a signal that the caller of A's oldest call that is not answered
//!                                 handles; `A kill`: one that ends it; `A signal`: the kernel says
//!                                 that there is one
//!     slow store / synced         the same for the store's syncs
//!     blind store / seeing store  looking a name up fails, and works again
//!     hold S>A                    messages of that direction wait (shown as `S .. A`)
//!     deliver|drop|repeat S>A 2   the second of them arrives now / is lost with its connection,
//!                                 and another one is made / is there twice
//!     free S>A                    they arrive
//!     wait 5                      seconds pass
//!     regroup [B]                 the cell's groups are others (on the mount of one client)
//!     restart                     the server dies, starts again on its store, clients dial
//!     elsewhere                   the server is lost; clients dial another one that has its files,
//!                                 knows none of them, and begins with the same epochs
//!     want "hello"                the last answer (`A want`: to A); `state f ONE_WRITER`;
//!                                 `stored f "hello"`; `modified f 7`; `gone f`
//!     tokens f                    prints what the server believes

use crate::support::script;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.collect();
    files.sort();
    files
}

/// The scenarios of a file, each with its `==` line.
fn split(text: &str) -> (String, Vec<String>) {
    let mut head = String::new();
    let mut scenarios: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("== ") {
            scenarios.push(String::new());
        }
        let to = scenarios.last_mut().unwrap_or(&mut head);
        to.push_str(line);
        to.push('\n');
    }
    (head, scenarios)
}

/// The first line where two texts differ, with some lines around it.
fn difference(old: &str, new: &str) -> String {
    let same = old
        .lines()
        .zip(new.lines())
        .take_while(|(a, b)| a == b)
        .count();
    let part = |text: &str| {
        let lines: Vec<&str> = text.lines().skip(same.saturating_sub(3)).take(10).collect();
        lines.join("\n    ")
    };
    format!(
        "line {}\n  expected\n    {}\n  found\n    {}",
        same + 1,
        part(old),
        part(new)
    )
}

#[test]
fn every_scenario_gives_its_trace() {
    let update = std::env::var_os("UPDATE").is_some();
    let (mut count, mut failures) = (0, Vec::new());
    for file in files() {
        let old = fs::read_to_string(&file).unwrap();
        let (mut new, scenarios) = split(&old);
        for scenario in scenarios {
            count += 1;
            let title = scenario.lines().next().unwrap().to_owned();
            let place = format!("{}: {title}", file.file_name().unwrap().display());
            match catch_unwind(AssertUnwindSafe(|| script::run(&scenario))) {
                Ok(text) => {
                    if text != scenario && !update {
                        failures.push(format!("{place}, {}", difference(&scenario, &text)));
                    }
                    new.push_str(&text);
                }
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let plain = panic.downcast_ref::<&str>().map(|text| text.to_string());
                    failures.push(format!("{place}, {}", text.or(plain).unwrap_or_default()));
                    new.push_str(&scenario);
                }
            }
        }
        if update && new != old {
            fs::write(&file, new).unwrap();
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(count >= 50, "only {count} scenarios: have files been lost?");
}
