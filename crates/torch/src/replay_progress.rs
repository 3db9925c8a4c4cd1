//! A replay of every setting worth trying, a few settings at a time: for a screen that shows how far it is.

use std::thread::available_parallelism;

use crate::recording::Recording;
use crate::replay::{Prediction, Replayer, sort};
use crate::report::{ReplayReport, replay_head};
use crate::settings::AllocatorSettings;
use crate::snapshot::Snapshot;

/// What was tried and what is left to try. The snapshot is the caller's, handed in at every step.
#[derive(Debug, Clone)]
pub struct ReplayProgress {
    head: ReplayReport,
    left: Vec<AllocatorSettings>,
    predictions: Vec<Prediction>,
}

impl ReplayProgress {
    /// Proves the model on the recorded settings; nothing is tried yet.
    #[must_use]
    pub fn begin(snapshot: &Snapshot, device: usize, limit: Option<u64>) -> Self {
        let recording = Recording::new(snapshot, device);
        let replayer = Replayer::new(&recording);
        ReplayProgress {
            head: replay_head(&recording, &replayer, limit),
            left: replayer.worth_trying(),
            predictions: Vec::new(),
        }
    }

    /// Tries as many settings as there are cores; false when none was left.
    pub fn step(&mut self, snapshot: &Snapshot) -> bool {
        let cores = available_parallelism().map_or(1, usize::from).min(self.left.len());
        let next: Vec<AllocatorSettings> = self.left.drain(..cores).collect();
        if next.is_empty() {
            return false;
        }
        let recording = Recording::new(snapshot, self.head.device);
        self.predictions.extend(Replayer::new(&recording).predict_all(&next, self.head.limit_bytes));
        sort(&mut self.predictions);
        true
    }

    /// Settings that were tried.
    #[must_use]
    pub fn done(&self) -> usize {
        self.predictions.len()
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.predictions.len() + self.left.len()
    }

    /// What is known so far.
    #[must_use]
    pub fn report(&self) -> ReplayReport {
        let mut report = self.head.clone();
        report.take(self.predictions.clone());
        report
    }
}
