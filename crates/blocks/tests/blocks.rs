//! Memory of blocks: the bytes that one reads, and that memory which is given up is the machine's
//! again.
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_blocks::{BLOCK_BYTES, Block, Pool};
use std::sync::Mutex;

/// One test looks at the memory of the process that all of them use.
static ALONE: Mutex<()> = Mutex::new(());

/// The memory of this process, bytes.
fn resident() -> usize {
    let line = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = line.split(' ').nth(1).unwrap();
    pages.parse::<usize>().unwrap() * rustix::param::page_size()
}

fn filled(pool: &Pool, count: usize) -> Vec<Block> {
    let mut blocks: Vec<Block> = (0..count).map(|_| pool.take()).collect();
    for (at, block) in blocks.iter_mut().enumerate() {
        block.fill(at as u8);
    }
    blocks
}

#[test]
fn blocks_keep_what_was_written_and_their_pool() {
    let _alone = ALONE.lock();
    let pool = Pool::default();
    let mut blocks = filled(&pool, 20_000);
    let copy = blocks[7].clone();
    blocks[7].fill(99);
    assert!(blocks[7].iter().all(|&byte| byte == 99));
    drop(pool);
    assert_eq!(copy.len(), BLOCK_BYTES);
    assert!(copy.iter().all(|&byte| byte == 7));
    for (at, block) in blocks.iter().enumerate().skip(8) {
        assert!(block.iter().all(|&byte| byte == at as u8), "{at}");
    }
}

/// Blocks of the test below.
const COUNT: usize = 32_768;

/// Every second block goes: an allocator could give back little of that.
#[test]
fn what_is_given_up_is_the_machines_again_and_can_be_used_again() {
    let _alone = ALONE.lock();
    let pool = Pool::default();
    let mut blocks = filled(&pool, COUNT);
    let full = resident();
    let mut at = 0;
    blocks.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    assert!(pool.trim(0) >= COUNT / 2);
    let gone = full.saturating_sub(resident());
    let given_up = COUNT / 2 * BLOCK_BYTES;
    assert!(gone * 10 >= given_up * 9, "{gone} of {given_up} bytes");
    assert_eq!(pool.resident(), COUNT / 2);
    assert_eq!(pool.trim(0), 0, "nothing is left to be given up");

    let again = filled(&pool, COUNT / 2);
    for (at, block) in blocks.iter().enumerate() {
        assert!(block.iter().all(|&byte| byte == (2 * at + 1) as u8), "{at}");
    }
    drop((blocks, again));
    assert!(pool.trim(100) >= COUNT - 100);
    assert_eq!(pool.resident(), 100);
}

#[test]
fn threads_share_a_pool() {
    let _alone = ALONE.lock();
    let pool = Pool::default();
    let run = |seed: usize| {
        let pool = pool.clone();
        std::thread::spawn(move || {
            for round in 0..50 {
                let blocks = filled(&pool, 200 + seed);
                for (at, block) in blocks.iter().enumerate() {
                    assert!(block.iter().all(|&byte| byte == at as u8), "{seed} {round}");
                }
                drop(blocks);
                pool.trim(10);
            }
        })
    };
    let threads: Vec<_> = (0..4).map(run).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(pool.resident() <= 4 * 300);
}
