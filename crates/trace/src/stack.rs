//! Files in the order of their last use, with the number of blocks that were used since: the stack
//! of Mattson, Gecsei, Slutz and Traiger (1970). A tree of sums finds the file at a depth.

use std::collections::HashMap;

/// The stack of one client, or of the whole fleet.
#[derive(Default)]
pub(crate) struct Stack {
    /// By place, the place of the latest use last; 0 blocks: the file has moved up since.
    files: Vec<(u32, u32)>,
    places: HashMap<u32, usize>,
    /// A Fenwick tree of the blocks, with room for `room` places; the tree counts from 1 on.
    tree: Vec<u64>,
    total: u64,
}

impl Stack {
    /// A file of so many blocks is used.
    pub(crate) fn used(&mut self, file: u32, blocks: u32) {
        self.remove(file);
        if self.files.len() + 1 >= self.tree.len() {
            self.pack();
        }
        let place = self.files.len();
        self.files.push((file, blocks));
        self.places.insert(file, place);
        self.add(place, i64::from(blocks));
    }

    /// A file is no more.
    pub(crate) fn remove(&mut self, file: u32) {
        if let Some(place) = self.places.remove(&file) {
            let blocks = std::mem::take(&mut self.files[place].1);
            self.add(place, -i64::from(blocks));
        }
    }

    /// The file at a depth of so many blocks.
    pub(crate) fn at(&self, depth: u64) -> Option<u32> {
        // The place up to which there are as many blocks as lie at this depth or deeper.
        let mut left = self.total.checked_sub(depth).filter(|left| *left > 0)?;
        let mut place = 0;
        let mut step = self.tree.len() / 2;
        while step > 0 {
            let next = place + step;
            if next < self.tree.len() && self.tree[next] < left {
                left -= self.tree[next];
                place = next;
            }
            step /= 2;
        }
        self.files.get(place).map(|(file, _)| *file)
    }

    fn add(&mut self, place: usize, blocks: i64) {
        self.total = self.total.wrapping_add_signed(blocks);
        let mut at = place + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add_signed(blocks);
            at += at & at.wrapping_neg();
        }
    }

    /// Leaves out the places of files that have moved up, and makes room for as many again.
    fn pack(&mut self) {
        self.files.retain(|(_, blocks)| *blocks > 0);
        let room = (self.files.len() * 4).next_power_of_two().max(64);
        self.tree = vec![0; room];
        self.total = 0;
        for place in 0..self.files.len() {
            let (file, blocks) = self.files[place];
            self.places.insert(file, place);
            self.add(place, i64::from(blocks));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::splitmix64;

    #[test]
    fn a_file_is_found_at_the_depth_of_the_blocks_used_since() {
        let (mut stack, mut model, mut seed) = (Stack::default(), Vec::new(), 1);
        for _ in 0..5000 {
            let file = (splitmix64(&mut seed) % 300) as u32;
            let blocks = 1 + file % 7;
            model.retain(|(known, _)| *known != file);
            match splitmix64(&mut seed) % 8 {
                0 => stack.remove(file),
                _ => {
                    stack.used(file, blocks);
                    model.insert(0, (file, blocks));
                }
            }
            let depth = splitmix64(&mut seed) % 1300;
            let mut above = 0;
            let found = model.iter().find(|(_, blocks)| {
                above += u64::from(*blocks);
                above > depth
            });
            assert_eq!(stack.at(depth), found.map(|(file, _)| *file));
        }
    }
}
