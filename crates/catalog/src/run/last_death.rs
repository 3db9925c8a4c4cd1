//! The newest death below a path: for callers that do not know which run it was, such as a service manager or the end of a job's script does.
//!
//! Which ends are deaths is decided in `deaths.rs`. Must never write.

use std::path::{Path, PathBuf};

use stormlog_model::Launch;
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::list;
use stormlog_store::StoreError;

use super::directory::RunDirectory;
use super::layout::run_around;
use super::process::RunStatus;
use super::record::RunRecord;
use super::search::find_runs;
use super::stored::StoredRun;

/// Levels between a bundle and the directory of its run.
const LEVELS: usize = 3;

/// A death.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// When, in nanoseconds since 1970.
    pub ended_at_ns: i64,
    /// The run's directory; the bundle's where a program left one without a run.
    pub path: PathBuf,
    /// Whether that is a run.
    pub is_run: bool,
    /// What ended it: of the program, else of the process that died.
    pub cause: Option<Cause>,
    /// Job, step and attempt, where a launcher started it.
    pub launch: Option<Launch>,
}

impl Death {
    /// Whether it is of the launch that `caller` belongs to: the same start of a service, or the same job. `None` where that is not known.
    #[must_use]
    pub fn is_of(&self, caller: &Launch) -> Option<bool> {
        let launch = self.launch.as_ref()?;
        match (&launch.invocation_id, &caller.invocation_id) {
            (Some(one), Some(other)) => Some(one == other),
            _ => Some(launch.job_id.as_ref()? == caller.job_id.as_ref()?),
        }
    }
}

/// Deaths at a path, the oldest first.
pub fn deaths_at(path: &Path) -> Result<Vec<Death>, StoreError> {
    let mut found: Vec<Death> = find_runs(path)?.directories.iter().filter_map(of_run).collect();
    for bundle in list(path)?.bundles {
        // What a process of a run left is judged with the run: it may have survived the error.
        let is_of_run = run_around(&bundle.path, LEVELS).is_some();
        let at = bundle.created_at_utc.as_deref().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        let Some(at) = at.filter(|_| !is_of_run) else { continue };
        found.push(Death {
            ended_at_ns: i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX),
            is_run: false,
            path: bundle.path,
            cause: Some(bundle.cause),
            launch: None,
        });
    }
    found.sort_by(|a, b| (a.ended_at_ns, &a.path).cmp(&(b.ended_at_ns, &b.path)));
    Ok(found)
}

fn of_run(directory: &RunDirectory) -> Option<Death> {
    let record = RunRecord::read(directory.path()).ok()??;
    let (ended_at_ns, cause) = match RunStatus::of_word(record.status.as_deref()) {
        // Its supervisor was killed too, and this user may not write what follows from that.
        RunStatus::Running => {
            let stored = StoredRun::of(directory).filter(|run| run.state == RunStatus::Interrupted)?;
            (stored.ended_at_ns?, stored.cause)
        }
        _ => died(&record).map(|(at_ns, cause)| (at_ns, Some(cause)))?,
    };
    Some(Death { ended_at_ns, path: directory.path().to_owned(), is_run: true, cause, launch: record.launch })
}

/// When the last process of a run died, and of what: the program's own cause before its children's.
fn died(record: &RunRecord) -> Option<(i64, Cause)> {
    let deaths = record.deaths();
    let (last, count) = deaths.iter().max_by_key(|(_, count)| count.last_at_ns)?;
    let own = record.cause.as_deref().and_then(Cause::of_word).filter(|own| deaths.contains_key(own));
    Some((count.last_at_ns, own.unwrap_or(*last)))
}
