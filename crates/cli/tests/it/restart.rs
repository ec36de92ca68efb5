//! The server ends and comes back: idle mounts go on with their open files; after `kill -9` under
//! load everything that was fsynced is there, in the running mounts and in fresh ones.

use crate::exact::read_all;
use crate::harness::{Cell, Mount, Pair, Random, real_system};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

fn make_tree(root: &Path, seed: u64) {
    let mut random = Random(seed);
    for d in 0..10 {
        let dir = root.join(format!("dir-{d}"));
        fs::create_dir_all(&dir).unwrap();
        for f in 0..20 {
            let len = random.below(30_000) as usize;
            fs::write(dir.join(format!("file-{f}")), random.bytes(len)).unwrap();
        }
        std::os::unix::fs::symlink("file-1", dir.join("link")).unwrap();
    }
}

fn assert_tree(root: &Path, seed: u64) {
    let mut random = Random(seed);
    for d in 0..10 {
        for f in 0..20 {
            let len = random.below(30_000) as usize;
            let path = root.join(format!("dir-{d}/file-{f}"));
            assert!(
                fs::read(&path).unwrap() == random.bytes(len),
                "{} differs",
                path.display()
            );
        }
        let target = fs::read_link(root.join(format!("dir-{d}/link"))).unwrap();
        assert_eq!(target.to_str(), Some("file-1"));
    }
}

#[test]
fn idle_mounts_go_on_after_a_restart() {
    if !real_system("restart-idle") {
        return;
    }
    let Some(mut pair) = Pair::start("restart-idle") else {
        return;
    };
    make_tree(pair.a.path(), 1);
    let options = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .clone()
    };
    let ours = options().open(pair.a.join("held-a")).unwrap();
    ours.write_all_at(b"written before the restart, never synced", 0)
        .unwrap();
    let shared_a = options().open(pair.a.join("shared")).unwrap();
    shared_a.write_all_at(b"shared before", 0).unwrap();
    let shared_b = options().open(pair.b.join("shared")).unwrap();
    assert_eq!(read_all(&shared_b), b"shared before");
    let nameless = options().open(pair.b.join("nameless")).unwrap();
    nameless.write_all_at(b"no name any more", 0).unwrap();
    fs::remove_file(pair.b.join("nameless")).unwrap();
    assert!(fs::metadata(pair.b.join("absent")).is_err());

    pair.cell.restart();

    assert_tree(pair.b.path(), 1);
    assert_tree(pair.a.path(), 1);
    assert_eq!(read_all(&ours), b"written before the restart, never synced");
    let by_name = fs::read(pair.b.join("held-a")).unwrap();
    assert_eq!(by_name, b"written before the restart, never synced");
    assert_eq!(read_all(&nameless), b"no name any more");
    shared_b.write_all_at(b"SHARED", 0).unwrap();
    assert_eq!(read_all(&shared_a), b"SHARED before");
    fs::write(pair.a.join("absent"), b"made after").unwrap();
    assert_eq!(fs::read(pair.b.join("absent")).unwrap(), b"made after");
    ours.sync_all().unwrap();
}

#[test]
fn a_clean_end_keeps_everything_that_was_unmounted() {
    if !real_system("restart-fresh") {
        return;
    }
    let Some(mut cell) = Cell::start("restart-fresh") else {
        return;
    };
    let mount = cell.mount();
    make_tree(mount.path(), 2);
    drop(mount);
    cell.restart();
    assert_tree(cell.mount().path(), 2);
    cell.stop_server();
    cell.assert_clean();
    cell.start_server();
    assert_tree(cell.mount().path(), 2);
}

/// A file that was fsynced: its name and the seed of its content.
type Synced = (String, u64);

fn content(seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let len = random.below(60_000) as usize;
    random.bytes(len)
}

/// Files synced, in all, before something is killed.
const LOAD: usize = 300;

/// Waits until the writers have synced so much.
fn await_load(told: &Receiver<()>) {
    for n in 0..LOAD {
        let synced = told.recv_timeout(Duration::from_secs(60));
        assert!(synced.is_ok(), "only {n} files are synced");
    }
}

/// Writes files and overwrites some in place; notes and tells each that fsync said is safe. An
/// error ends it: the server is gone.
fn write_and_sync(mount: &Path, writer: u64, stop: &AtomicBool, tell: &Sender<()>) -> Vec<Synced> {
    let mut synced = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let seed = writer * 1_000_000 + n;
        let name = format!("w{writer}-{n}");
        let write = || -> std::io::Result<()> {
            let file = File::create(mount.join(&name))?;
            file.write_all_at(&content(seed), 0)?;
            file.sync_all()
        };
        // Near the end the mount may be gone and its bare directory have taken the file: writes
        // after `stop` show nothing.
        if write().is_err() || stop.load(Ordering::SeqCst) {
            break;
        }
        synced.push((name, seed));
        // Nobody listens any more once it is enough.
        let _ = tell.send(());
        // A file that is not synced may be lost, but must do no harm.
        let _ = fs::write(mount.join(format!("w{writer}-unsynced")), content(seed + 1));
        if n % 7 == 6 {
            let _ = fs::remove_file(mount.join(format!("w{writer}-{}", n - 3)));
            synced.retain(|(name, _)| *name != format!("w{writer}-{}", n - 3));
        }
    }
    synced
}

fn assert_synced(mount: &Path, synced: &[Synced]) {
    for (name, seed) in synced {
        let seen = fs::read(mount.join(name));
        let seen = seen.unwrap_or_else(|e| panic!("{name} was fsynced and is lost: {e}"));
        assert!(seen == content(*seed), "{name} was fsynced and differs");
    }
}

/// Loads the cell from both mounts and kills the server in the middle.
fn kill_under_load(pair: &mut Pair, and_then: impl FnOnce(&mut Cell)) -> Vec<Synced> {
    let stop = AtomicBool::new(false);
    let Pair { a, b, cell } = pair;
    let mounts: [&Mount; 2] = [a, b];
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        let write = |writer: u64| {
            let (mount, stop, tell) = (mounts[writer as usize % 2].path(), &stop, tell.clone());
            scope.spawn(move || write_and_sync(mount, writer, stop, &tell))
        };
        let writers: Vec<_> = (0..4).map(write).collect();
        await_load(&told);
        cell.kill9();
        and_then(cell);
        stop.store(true, Ordering::SeqCst);
        writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect()
    })
}

#[test]
fn what_was_fsynced_survives_a_killed_server() {
    if !real_system("kill-server") {
        return;
    }
    let Some(mut pair) = Pair::start("kill-server") else {
        return;
    };
    let synced = kill_under_load(&mut pair, |cell| {
        cell.assert_clean();
        cell.start_server();
    });
    assert!(
        synced.len() > 20,
        "too little load to show anything: {} files",
        synced.len()
    );
    assert_synced(pair.a.path(), &synced);
    assert_synced(pair.b.path(), &synced);
    let Pair { a, b, mut cell } = pair;
    drop((a, b));
    cell.restart();
    assert_synced(cell.mount().path(), &synced);
}

#[test]
fn what_was_fsynced_survives_when_server_and_mounts_are_killed() {
    if !real_system("kill-all") {
        return;
    }
    let Some(mut cell) = Cell::start("kill-all") else {
        return;
    };
    let (a, b) = (cell.mount(), cell.mount());
    let stop = AtomicBool::new(false);
    let (points, mut mounts) = (
        [a.path().to_owned(), b.path().to_owned()],
        [Some(a), Some(b)],
    );
    let synced: Vec<Synced> = std::thread::scope(|scope| {
        let (tell, told) = channel();
        let write = |writer: u64| {
            let (mount, stop, tell) = (&points[writer as usize % 2], &stop, tell.clone());
            scope.spawn(move || write_and_sync(mount, writer, stop, &tell))
        };
        let writers: Vec<_> = (0..4).map(write).collect();
        await_load(&told);
        cell.kill9();
        stop.store(true, Ordering::SeqCst);
        for mount in &mut mounts {
            mount.take().unwrap().kill9();
        }
        writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect()
    });
    cell.assert_clean();
    cell.start_server();
    let mount = cell.mount();
    assert!(
        synced.len() > 20,
        "too little load to show anything: {} files",
        synced.len()
    );
    assert_synced(mount.path(), &synced);
}
