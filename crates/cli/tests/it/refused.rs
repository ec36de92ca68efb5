//! A client made by hand, which has a certificate of the cell and knows the numbers of files, gets
//! nothing of what its machine's users may not have, by any kind of operation; and ordinary users
//! of a mount get what their groups have a right to, and nothing else.

#[allow(dead_code)]
#[path = "../../../logic/tests/it/support/operations.rs"]
mod operations;

use crate::harness::process::{run, text};
use crate::harness::{Cell, Pair, ariel, eventually, has_program, real_system};
use net::{Addresses, Bulk, CloseReason, Dialer, Events, Link, LinkId, Passage, Speaks};
use operations::every;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::{Caller, Fid, Hold, Op, Outcome, Refusal, Request, ToClient, ToServer, VERSION};

const LIMIT: Duration = Duration::from_secs(20);

/// Hands on what a server says.
struct Ear(Mutex<Option<Sender<ToClient>>>);

impl Events for Ear {
    fn opened(&self, _: &Arc<Link>) {}
    fn frame(&self, _: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        let message: ToClient = wire::decode(body).unwrap();
        if let ToClient::Reply { reply, .. } = &message {
            let refused = matches!(reply.outcome, Outcome::Refused(_));
            assert!(!refused || (bulk.is_empty() && reply.grants.is_empty()));
        }
        if let Some(said) = &*self.0.lock().unwrap() {
            // The test may have ended.
            let _ = said.send(message);
        }
    }
    fn closed(&self, _: LinkId, _: &CloseReason) {
        // Nothing more comes.
        self.0.lock().unwrap().take();
    }
}

/// A client made by hand, with the credential in a directory.
pub struct Hand {
    link: Arc<Link>,
    heard: Receiver<ToClient>,
    last: u64,
    _dialer: Dialer,
}

impl Hand {
    pub fn new(cell: &Cell, credential: &Path) -> Self {
        Self::try_new(cell, credential, 4_711).expect("a client that may come in does")
    }

    /// The same with another session; none: it cannot connect in time.
    pub fn try_new(cell: &Cell, credential: &Path, session: u64) -> Option<Self> {
        Self::at(cell.addr().parse().unwrap(), credential, session)
    }

    /// The same, by another address of the server.
    pub fn at(addr: SocketAddr, credential: &Path, session: u64) -> Option<Self> {
        let speaks = Speaks {
            oldest: VERSION,
            newest: VERSION,
            program: "by hand".into(),
        };
        Self::speaking(addr, credential, (session, speaks)).ok()
    }

    /// The same, of a program that speaks these versions; an error: why it does not come in.
    pub fn speaking(
        addr: SocketAddr,
        credential: &Path,
        (session, speaks): (u64, Speaks),
    ) -> Result<Self, String> {
        let passage = Passage::Tls(Arc::new(cell::Shown::of(credential)));
        Self::through(addr, passage, (session, speaks))
    }

    /// The same, protected in this way.
    pub fn through(
        addr: SocketAddr,
        passage: Passage,
        (session, speaks): (u64, Speaks),
    ) -> Result<Self, String> {
        let (said, heard) = channel();
        let ear = Arc::new(Ear(Mutex::new(Some(said))));
        let dialer = Dialer::new(Addresses::from(addr), (passage, speaks), ear).unwrap();
        let link = dialer.wait_connected(LIMIT);
        let hand = Self {
            link: link.map_err(|error| error.to_string())?,
            heard,
            last: 0,
            _dialer: dialer,
        };
        hand.say(&ToServer::Hello {
            version: hand.link.version(),
            session,
            name: b"by hand".to_vec(),
            volume: Vec::new(),
        });
        let welcome = hand.heard.recv_timeout(LIMIT);
        let welcome = welcome.map_err(|error| error.to_string())?;
        match welcome {
            ToClient::Welcome(_) => Ok(hand),
            other => Err(format!("{other:?}")),
        }
    }

    /// Asks for an operation until it is to end, with so many questions open at a time; how many
    /// were answered.
    pub fn floods(&mut self, op: &Op, open_max: u64, ends: &AtomicBool) -> u64 {
        let (first, mut answered) = (self.last, 0);
        while !ends.load(Ordering::SeqCst) {
            while self.last - first - answered < open_max {
                self.last += 1;
                let request = Request::new(self.last, op.clone());
                let body = wire::encode(&ToServer::Request(request));
                self.link.send(body, Bulk::empty());
            }
            self.link.flush();
            let mut heard = self.heard.recv_timeout(LIMIT).ok();
            assert!(heard.is_some(), "the server answers no more");
            while let Some(message) = heard {
                answered += u64::from(matches!(message, ToClient::Reply { .. }));
                heard = self.heard.try_recv().ok();
            }
        }
        answered
    }

    pub fn say(&self, message: &ToServer) {
        self.link.send(wire::encode(message), Bulk::empty());
        self.link.flush();
    }

    pub fn asks(&mut self, op: Op, caller: &Caller) -> Outcome {
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

#[test]
fn a_session_is_its_machines_alone_whoever_knows_its_number() {
    if !real_system("refused-session") {
        return;
    }
    let Some(mut cell) = Cell::start("refused-session") else {
        return;
    };
    if cell.is_insecure() {
        return;
    }
    let (one, other) = (joins(&cell, "one"), joins(&cell, "other"));
    let addr: SocketAddr = cell.addr().parse().unwrap();
    let speaks = || Speaks {
        oldest: VERSION,
        newest: VERSION,
        program: "by hand".into(),
    };
    let mut own = Hand::speaking(addr, &one, (79, speaks())).unwrap();
    let before = cell.server_log().len();
    assert!(Hand::speaking(addr, &other, (79, speaks())).is_err());
    let said = || cell.server_log()[before..].contains("a session that another machine has begun");
    assert!(eventually(LIMIT, said), "{}", cell.server_log());
    // It goes on, and its machine may go on with it.
    let answer = own.asks(Op::StatFs, &Caller::default());
    assert!(matches!(answer, Outcome::Filesystem(_)), "{answer:?}");
    drop(own);
    Hand::speaking(addr, &one, (79, speaks())).unwrap();
    // After a restart the other machine may be the first that comes.
    cell.kill9();
    cell.start_server();
    assert!(Hand::speaking(addr, &other, (79, speaks())).is_err());
    Hand::speaking(addr, &one, (79, speaks())).unwrap();
    // Those who look after the cell can read of it: once for each run.
    let audit = fs::read_to_string(cell.data().join("cell/audit.log")).unwrap();
    let noted = audit.lines().filter(|line| {
        line.contains("\"who\":\"other\"") && line.contains("another machine has begun")
    });
    assert_eq!(noted.count(), 2, "{audit}");
}

/// Ways to look at what is somebody else's, or to change it: lines of a shell in a directory with
/// two of his directories, one that is closed and one whose file is.
const LINES: [&str; 36] = [
    "ls open/closed",
    "cat closed/f",
    "cat open/f",
    "head -c 1 open/f",
    "stat closed/f",
    "readlink closed/l",
    "echo more >> open/f",
    "echo new > open/f",
    "truncate -s 0 open/f",
    "truncate -s 9 closed/f",
    "fallocate -l 9 open/f",
    "dd if=/dev/zero of=open/f bs=1 count=1 conv=notrunc",
    "cp open/f /dev/null",
    "cp /etc/hostname open/f",
    "cp --reflink=always open/f own/copy",
    "mv open/f own/f",
    "mv own/mine open/f",
    "mv closed/f own/f",
    "rm -f open/f",
    "rm -rf open/closed",
    "rmdir open/empty",
    "mkdir open/made",
    "mknod open/fifo p",
    "ln -s x open/link",
    "ln own/mine open/mine",
    "ln open/f own/f",
    "touch open/made",
    "touch -d @7 open/f",
    "chmod 777 open/f",
    "chmod 777 closed",
    "chown 12345 open/f",
    "setfattr -n user.x -v 1 open/f",
    "getfattr --only-values -n user.note open/f",
    "setfacl -m u:12345:rwx open/f",
    "flock -n closed/f true",
    "cd closed",
];

#[test]
fn ordinary_users_are_refused_every_kind_of_call_on_what_is_somebody_elses() {
    let programs = ["setpriv", "setfattr", "setfacl", "flock", "fallocate"];
    if !programs
        .iter()
        .all(|program| has_program("refused-calls", program))
    {
        return;
    }
    let Some(pair) = Pair::start("refused-calls") else {
        return;
    };
    for round in 0..4 {
        let (one, other) = pair.sides(round);
        let (name, owner) = (format!("of-{round}"), 20_000 + round as u32);
        let (theirs, there) = (one.join(&name), other.join(&name));
        fs::create_dir(&theirs).unwrap();
        let make = "mkdir closed open open/closed open/empty own && echo secret > closed/f && \
                    ln -s secret closed/l && echo secret > open/f && \
                    setfattr -n user.note -v secret open/f && chmod 700 closed open/closed && \
                    chmod 600 open/f && chmod 666 closed/f && chmod 755 open && chmod 777 own";
        crate::harness::process::shell_ok(&theirs, make);
        for path in [
            "closed",
            "closed/f",
            "open",
            "open/f",
            "open/closed",
            "open/empty",
        ] {
            chown(theirs.join(path), Some(owner), Some(owner)).unwrap();
        }
        assert!(as_member(&there, "12345", "echo 1 > own/mine"));
        let before = [seen(&theirs.join("closed")), seen(&theirs.join("open"))];
        let mut wrong = Vec::new();
        // From both mounts, cold and warm; the owner has used it in between.
        for (at, dir) in [(0, &there), (1, &theirs), (2, &there)] {
            for line in LINES {
                if as_member(dir, "12345", line) {
                    wrong.push(format!("round {round}, {at}: {line}"));
                }
            }
            let owners = format!(
                "exec setpriv --reuid {owner} --regid {owner} --clear-groups \
                                  cat closed/f open/f"
            );
            crate::harness::process::shell_ok(&theirs, &owners);
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(
            before,
            [seen(&theirs.join("closed")), seen(&theirs.join("open"))]
        );
    }
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
