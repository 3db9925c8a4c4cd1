//! The steps of a training, as a device's records show them: a step is the first memory that a backward pass takes after memory was taken
//! outside of it. How much lived at the beginning of each says how much a step leaves behind. Must stay small: a run has millions of steps.
//!
//! An optimizer's step is not a clock: it takes memory for its state in the first step, and often none afterwards.

use stormlog_model::gpu_category::{Category, is_backward_frame};

use crate::categories::{frames, is_of_engine, of_site};
use crate::ledger::Site;
use crate::tree::{ROOT, Tree};

/// Steps that are kept; beyond, every second one is dropped.
pub(crate) const MOST_STEPS: usize = 256;
/// Fewer kept steps say nothing about growth.
const LEAST: usize = 8;
/// Least growth over the examined steps for a forecast: a share of the live bytes, and bytes.
const LEAST_SHARE: f64 = 0.01;
const LEAST_BYTES: f64 = (1 << 20) as f64;
/// Share of the pairs of steps between which memory must have grown.
const LEAST_RISING: f64 = 0.8;

/// What a site means for the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Taken by a thread of the autograd engine.
    Engine,
    /// Taken within the pass by a thread with Python frames: the caller's own (the first gradient), or the engine's where it calls back.
    Backward,
    /// Ends a backward pass: the program's own thread is at work again.
    Outside,
    /// Neither: batches come at any time, and what has no stack says nothing.
    Any,
}

/// A backward pass of which only the caller's own part was seen.
const CALLER: u32 = u32::MAX - 1;

/// Counts steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepClock {
    pub(crate) count: u64,
    /// Within a backward pass, by this thread of the engine, or [`CALLER`].
    pub(crate) backward_thread: Option<u32>,
    /// Steps for each kept one.
    pub(crate) stride: u64,
    /// The number of a step, and bytes that lived when its backward pass began.
    pub(crate) points: Vec<(u64, u64)>,
    phases: Vec<Phase>,
}

impl StepClock {
    /// Notes a block of this site, allocated while `level` bytes live.
    pub(crate) fn note(&mut self, site: u32, sites: &[Site], tree: &Tree, level: u64) {
        let at = site as usize;
        while self.phases.len() <= at.min(sites.len().saturating_sub(1)) {
            let phase = sites.get(self.phases.len()).map_or(Phase::Any, |site| phase(tree, site));
            self.phases.push(phase);
        }
        let (Some(phase), Some(thread)) = (self.phases.get(at), sites.get(at).map(|site| site.key.thread))
        else {
            return;
        };
        let engine = match phase {
            Phase::Engine => thread,
            Phase::Backward => self.backward_thread.unwrap_or(CALLER),
            // What is computed once more within the pass (checkpoints) runs on the engine's own thread.
            Phase::Outside if self.backward_thread != Some(thread) => {
                self.backward_thread = None;
                return;
            }
            Phase::Outside | Phase::Any => return,
        };
        if self.backward_thread.replace(engine).is_none() {
            self.count = self.count.saturating_add(1);
            self.keep(level);
        }
    }

    fn keep(&mut self, level: u64) {
        self.stride = self.stride.max(1);
        if !self.count.is_multiple_of(self.stride) {
            return;
        }
        self.points.push((self.count, level));
        if self.points.len() > MOST_STEPS {
            self.stride = self.stride.saturating_mul(2);
            let stride = self.stride;
            self.points.retain(|(step, _)| step.is_multiple_of(stride));
        }
    }

    /// Bytes that a step leaves behind, by the later half of the steps; `None` where memory does not grow, or too few steps were seen. The median
    /// over all pairs: a step that is larger than the others does not count for more.
    pub(crate) fn growth(&self) -> Option<u64> {
        let points = &self.points[self.points.len() / 2..];
        let (first, last) = (points.first()?, points.last()?);
        if points.len() < LEAST {
            return None;
        }
        let mut slopes: Vec<f64> = Vec::new();
        for (at, one) in points.iter().enumerate() {
            for other in &points[at + 1..] {
                slopes.push((other.1 as f64 - one.1 as f64) / (other.0 - one.0).max(1) as f64);
            }
        }
        slopes.sort_unstable_by(f64::total_cmp);
        let rising = slopes.len() - slopes.partition_point(|slope| *slope <= 0.0);
        let median = *slopes.get(slopes.len() / 2)?;
        let grown = median * (last.0 - first.0) as f64;
        let is_growing = rising as f64 >= LEAST_RISING * slopes.len() as f64
            && grown >= LEAST_BYTES.max(LEAST_SHARE * last.1 as f64);
        is_growing.then_some(median as u64).filter(|bytes| *bytes > 0)
    }
}

fn phase(tree: &Tree, site: &Site) -> Phase {
    if site.key.python == ROOT {
        return Phase::Any;
    }
    if is_of_engine(tree, site) {
        return Phase::Engine;
    }
    match of_site(tree, site) {
        _ if frames(tree, site).any(|(file, function)| is_backward_frame(file, function)) => Phase::Backward,
        Some(Category::Inputs) => Phase::Any,
        _ => Phase::Outside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(levels: impl Iterator<Item = u64>) -> StepClock {
        let mut clock = StepClock::default();
        for level in levels {
            clock.count += 1;
            clock.keep(level);
        }
        clock
    }

    #[test]
    fn growth_is_what_a_step_leaves_behind() {
        assert_eq!(clock((0..100).map(|step| (500 << 20) + step * 3_000_000)).growth(), Some(3_000_000));
        let noisy = (0..100).map(|step| (500 << 20) + step * 3_000_000 + (step * 7919 % 5) * 1_000_000);
        assert!(clock(noisy).growth().is_some_and(|bytes| bytes.abs_diff(3_000_000) < 300_000));
    }

    #[test]
    fn a_level_that_only_moves_does_not_grow() {
        assert_eq!(clock((0..100).map(|step| (500 << 20) + (step % 2) * 40_000_000)).growth(), None);
        assert_eq!(clock((0..100).map(|_| 500 << 20)).growth(), None);
        assert_eq!(clock((0..6).map(|step| step << 24)).growth(), None, "too few steps");
        // A start that grew, and a training that does not.
        assert_eq!(clock((0..200u64).map(|step| step.min(40) << 24)).growth(), None);
    }

    #[test]
    fn a_long_training_keeps_few_steps() {
        let clock = clock((0..1_000_000).map(|step| step * 4096));
        assert!(clock.points.len() <= MOST_STEPS && clock.points.len() > MOST_STEPS / 4);
        assert_eq!(clock.growth(), Some(4096));
    }
}
