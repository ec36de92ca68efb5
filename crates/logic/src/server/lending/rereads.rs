//! Files that are read again: by a second client, or by one whose cache has not kept them.
//!
//! Only of these the server notes which client has which blocks, makes digests, and wants clients
//! to keep copies beside those of their kernels. So cooperation costs nothing where nobody
//! profits. The price is that the bytes of a file which many read come from the server twice: for
//! its first reader, and for the next one. Readers that begin at about the same time share all but
//! the little that the first of them was ahead. Where most files prove to be read again, a new one
//! is taken for such a file at once.
//!
//! Guarantees: bounded memory (the file that has been known for longest is forgotten first), and
//! nothing here is needed for correctness.

use alloc::collections::{BTreeMap, VecDeque};
use wire::{Fid, LenderId};

/// It is judged by so many files at least whether most are read again...
const JUDGED_BY: u32 = 64;
/// ...and by about so many at most, the last ones.
const REMEMBERED: u32 = 1024;

/// A file of which bytes were sent.
#[derive(Clone, Copy, Debug)]
struct Reading {
    version: u64,
    /// The client that was sent bytes of it, and how many.
    reader: LenderId,
    sent_bytes: u64,
    /// Bytes were wanted that had been sent before. It stays so: a file that several clients read
    /// is read by them again once it has changed.
    again: bool,
}

/// The files of which bytes were sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Rereads {
    files: BTreeMap<Fid, Reading>,
    /// In the order of their coming.
    order: VecDeque<Fid>,
    /// Files that came new, and those of them that were read again, of late.
    new: u32,
    proven: u32,
}

impl Rereads {
    /// A reader asks for bytes of this version of a file that has so many: is the file one that is
    /// read again? A reader that has gone does not count: its bytes have gone with it.
    pub(super) fn is_again(
        &mut self,
        (fid, version, size): (Fid, u64, u64),
        reader: LenderId,
        is_there: impl Fn(LenderId) -> bool,
    ) -> bool {
        let usual = self.new >= JUDGED_BY && self.proven >= self.new / 2;
        let Some(file) = self.files.get_mut(&fid) else {
            return usual;
        };
        if !is_there(file.reader) {
            (file.reader, file.sent_bytes) = (reader, 0);
        }
        let before = file.reader != reader || file.sent_bytes >= size;
        let proves = !file.again && before && file.version == version;
        file.again |= proves;
        self.proven += u32::from(proves);
        file.again || usual
    }

    /// A reader is sent bytes: of the file as [`Rereads::is_again`].
    pub(super) fn on_sent(
        &mut self,
        files_max: usize,
        (fid, version, size): (Fid, u64, u64),
        (reader, bytes): (LenderId, u32),
        is_there: impl Fn(LenderId) -> bool,
    ) -> bool {
        let again = self.is_again((fid, version, size), reader, is_there);
        let fresh = Reading {
            version,
            reader,
            sent_bytes: 0,
            again: false,
        };
        if !self.files.contains_key(&fid) {
            self.on_new(files_max, fid);
        }
        let file = self.files.entry(fid).or_insert(fresh);
        if file.version != version {
            let again = file.again;
            *file = Reading { again, ..fresh };
        }
        file.sent_bytes = file.sent_bytes.saturating_add(u64::from(bytes));
        again
    }

    fn on_new(&mut self, files_max: usize, fid: Fid) {
        if self.new >= REMEMBERED {
            (self.new, self.proven) = (self.new / 2, self.proven / 2);
        }
        self.new += 1;
        self.order.push_back(fid);
        while self.files.len() >= files_max.max(1) {
            match self.order.pop_front() {
                Some(oldest) => self.files.remove(&oldest),
                None => break,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 20;
    const HALF: u32 = 1 << 19;

    fn any(_: LenderId) -> bool {
        true
    }

    fn fid(volume: u32) -> Fid {
        Fid::root(volume)
    }

    #[test]
    fn a_file_that_one_client_reads_once_is_not_read_again() {
        let mut rereads = Rereads::default();
        for _ in 0..2 {
            assert!(!rereads.on_sent(10, (fid(1), 7, SIZE), (1, HALF), any));
        }
        assert!(!rereads.is_again((fid(1), 7, SIZE + 1), 1, any));
        assert!(rereads.is_again((fid(1), 7, SIZE), 1, any));
    }

    #[test]
    fn a_second_reader_or_more_bytes_than_there_are_make_it_read_again() {
        let mut rereads = Rereads::default();
        rereads.on_sent(10, (fid(1), 7, SIZE), (1, HALF), any);
        assert!(rereads.on_sent(10, (fid(1), 7, SIZE), (2, HALF), any));
        for again in [false, false, true] {
            assert_eq!(
                rereads.on_sent(10, (fid(2), 7, SIZE), (1, HALF), any),
                again
            );
        }
    }

    #[test]
    fn a_reader_that_has_gone_has_taken_its_bytes_with_it() {
        let mut rereads = Rereads::default();
        rereads.on_sent(10, (fid(1), 7, SIZE), (1, HALF), any);
        let gone = |reader| reader != 1;
        for again in [false, false, true] {
            assert_eq!(
                rereads.on_sent(10, (fid(1), 7, SIZE), (2, HALF), gone),
                again
            );
        }
    }

    #[test]
    fn another_content_is_read_for_the_first_time_unless_the_last_one_was_read_again() {
        let mut rereads = Rereads::default();
        rereads.on_sent(10, (fid(1), 7, SIZE), (1, HALF), any);
        assert!(!rereads.on_sent(10, (fid(1), 8, SIZE), (2, HALF), any));
        assert!(rereads.on_sent(10, (fid(1), 8, SIZE), (1, HALF), any));
        assert!(rereads.on_sent(10, (fid(1), 9, SIZE), (1, HALF), any));
    }

    #[test]
    fn where_most_files_are_read_again_a_new_one_is_taken_for_such_a_file() {
        let mut rereads = Rereads::default();
        let mut read = |of: core::ops::Range<u32>, reader| {
            let read =
                |number| rereads.on_sent(1 << 16, (fid(number), 7, SIZE), (reader, HALF), any);
            of.map(read).filter(|again| *again).count()
        };
        assert_eq!(read(0..2000, 1), 0);
        assert_eq!(read(0..300, 2), 300);
        assert_eq!(read(2000..2100, 1), 0, "300 of 2000 are not most");
        assert_eq!(read(300..2000, 2), 1700);
        assert_eq!(read(2100..2200, 1), 100);
        // Nobody else reads any of the next ones.
        assert!((400..1600).contains(&read(2200..5000, 1)));
        assert_eq!(read(5000..6000, 1), 0);
    }

    #[test]
    fn the_file_known_for_longest_is_forgotten_first() {
        let mut rereads = Rereads::default();
        for number in 0..5 {
            rereads.on_sent(3, (fid(number), 7, 0), (1, 0), any);
        }
        let known = |number| rereads.files.contains_key(&fid(number));
        assert_eq!([0, 1, 2, 3, 4].map(known), [false, false, true, true, true]);
        assert_eq!(rereads.order.len(), 3);
    }
}
