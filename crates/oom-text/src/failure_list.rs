//! The failures found so far: where one begins, and which one a later message is about.

use std::collections::VecDeque;

use crate::failure::Failure;

/// More failures than this are a program that retries; the last ones decide what happened.
const MAX_FAILURES: usize = 32;

/// Failures in the order of the text; the oldest are forgotten first.
#[derive(Default)]
pub(crate) struct FailureList {
    failures: VecDeque<Failure>,
}

impl FailureList {
    /// A report begins.
    pub fn begin(&mut self, failure: Failure) {
        if self.failures.len() == MAX_FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back(failure);
    }

    /// The report that is being read.
    pub fn last(&mut self) -> Option<&mut Failure> {
        self.failures.back_mut()
    }

    /// The failure that a library's message is about. A library prints its message once or several times after the allocator's report, which
    /// has the same allocator and no other message; otherwise the message is a report of its own.
    pub fn of_message(&mut self, line: u64, message: &str, allocator: Option<&str>) -> Option<&mut Failure> {
        let is_same = |failure: &Failure| {
            let same_allocator = allocator.is_none()
                || failure.allocator.is_none()
                || failure.allocator.as_deref() == allocator;
            same_allocator
                && failure.message.as_deref().is_none_or(|known| known == message)
                && !failure.is_harmless
        };
        if !self.failures.back().is_some_and(is_same) {
            self.begin(Failure { line, ..Failure::default() });
        }
        let failure = self.failures.back_mut()?;
        failure.message = Some(message.to_owned());
        if failure.allocator.is_none() {
            failure.allocator = allocator.map(str::to_owned);
        }
        Some(failure)
    }

    pub fn finish(self) -> Vec<Failure> {
        let mut failures: Vec<Failure> = self.failures.into();
        for failure in &mut failures {
            complete(failure);
        }
        failures
    }
}

/// A dump cut off before its summary has the sizes in its chunks.
fn complete(failure: &mut Failure) {
    if failure.in_use_sizes.is_empty() && failure.chunks_not_kept == 0 {
        let mut counts = std::collections::BTreeMap::<u64, u64>::new();
        for chunk in failure.chunks.iter().filter(|chunk| chunk.in_use) {
            *counts.entry(chunk.size).or_default() += 1;
        }
        failure.in_use_sizes =
            counts.into_iter().map(|(size, chunks)| crate::failure::SizeCount { size, chunks }).collect();
    }
    failure.holders.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
}
