//! Searches an order of a tick's records at shared addresses that is consistent for every address and every stream at once.
//!
//! Where only one stream can be next, it is taken first. Where an address leaves a choice, the stream that is furthest behind in its share of the
//! tick goes first, which is the most likely order; a choice that leads to a contradiction is taken back. After too many of these, the search begins again
//! with another strategy. Must always end: where no strategy finds an order, the records are applied in stream order.

use std::collections::BTreeSet;

use super::address::Address;

/// Most choices undone in one attempt.
const MOST_TAKEN_BACK: usize = 20_000;

/// Strategies, tried in turn until one finds an order. A contradiction usually undoes the choice that caused it, which is fast but may skip an
/// order that exists; every n-th one undoes the most recent choice instead.
const ATTEMPTS: [Attempt; 8] = [
    Attempt { prefers: Prefers::FurthestBehind, back_to_last: 16 },
    Attempt { prefers: Prefers::FurthestBehind, back_to_last: 3 },
    Attempt { prefers: Prefers::Same, back_to_last: 16 },
    Attempt { prefers: Prefers::Same, back_to_last: 3 },
    Attempt { prefers: Prefers::Same, back_to_last: 7 },
    Attempt { prefers: Prefers::FurthestBehind, back_to_last: 7 },
    Attempt { prefers: Prefers::Same, back_to_last: 1 },
    Attempt { prefers: Prefers::FurthestBehind, back_to_last: 1 },
];

#[derive(Clone, Copy)]
struct Attempt {
    prefers: Prefers,
    /// Every n-th contradiction undoes the most recent choice instead of the one that caused it.
    back_to_last: usize,
}

/// The stream that goes first where an address leaves a choice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefers {
    /// The one that is furthest behind in its share of the tick: threads that run side by side.
    FurthestBehind,
    /// The one that went last, as long as it can: threads that take turns on a busy machine.
    Same,
}

/// A stream's record at a shared address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedRecord {
    pub(crate) address: usize,
    /// Where it is in the stream's share of the tick, from 0 to 1.
    pub(crate) when: f32,
}

struct Choice {
    done: usize,
    address: usize,
    refused: Vec<usize>,
}

/// The streams in the order they continue at each address. `budget` is the number of steps that may be undone, in this tick and all that follow.
pub(crate) fn solve(
    addresses: &mut [Address],
    streams: &[(usize, Vec<SharedRecord>)],
    budget: &mut usize,
) -> Vec<Vec<usize>> {
    let mut search = Search { addresses, streams, at: vec![0; streams.len()], done: Vec::new() };
    let is_solved = ATTEMPTS.iter().any(|attempt| {
        search.back_to(0);
        search.run(budget, attempt)
    });
    if !is_solved {
        search.rest();
    }
    let mut orders = vec![Vec::new(); search.addresses.len()];
    for (stream, address) in search.done {
        orders[address].push(streams[stream].0);
    }
    orders
}

struct Search<'a> {
    addresses: &'a mut [Address],
    streams: &'a [(usize, Vec<SharedRecord>)],
    at: Vec<usize>,
    /// Stream and address of every step.
    done: Vec<(usize, usize)>,
}

impl Search<'_> {
    fn run(&mut self, budget: &mut usize, attempt: &Attempt) -> bool {
        let mut choices: Vec<Choice> = Vec::new();
        let mut refused: Vec<usize> = Vec::new();
        let mut taken_back = 0;
        loop {
            if refused.is_empty() {
                self.certain();
            }
            if self.streams.iter().zip(&self.at).all(|((_, turns), at)| turns.len() == *at) {
                return true;
            }
            let open = (0..self.streams.len()).filter(|stream| !refused.contains(stream));
            let open = open.filter_map(|stream| Some((stream, *self.turn(stream)?))).collect::<Vec<_>>();
            let same =
                self.done.last().filter(|_| attempt.prefers == Prefers::Same).map(|(stream, _)| *stream);
            let mut best: Option<(usize, SharedRecord)> = None;
            for (stream, turn) in open {
                let is_earlier = best.is_none_or(|(best, earliest)| {
                    same == Some(stream) || (same != Some(best) && turn.when < earliest.when)
                });
                if is_earlier && self.addresses[turn.address].next().contains(&self.streams[stream].0) {
                    best = Some((stream, turn));
                }
            }
            if let Some((stream, turn)) = best {
                refused.push(stream);
                let refused = std::mem::take(&mut refused);
                choices.push(Choice { done: self.done.len(), address: turn.address, refused });
                self.go(stream, turn.address);
                continue;
            }
            // The cause is a choice at an address that a stream waits for.
            let waited: BTreeSet<usize> =
                (0..self.streams.len()).filter_map(|stream| Some(self.turn(stream)?.address)).collect();
            taken_back += 1;
            if taken_back % attempt.back_to_last != 0
                && let Some(to_blame) = choices.iter().rposition(|choice| waited.contains(&choice.address))
            {
                choices.truncate(to_blame + 1);
            }
            let Some(choice) = choices.pop().filter(|_| taken_back < MOST_TAKEN_BACK) else { return false };
            let steps = self.done.len() - choice.done;
            if steps > *budget {
                return false;
            }
            *budget -= steps;
            self.back_to(choice.done);
            refused = choice.refused;
        }
    }

    /// Takes every step that has no alternative.
    fn certain(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for stream in 0..self.streams.len() {
                while let Some(turn) = self.turn(stream).copied() {
                    let address = &mut self.addresses[turn.address];
                    if !address.is_loose && address.next() != [self.streams[stream].0] {
                        break;
                    }
                    self.go(stream, turn.address);
                    moved = true;
                }
            }
        }
    }

    /// The remaining records, in stream order.
    fn rest(&mut self) {
        while let Some((stream, turn)) = (0..self.streams.len())
            .filter_map(|stream| Some((stream, *self.turn(stream)?)))
            .min_by(|one, other| one.1.when.total_cmp(&other.1.when))
        {
            self.go(stream, turn.address);
        }
    }

    fn turn(&self, stream: usize) -> Option<&SharedRecord> {
        self.streams[stream].1.get(self.at[stream])
    }

    fn go(&mut self, stream: usize, address: usize) {
        self.addresses[address].step(self.streams[stream].0, 1);
        self.at[stream] += 1;
        self.done.push((stream, address));
    }

    fn back_to(&mut self, done: usize) {
        for (stream, address) in self.done.drain(done..).rev() {
            self.addresses[address].step(self.streams[stream].0, -1);
            self.at[stream] -= 1;
        }
    }
}
