//! Reads a fleet from a lake or from run directories, with one reader for each core. Each reader gathers what it reads by itself; the parts are merged
//! at the end. Memory is bounded by the number of ranks and by some rows of a lake or one run a reader.

#[cfg(feature = "parquet")]
mod lake;
mod runs;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use stormlog_store::StoreError;

use crate::gather::Gathered;
use crate::meeting::stored_id;
use crate::report::{Problems, Report};
use crate::summary::summarise;

/// What is read.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Only this job.
    pub job: Option<String>,
    /// Only rows from this time on, microseconds since 1970.
    pub since_us: Option<i64>,
    /// Readers; 0 for one on each core.
    pub readers: usize,
}

impl Scope {
    /// The id that the rows of the job have.
    fn stored_job(&self) -> Option<&str> {
        self.job.as_deref().map(stored_id)
    }

    fn wants_job(&self, job_id: &str) -> bool {
        self.stored_job().is_none_or(|job| job == job_id)
    }

    fn wants_time(&self, at_us: i64) -> bool {
        self.since_us.is_none_or(|since| at_us >= since)
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A path could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A lake could not be read.
    #[error(transparent)]
    Lake(#[from] stormlog_lake::LakeError),
    /// Nothing at the paths is a recording or a lake.
    #[error("{}: neither a lake nor a directory of runs; `stormlog run` makes runs, `stormlog publish DIR --to LAKE` a lake", .0.display())]
    Nothing(PathBuf),
    /// What is there cannot be read: not permitted, or all of it is damaged.
    #[error("{0}; nothing could be read")]
    Unreadable(String),
    /// Built without Parquet.
    #[error("{}: is a lake, and this build cannot read Parquet; use the released package", .0.display())]
    NoParquet(PathBuf),
}

/// The report over lakes and run directories. The same rows give the same numbers, wherever they are read from.
pub fn report(paths: &[PathBuf], scope: &Scope) -> Result<Report, FleetError> {
    let (mut gathered, mut problems) = (Gathered::default(), Problems::default());
    let (lakes, others): (Vec<&PathBuf>, Vec<&PathBuf>) =
        paths.iter().partition(|path| stormlog_lake::is_lake(path));
    let others: Vec<PathBuf> = others.into_iter().cloned().collect();
    let mut parts: Vec<_> = lakes.into_iter().map(|lake| read_lake(lake, scope)).collect();
    if !others.is_empty() {
        parts.push(runs::read(&others, scope));
    }
    let mut unreadable = None;
    let (mut count, all) = (0, parts.len());
    for part in parts {
        match part {
            Ok((more, wrong)) => {
                gathered.merge(more);
                problems.merge(wrong);
            }
            Err(FleetError::Unreadable(what)) => {
                problems.torn(what.clone());
                unreadable.get_or_insert(what);
                count += 1;
            }
            Err(error) => return Err(error),
        }
    }
    // One of several that cannot be read costs no more than itself.
    if let Some(what) = unreadable.filter(|_| count == all) {
        return Err(FleetError::Unreadable(what));
    }
    if let Some(job) = scope.job.as_deref().filter(|job| stored_id(job) != *job) {
        gathered.settle();
        gathered.join_meetings();
        gathered.jobs.retain(|id, _| **id == *job);
    }
    Ok(summarise(gathered, problems))
}

#[cfg(feature = "parquet")]
fn read_lake(lake: &Path, scope: &Scope) -> Result<(Gathered, Problems), FleetError> {
    lake::read(lake, scope)
}

#[cfg(not(feature = "parquet"))]
fn read_lake(lake: &Path, _: &Scope) -> Result<(Gathered, Problems), FleetError> {
    Err(FleetError::NoParquet(lake.to_owned()))
}

/// Gives every item to a reader, and merges what the readers gathered.
fn in_parallel<T: Sync>(
    items: &[T],
    readers: usize,
    read: impl Fn(&T, &mut Gathered, &mut Problems) + Sync,
) -> (Gathered, Problems) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let readers = if readers == 0 { cores } else { readers }.clamp(1, items.len().max(1));
    let next = AtomicUsize::new(0);
    let merged = Mutex::new((Gathered::default(), Problems::default()));
    let work = || {
        let (mut gathered, mut problems) = (Gathered::default(), Problems::default());
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            read(item, &mut gathered, &mut problems);
        }
        let mut merged = merged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        merged.0.merge(gathered);
        merged.1.merge(problems);
    };
    std::thread::scope(|scope| {
        for _ in 1..readers {
            scope.spawn(work);
        }
        work();
    });
    merged.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
