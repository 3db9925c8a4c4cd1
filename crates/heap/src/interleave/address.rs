//! One address that several streams use within a tick: the orders in which its allocations and frees could have alternated.
//!
//! Must always end: an order that is not found within the budget counts as impossible, and the address is then applied in stream order.

use rustc_hash::FxHashMap;

/// Most positions looked at for one address.
const BUDGET: usize = 4096;

/// What the streams do at one address, and how far they are.
#[derive(Debug, Default)]
pub(crate) struct Address {
    /// Was a block there before the tick?
    pub(crate) is_live: bool,
    /// Each stream and what it does here, in its own order; true is a free.
    pub(crate) users: Vec<(usize, Vec<bool>)>,
    at: Vec<u32>,
    /// No order is possible, or none was found: any stream may continue.
    pub(crate) is_loose: bool,
    /// Can all come to their ends from here?
    known: FxHashMap<Vec<u32>, bool>,
}

impl Address {
    pub(crate) fn push(&mut self, stream: usize, is_free: bool) {
        match self.users.last_mut() {
            Some((last, turns)) if *last == stream => turns.push(is_free),
            _ => self.users.push((stream, vec![is_free])),
        }
    }

    /// All is known; finds out whether there is an order at all.
    pub(crate) fn begin(&mut self) {
        self.at = vec![0; self.users.len()];
        let start = self.at.clone();
        if self.can_finish(start.clone()) {
            return;
        }
        // A block older than the recording: freed first, without a record of its allocation.
        self.is_live = !self.is_live;
        self.known.clear();
        self.is_loose = !self.is_live || !self.can_finish(start);
    }

    /// The streams whose next turn it may be. Several: this address alone does not say.
    pub(crate) fn next(&mut self) -> Vec<usize> {
        let mut next = self.at.clone();
        let mut streams = Vec::new();
        for user in self.ready(&self.at) {
            next[user] += 1;
            if self.can_finish(next.clone()) {
                streams.push(self.users[user].0);
            }
            next[user] -= 1;
        }
        streams
    }

    /// This stream advanced, or (with -1) went back.
    pub(crate) fn step(&mut self, stream: usize, by: i32) {
        if let Some(user) = self.users.iter().position(|(other, _)| *other == stream) {
            self.at[user] = self.at[user].saturating_add_signed(by);
        }
    }

    /// Users whose next record fits, those with most left to do first. Every record turns living into free and back.
    fn ready(&self, at: &[u32]) -> Vec<usize> {
        let is_live = self.is_live ^ (at.iter().sum::<u32>() & 1 == 1);
        let left = |user: &usize| self.users[*user].1.len() - at[*user] as usize;
        let fits = |user: &usize| self.users[*user].1.get(at[*user] as usize) == Some(&is_live);
        let mut ready: Vec<usize> = (0..at.len()).filter(fits).collect();
        ready.sort_by_key(|user| std::cmp::Reverse(left(user)));
        ready
    }

    fn is_end(&self, at: &[u32]) -> bool {
        self.users.iter().zip(at).all(|((_, turns), at)| turns.len() == *at as usize)
    }

    fn can_finish(&mut self, from: Vec<u32>) -> bool {
        if let Some(known) = self.known.get(&from) {
            return *known;
        }
        let mut path = vec![(self.ready(&from), from)];
        while let Some((ready, at)) = path.last_mut() {
            let mut is_done = self.is_end(at);
            if !is_done && !ready.is_empty() && self.known.len() < BUDGET {
                let mut next = at.clone();
                next[ready.remove(0)] += 1;
                match self.known.get(&next) {
                    Some(false) => continue,
                    Some(true) => is_done = true,
                    None => {
                        path.push((self.ready(&next), next));
                        continue;
                    }
                }
            }
            if is_done {
                self.known.extend(path.into_iter().map(|(_, at)| (at, true)));
                return true;
            }
            if let Some((_, at)) = path.pop() {
                self.known.insert(at, false);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(is_live: bool, users: &[&str]) -> Address {
        let mut address = Address { is_live, ..Address::default() };
        for (stream, turns) in users.iter().enumerate() {
            turns.chars().for_each(|turn| address.push(stream, turn == 'f'));
        }
        address.begin();
        address
    }

    #[test]
    fn first_stream_is_found() {
        // Read stream by stream, the first would free its own block.
        let mut shared = address(false, &["af", "fa"]);
        assert_eq!(shared.next(), [0]);
        shared.step(0, 1);
        assert_eq!(shared.next(), [1]);
        let mut either = address(true, &["fa", "fa"]);
        assert_eq!(either.next(), [0, 1]);
        assert!(!either.is_loose);
    }

    #[test]
    fn impossible_order_is_loose_and_older_block_is_not() {
        assert!(address(false, &["aa", "a"]).is_loose);
        assert!(address(false, &["aaff", "f"]).is_loose);
        assert!(!address(false, &["f", "a"]).is_loose);
        assert!(!address(false, &["fa", "f"]).is_loose, "a block from before the recording");
        let long = "af".repeat(3000);
        assert!(!address(false, &[&long, &long]).is_loose, "many turns are no trouble");
    }
}
