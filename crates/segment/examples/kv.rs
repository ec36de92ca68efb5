//! A key-value table that snapshots itself while it changes: `kv ADDR:DIR MIB FILE`.
//!
//! The table is a segment. A snapshot is a COW-COR child of it, which a second thread writes to a
//! file and gives up part by part, so that the two never need twice the memory. The file holds the
//! table as it was at the fork: the program says how many sets were before, and how many are in it.

use ariel_segment::{Fork, PAGE, Segment, Started};
use std::error::Error;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const PART: usize = 1 << 20;
const SETS: u64 = 20_000;

/// Adds one to the value of a key.
fn set(table: &mut Segment, key: u64) {
    let keys = table.len() as u64 / 8;
    let at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys * 8) as usize;
    let value = &mut table.bytes_mut()[at..at + 8];
    let mut bytes = [0; 8];
    bytes.copy_from_slice(value);
    value.copy_from_slice(&(u64::from_ne_bytes(bytes) + 1).to_ne_bytes());
}

fn save(snapshot: &mut Segment, path: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut file = std::fs::File::create(path)?;
    for at in (0..snapshot.len()).step_by(PART) {
        let end = snapshot.len().min(at + PART);
        file.write_all(&snapshot.bytes()[at..end])?;
        snapshot.discard((at / PAGE) as u64, ((end - at) / PAGE) as u64)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let args: Vec<_> = std::env::args_os().collect();
    let [_, at, mib, path] = &args[..] else {
        return Err("usage: kv ADDR:DIR MIB FILE".into());
    };
    let (mib, path) = (mib.to_string_lossy(), path.to_string_lossy());
    let bytes = mib.parse::<u64>()? << 20;
    let pager = Started::new(at, bytes * 2)?;
    let mut table = pager.connection.make(bytes, 0)?;
    (0..SETS).for_each(|key| set(&mut table, key));
    let mut snapshot = table.fork(Fork::CowCor, 0)?;
    let saved = AtomicBool::new(false);
    let mut during = 0;
    thread::scope(|scope| {
        let saving = scope.spawn(|| {
            let result = save(&mut snapshot, &path);
            saved.store(true, Ordering::Release);
            result
        });
        while !saved.load(Ordering::Acquire) {
            set(&mut table, during);
            during += 1;
        }
        saving.join().map_err(|_| "the saving thread failed")?
    })?;
    let file = std::fs::read(&*path)?;
    let sum: u64 = file.iter().map(|byte| u64::from(*byte)).sum();
    println!("{SETS} sets before the fork, {during} while it was saved; the file has {sum}");
    Ok(())
}
