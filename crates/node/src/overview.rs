//! Everything of a machine in one list: living runs and recordings, the most urgent first, then what has ended.

use std::cmp::{Ordering, Reverse};
use std::path::Path;
use std::sync::Arc;

use stormlog_model::SessionStatus;
use stormlog_postmortem::Cause;

use crate::gpus::GpuRow;
use crate::objects::Cgroup;
use crate::picture::{EndedRow, HostRow, RunRow};
use crate::unattached::SessionRow;

/// The machine, its devices, and what is recorded on it.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// When it was made, nanoseconds since 1970.
    pub at_ns: u64,
    /// The machine.
    pub host: HostRow,
    /// The cgroup that limits this process, where there is one.
    pub own_cgroup: Option<Cgroup>,
    /// The cgroups that limit living runs.
    pub cgroups: Vec<Cgroup>,
    /// The GPUs; `None` until the drivers were asked.
    pub gpus: Option<Vec<GpuRow>>,
    /// Living runs and recordings, the most urgent first.
    pub living: Vec<Item>,
    /// Runs and recordings that have ended, the newest first.
    pub ended: Vec<Item>,
    /// Runs that were not read yet.
    pub unread: u64,
    /// What cannot be read, a sentence each.
    pub problems: Vec<String>,
}

/// A run or a recording without one.
#[derive(Debug, Clone)]
pub enum Item {
    /// A living run.
    Run(Arc<RunRow>),
    /// A recording without a run.
    Session(Arc<SessionRow>),
    /// A run that has ended.
    Ended(Arc<EndedRow>),
}

impl Item {
    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Item::Run(run) => &run.path,
            Item::Session(session) => &session.path,
            Item::Ended(run) => &run.path,
        }
    }

    /// The program's process.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self {
            Item::Run(run) => run.pid,
            Item::Session(session) => Some(session.pid),
            Item::Ended(run) => run.pid,
        }
    }

    /// What the user would call the program.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Item::Run(run) => &run.program,
            Item::Session(session) => &session.program,
            Item::Ended(run) => &run.program,
        }
    }

    /// The job, where a launcher named it.
    #[must_use]
    pub fn job(&self) -> Option<&str> {
        match self {
            Item::Run(run) => run.has_job_id.then_some(&*run.job),
            Item::Session(_) => None,
            Item::Ended(run) => run.launch.as_ref().and_then(|launch| launch.job_id.as_deref()),
        }
    }

    /// Its machine.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            Item::Run(run) => run.host.as_deref(),
            Item::Session(session) => Some(&session.host),
            Item::Ended(run) => run.host.as_deref(),
        }
    }

    /// `running`, `silent` (its samples have stopped), or how it ended.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self {
            Item::Run(run) if run.is_stale && run.is_whole => "silent",
            Item::Run(_) => "running",
            Item::Session(session) => match session.status {
                SessionStatus::Running => "running",
                SessionStatus::Completed => "completed",
                SessionStatus::Interrupted => "interrupted",
                SessionStatus::Incomplete => "unknown",
            },
            Item::Ended(run) => run.status.as_str(),
        }
    }

    /// Whether it is being recorded.
    #[must_use]
    pub fn is_living(&self) -> bool {
        match self {
            Item::Run(_) => true,
            Item::Session(session) => session.is_living,
            Item::Ended(_) => false,
        }
    }

    /// Bytes resident now.
    #[must_use]
    pub fn resident(&self) -> Option<u64> {
        match self {
            Item::Run(run) => run.resident,
            Item::Session(session) => session.resident,
            Item::Ended(_) => None,
        }
    }

    /// Bytes held on devices now.
    #[must_use]
    pub fn device(&self) -> Option<u64> {
        match self {
            Item::Run(run) => run.device,
            Item::Session(session) => session.device,
            Item::Ended(_) => None,
        }
    }

    /// Most bytes resident, as far as that was read.
    #[must_use]
    pub fn peak(&self) -> Option<u64> {
        match self {
            Item::Run(run) => run.peak,
            Item::Session(session) => session.peak,
            Item::Ended(run) => run.peak_rss_bytes,
        }
    }

    /// Growth of what is resident, in bytes a second.
    #[must_use]
    pub fn growth(&self) -> Option<f64> {
        match self {
            Item::Run(run) => run.growth,
            Item::Session(session) => session.growth,
            Item::Ended(_) => None,
        }
    }

    /// Seconds until a limit is reached.
    #[must_use]
    pub fn time_to_limit(&self) -> Option<f64> {
        match self {
            Item::Run(run) => run.time_to_limit,
            Item::Session(session) => session.time_to_limit,
            Item::Ended(_) => None,
        }
    }

    /// The size that it is compared by: now, else at its peak.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.resident().or_else(|| self.peak())
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub fn started_at_ns(&self) -> Option<i64> {
        match self {
            Item::Run(run) => run.started_at_ns,
            Item::Session(session) => Some(session.started_at_ns),
            Item::Ended(run) => run.started_at_ns,
        }
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub fn ended_at_ns(&self) -> Option<i64> {
        match self {
            Item::Run(_) => None,
            Item::Session(session) => session.ended_at_ns,
            Item::Ended(run) => run.ended_at_ns,
        }
    }

    /// What ended it, as a sentence.
    #[must_use]
    pub fn verdict(&self) -> Option<&str> {
        match self {
            Item::Ended(run) => run.verdict.as_deref(),
            Item::Run(_) | Item::Session(_) => None,
        }
    }

    /// The same as a word.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Item::Ended(run) => run.cause,
            Item::Run(_) | Item::Session(_) => None,
        }
    }
}

/// What is nearest to its limit first, then what grows fastest, then the largest.
#[must_use]
pub fn by_urgency(
    a: (Option<f64>, Option<f64>, Option<u64>),
    b: (Option<f64>, Option<f64>, Option<u64>),
) -> Ordering {
    let soonest = a.0.unwrap_or(f64::INFINITY).total_cmp(&b.0.unwrap_or(f64::INFINITY));
    let fastest = || b.1.unwrap_or(0.0).total_cmp(&a.1.unwrap_or(0.0));
    soonest.then_with(fastest).then_with(|| b.2.cmp(&a.2))
}

/// Sorts living ones by urgency, and the others by their ends.
pub(crate) fn sorted(items: impl Iterator<Item = Item>) -> (Vec<Item>, Vec<Item>) {
    let (mut living, mut ended): (Vec<Item>, Vec<Item>) = items.partition(Item::is_living);
    let urgency = |item: &Item| (item.time_to_limit(), item.growth(), item.size());
    living.sort_by(|a, b| by_urgency(urgency(a), urgency(b)).then_with(|| a.path().cmp(b.path())));
    ended.sort_by_cached_key(|item| {
        Reverse((item.ended_at_ns().or(item.started_at_ns()), item.path().to_owned()))
    });
    (living, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_to_limit_is_before_growth_and_growth_before_size() {
        let mut rows = [
            (None, None, Some(9)),
            (None, Some(1.0), Some(1)),
            (Some(60.0), None, None),
            (None, Some(5.0), None),
            (Some(3.0), Some(0.1), Some(1)),
            (None, None, None),
        ];
        rows.sort_by(|a, b| by_urgency(*a, *b));
        assert_eq!(rows.map(|row| row.2), [Some(1), None, None, Some(1), Some(9), None], "{rows:?}");
    }
}
