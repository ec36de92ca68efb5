//! A database that trusts fsync, rename and its own locks: PostgreSQL with its data on a mount,
//! under pgbench, ended by `kill -9` in the middle; and the server of the mount likewise.
//!
//! The test judges: every transaction that was confirmed to a client is there afterwards, the sums
//! of pgbench agree, all indexes and the checksums of all pages are right.

use crate::harness::process::{Proc, run_within, shell_ok};
use crate::harness::{Cell, Pair, Scratch, eventually, long, skipped, text};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The user `nobody` of every Linux: PostgreSQL does not run as root.
const USER: u32 = 65534;
/// Clients of pgbench.
const CLIENTS: u64 = 4;
/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(100);

/// Where PostgreSQL's programs are: the newest that is installed.
fn programs(test: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            let bin = entry.path().join("bin");
            bin.join("pgbench").is_file().then_some((version, bin))
        })
        .collect();
    found.sort();
    let newest = found.pop().map(|(_, bin)| bin);
    if newest.is_none() {
        skipped(test, "PostgreSQL is missing; run tools/setup suites");
    }
    newest
}

/// How long pgbench runs before something happens, and in all.
fn seconds() -> (u64, u64) {
    if long() { (10, 30) } else { (3, 8) }
}

/// A database: its programs, and a local directory for its socket and logs.
struct Database<'a> {
    bin: PathBuf,
    scratch: &'a Scratch,
}

impl Database<'_> {
    /// One of its programs, as its user.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.uid(USER).gid(USER).env("LC_ALL", "C");
        command
            .env("PGHOST", self.scratch.path())
            .env("PGUSER", "nobody");
        command.current_dir(self.scratch.path());
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        let output = run_within(self.command(program).args(args), LIMIT);
        assert!(
            output.status.success(),
            "{program} {args:?}: {}",
            text(&output)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn sql(&self, statement: &str) -> String {
        let args = [
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            "postgres",
            "-c",
            statement,
        ];
        self.run("psql", &args).trim().to_owned()
    }

    fn number(&self, statement: &str) -> u64 {
        self.sql(statement).parse().unwrap()
    }

    /// Makes it, with checksums of its pages, and fills it.
    fn make(&self, cell: &Cell, data: &Path) -> Proc {
        self.run(
            "initdb",
            &["-k", "-A", "trust", "-D", data.to_str().unwrap()],
        );
        let server = self.start(cell, data);
        self.run("pgbench", &["-i", "-q", "-s", "2", "postgres"]);
        self.sql("create extension amcheck");
        server
    }

    /// Starts it. Remains of a killed one may keep it from starting until they are gone.
    fn start(&self, cell: &Cell, data: &Path) -> Proc {
        let end = Instant::now() + LIMIT;
        loop {
            let mut server = self.try_start(cell, data);
            let ready = || self.ready();
            if eventually(LIMIT, || server.poll().is_some() || ready()) && ready() {
                return server;
            }
            assert!(
                Instant::now() < end,
                "the database does not start: {}",
                self.log()
            );
        }
    }

    fn try_start(&self, cell: &Cell, data: &Path) -> Proc {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.scratch.join("postgres.log"))
            .unwrap();
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(data)
            .arg("-k")
            .arg(self.scratch.path());
        // Small, so that pages are written and read and the log goes round.
        let settings = [
            "listen_addresses=",
            "shared_buffers=4MB",
            "max_wal_size=32MB",
            "fsync=on",
        ];
        for setting in settings.into_iter().chain(["checkpoint_timeout=30s"]) {
            command.args(["-c", setting]);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Proc::spawn(&mut command, Some(cell.watch())).unwrap()
    }

    fn ready(&self) -> bool {
        let mut command = self.command("pg_isready");
        run_within(command.arg("-q"), LIMIT).status.success()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("postgres.log")).unwrap_or_default()
    }

    /// Starts pgbench; it logs each transaction that it was told is done.
    fn bench(&self, cell: &Cell, name: &str, seconds: u64) -> Proc {
        let mut command = self.command("pgbench");
        let (clients, time) = (CLIENTS.to_string(), seconds.to_string());
        command.args(["-n", "-c", &clients, "-j", "2", "-T", &time, "-l"]);
        command.arg(format!(
            "--log-prefix={}",
            self.scratch.join(name).display()
        ));
        command
            .arg("postgres")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let told = File::create(self.scratch.join(&format!("{name}.told"))).unwrap();
        command.stderr(told);
        Proc::spawn(&mut command, Some(cell.watch())).unwrap()
    }

    /// How many transactions pgbench was told are done.
    fn told_done(&self, name: &str) -> u64 {
        let line = format!("cat {name}.[0-9]* | wc -l");
        shell_ok(self.scratch.path(), &line).trim().parse().unwrap()
    }

    /// All that was told to be done is there, and everything agrees; how much that is.
    fn judge(&self, told: u64) -> u64 {
        let there = self.number("select count(*) from pgbench_history");
        // Of each client's last transaction nobody may know.
        assert!(
            (told..=told + 2 * CLIENTS).contains(&there),
            "{told} were told, {there} are there"
        );
        let sums = "select (select sum(abalance) from pgbench_accounts) = s and \
            (select sum(tbalance) from pgbench_tellers) = s and \
            (select sum(bbalance) from pgbench_branches) = s \
            from (select sum(delta) s from pgbench_history) d";
        assert_eq!(self.sql(sums), "t");
        let indexes = "select count(*) from pg_class c join pg_am a on a.oid = c.relam, \
            lateral bt_index_parent_check(c.oid, true) where a.amname = 'btree' \
            and c.relkind = 'i' and c.relpersistence = 'p'";
        assert!(self.number(indexes) > 100);
        there
    }
}

/// Kills a database with all its processes, as the end of its machine would.
fn kill(mut server: Proc) {
    let main = server.child().id();
    // Kernels that do not tell leave it to the others to notice.
    let children = fs::read_to_string(format!("/proc/{main}/task/{main}/children"));
    let children = children.unwrap_or_default();
    server.kill9();
    for child in children.split_whitespace() {
        let child = rustix::process::Pid::from_raw(child.parse().unwrap()).unwrap();
        // It may have seen the end of the other and have ended itself.
        let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    }
}

/// The directory for the data, the database's own.
fn data_dir(scratch: &Scratch, mount: &Path) {
    let chown = |path: &Path| std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    chown(scratch.path());
    let data = mount.join("data");
    fs::create_dir(&data).unwrap();
    chown(&data);
}

#[test]
fn a_database_loses_nothing_when_it_or_its_servers_are_killed() {
    let Some(bin) = programs("postgres") else {
        return;
    };
    let Some(pair) = Pair::start("postgres") else {
        return;
    };
    // In this order, so that the cell is dropped last.
    let Pair { mut cell, a, b } = pair;
    let scratch = Scratch::new("pg");
    data_dir(&scratch, a.path());
    let database = Database {
        bin,
        scratch: &scratch,
    };
    let (before, all) = seconds();
    let server = database.make(&cell, &a.join("data"));

    // The database is killed, and goes on on the other mount.
    let mut bench = database.bench(&cell, "first", all);
    assert!(
        bench.wait(Duration::from_secs(before)).is_none(),
        "pgbench has ended early"
    );
    kill(server);
    let status = bench
        .wait(LIMIT)
        .expect("pgbench ends without its database");
    assert!(
        !status.success(),
        "pgbench did not notice that its database was killed"
    );
    let mut server = database.start(&cell, &b.join("data"));
    let there = database.judge(database.told_done("first"));
    assert!(there > 20, "{there} transactions");
    assert!(
        database.log().contains("automatic recovery in progress"),
        "{}",
        database.log()
    );

    // The server of the mounts is killed: the database waits until it is there again.
    let mut bench = database.bench(&cell, "second", all);
    assert!(
        bench.wait(Duration::from_secs(before)).is_none(),
        "pgbench has ended early"
    );
    cell.kill9();
    cell.start_server();
    let status = bench.wait(LIMIT).expect("pgbench ends");
    let told = fs::read_to_string(scratch.join("second.told")).unwrap_or_default();
    assert!(status.success(), "{status}: {told}\n{}", database.log());
    let more = database.judge(there + database.told_done("second"));
    assert!(more > there + 20, "{there}, then {more} transactions");

    server.signal(rustix::process::Signal::INT);
    let status = server.wait(LIMIT).expect("the database ends");
    assert!(status.success(), "{status}: {}", database.log());
    let data = a.join("data");
    database.run("pg_checksums", &["--check", "-D", data.to_str().unwrap()]);
}
