//! The runs of a machine or of a fleet's directory, read for the overview and for the ranks: both share one reader, so that what one of them read is known
//! to the other.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stormlog_node::{Fleet, JobRow, Overview};

use super::Poller;
use crate::error::TuiError;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// The longest look: a list that takes longer to read is shown as far as it was.
const BUDGET: Duration = Duration::from_millis(400);

/// The reader.
#[derive(Clone)]
pub(crate) struct SharedFleet(Arc<Mutex<Fleet>>);

impl SharedFleet {
    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        SharedFleet(Arc::new(Mutex::new(Fleet::new(roots))))
    }

    /// A thread that reads the overview.
    pub(crate) fn overview(&self) -> Result<Poller<(), Overview>, TuiError> {
        let fleet = self.clone();
        Poller::start("overview", EVERY, (), move |()| fleet.with(|fleet| fleet.overview(BUDGET)))
    }

    /// A thread that reads the jobs; asked for one by its key.
    pub(crate) fn jobs(&self) -> Result<Poller<Option<String>, Vec<JobRow>>, TuiError> {
        let fleet = self.clone();
        Poller::start("ranks", EVERY, None, move |job: &Option<String>| {
            fleet.with(|fleet| fleet.jobs(job.as_deref(), BUDGET))
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Fleet) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
