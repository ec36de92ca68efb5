//! A client made by hand, which has a certificate of the cell and knows the numbers of files, gets
//! nothing of what its machine's users may not have, by any kind of operation; and ordinary users
//! of a mount get what their groups have a right to, and nothing else.

#[allow(dead_code)]
#[path = "../../../logic/tests/support/operations.rs"]
mod operations;

use crate::harness::process::{run, text};
use crate::harness::{Cell, Pair, ariel, has_program, real_system};
use net::{Bulk, CloseReason, Dialer, Events, Link, LinkId, Passage, Speaks};
use operations::every;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::{Caller, Fid, Hold, Op, Outcome, Refusal, Request, ToClient, ToServer, VERSION};

const LIMIT: Duration = Duration::from_secs(20);

/// Hands on what a server says.
struct Ear(Mutex<Sender<ToClient>>);

impl Events for Ear {
    fn opened(&self, _: &Arc<Link>) {}
    fn frame(&self, _: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        let message: ToClient = wire::decode(body).unwrap();
        if let ToClient::Reply { reply, .. } = &message {
            let refused = matches!(reply.outcome, Outcome::Refused(_));
            assert!(!refused || (bulk.is_empty() && reply.grants.is_empty()));
        }
        // The test may have ended.
        let _ = self.0.lock().unwrap().send(message);
    }
    fn closed(&self, _: LinkId, _: &CloseReason) {}
}

/// A client made by hand, with the credential in a directory.
struct Hand {
    link: Arc<Link>,
    heard: Receiver<ToClient>,
    last: u64,
    _dialer: Dialer,
}

impl Hand {
    fn new(cell: &Cell, credential: &Path) -> Self {
        let (said, heard) = channel();
        let passage = Passage::Tls(Arc::new(cell::Shown::of(credential)));
        let speaks = Speaks {
            oldest: VERSION,
            newest: VERSION,
            program: "by hand".into(),
        };
        let ear = Arc::new(Ear(Mutex::new(said)));
        let addr = cell.addr().parse().unwrap();
        let dialer = Dialer::new(addr, (passage, speaks), ear).unwrap();
        let link = dialer.wait_connected(LIMIT).unwrap();
        let hand = Self {
            link,
            heard,
            last: 0,
            _dialer: dialer,
        };
        hand.say(&ToServer::Hello {
            version: VERSION,
            session: 4_711,
            name: b"by hand".to_vec(),
            volume: Vec::new(),
        });
        let welcome = hand.heard.recv_timeout(LIMIT).unwrap();
        assert!(matches!(welcome, ToClient::Welcome(_)), "{welcome:?}");
        hand
    }

    fn say(&self, message: &ToServer) {
        self.link.send(wire::encode(message), Bulk::empty());
        self.link.flush();
    }

    fn asks(&mut self, op: Op, caller: &Caller) -> Outcome {
        self.last += 1;
        let request = Request {
            caller: caller.clone(),
            hold: Hold {
                open: true,
                write: true,
                stamp: self.last,
            },
            keeps: true,
            ahead: 1 << 16,
            ..Request::new(self.last, op)
        };
        self.say(&ToServer::Request(request));
        loop {
            match self.heard.recv_timeout(LIMIT).expect("an answer") {
                ToClient::Reply { id, reply, .. } if id == self.last => return reply.outcome,
                _ => {}
            }
        }
    }
}

/// A machine that joins, and has no rights but those of any.
pub fn joins(cell: &Cell, name: &str) -> std::path::PathBuf {
    let admin = cell.data().join("cell/administrator");
    let line = run(ariel(&["join-token", "--credentials"]).arg(admin));
    assert!(line.status.success(), "{}", text(&line));
    let line = String::from_utf8(line.stdout).unwrap();
    let dir = cell.scratch().join(name);
    let mut join = ariel(&["join", "--name", name, "--credentials"]);
    let joined = run(join.arg(&dir).arg(line.trim()));
    assert!(joined.status.success(), "{}", text(&joined));
    dir
}

fn fid(path: &Path) -> Fid {
    Fid {
        vnode: path.metadata().unwrap().ino(),
        ..Fid::root(1)
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything about a tree that a change would change.
fn seen(dir: &Path) -> BTreeMap<String, (u32, u64, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let found = entry.metadata().unwrap();
        let bytes = fs::read(entry.path()).unwrap_or_default();
        let name = entry.file_name().into_string().unwrap();
        let times = found.ctime() * 1_000_000_000 + found.ctime_nsec();
        all.insert(name, (found.mode(), found.nlink(), times, bytes));
    }
    all
}

#[test]
fn a_client_made_by_hand_is_refused_every_operation_on_protected_files() {
    if !real_system("refused") {
        return;
    }
    let Some(cell) = Cell::start("refused") else {
        return;
    };
    let mount = cell.mount();
    // One is protected by the way to it, the other by itself.
    let (closed, open) = (mount.join("closed"), mount.join("open"));
    for (dir, dir_mode, mode) in [(&closed, 0o700, 0o666), (&open, 0o700, 0o600)] {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("f"), "secret").unwrap();
        set_mode(&dir.join("f"), mode);
        set_mode(dir, dir_mode);
    }
    let before = [seen(&closed), seen(&open)];
    let mut hand = Hand::new(&cell, &joins(&cell, "guest"));
    let (mut asked, mut refused) = (0, 0);
    for caller in [(0, 0), (1000, 1000), (65_534, 0)] {
        let caller = Caller {
            uid: caller.0,
            gid: caller.1,
            groups: Some(vec![0, 4]),
        };
        for dir in [&closed, &open] {
            for op in every(fid(&dir.join("f")), fid(dir)) {
                let about_nothing = matches!(
                    op,
                    Op::StatFs
                        | Op::StatVolume { .. }
                        | Op::Reserve { .. }
                        | Op::Room { .. }
                        | Op::StopWaiting { .. }
                        | Op::Volumes
                );
                let outcome = hand.asks(op.clone(), &caller);
                let denied = matches!(
                    outcome,
                    Outcome::Refused(Refusal::Denied | Refusal::NotPermitted)
                );
                assert!(denied || about_nothing, "{op:?}: {outcome:?}");
                asked += usize::from(!about_nothing);
                refused += usize::from(denied);
            }
        }
    }
    assert_eq!(
        (asked, refused),
        (192, 192),
        "of those that are about files"
    );
    assert_eq!(before, [seen(&closed), seen(&open)]);
    // The same client gets what everybody may have.
    set_mode(&open, 0o755);
    set_mode(&open.join("f"), 0o644);
    let nobody = Caller::default();
    let fid = fid(&open.join("f"));
    let read = hand.asks(
        Op::Read {
            fid,
            offset: 0,
            len: 9,
        },
        &nobody,
    );
    assert!(matches!(read, Outcome::Read { len: 6, .. }), "{read:?}");
}

/// Runs a line as a user with these groups; did it succeed?
fn as_member(dir: &Path, groups: &str, line: &str) -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "12345", "--regid", "12345", "--groups", groups]);
    command.args(["sh", "-c", line]).current_dir(dir);
    command.stderr(Stdio::null());
    run(&mut command).status.success()
}

#[test]
fn users_have_the_rights_of_their_groups_and_no_others() {
    if !has_program("groups", "setpriv") {
        return;
    }
    let Some(pair) = Pair::start("groups") else {
        return;
    };
    for round in 0..6 {
        let (one, other) = pair.sides(round);
        let dir = one.join(format!("team-{round}"));
        let there = other.join(format!("team-{round}"));
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(0), Some(777)).unwrap();
        set_mode(&dir, 0o770);
        // A member of the group makes, changes, lists, links, renames and removes there.
        let work = "echo 1 > f && mkdir d && ln f d/g && mv f h && chgrp 777 h && ls > /dev/null \
                    && echo 2 >> h && truncate -s 1 h && chmod 640 h && rm d/g && rmdir d";
        assert!(as_member(&there, "777,888", work), "round {round}");
        let found = dir.join("h").metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (12_345, 777));
        // Others do not, nor do members give files to groups that they are not in.
        for line in ["ls", "cat h", "echo > x", "mkdir e", "rm -f h", "mv h k"] {
            assert!(!as_member(&there, "778", line), "{line}, round {round}");
            assert!(!as_member(&dir, "778", line), "{line}, round {round}");
        }
        assert!(!as_member(&there, "777", "chgrp 888 h"), "round {round}");
        // A right of the group on a file alone.
        fs::write(dir.join("of-root"), "bytes").unwrap();
        chown(dir.join("of-root"), Some(0), Some(888)).unwrap();
        set_mode(&dir.join("of-root"), 0o640);
        assert!(as_member(&there, "777,888", "cat of-root"));
        assert!(!as_member(&there, "777", "cat of-root"));
    }
}
