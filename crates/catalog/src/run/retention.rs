//! Which runs are kept, and the removal of the others.
//!
//! Only runs of this user are removed, only where they are proven to have ended, and never the last death. Completed runs without findings go
//! first, the oldest of them before the others. The choice is a pure function of what is stored; `run.json` is removed last, so that a
//! removal that was interrupted is continued by the next.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::directory::RunDirectory;
use super::layout::RUN_FILE;
use super::stored::StoredRun;

/// The variables of the rule: the number of runs or `all`, a size, days.
pub const KEEP_VARIABLE: &str = "STORMLOG_KEEP";
/// See [`KEEP_VARIABLE`].
pub const KEEP_SIZE_VARIABLE: &str = "STORMLOG_KEEP_SIZE";
/// See [`KEEP_VARIABLE`].
pub const KEEP_DAYS_VARIABLE: &str = "STORMLOG_KEEP_DAYS";
/// The most that runs take where nothing was chosen.
const DEFAULT_BYTES: u64 = 10 << 30;
/// Divides the size of the file system: runs take at most this part of it where nothing was chosen.
const DEFAULT_SHARE: u64 = 10;
const DAY_NS: i64 = 86_400 * 1_000_000_000;

/// How many runs are kept; what is `None` is not bounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepRule {
    /// Number of runs, the newest.
    pub runs: Option<u64>,
    /// Bytes of disk.
    pub bytes: Option<u64>,
    /// Days since a run ended.
    pub days: Option<u32>,
}

impl KeepRule {
    /// The rule where nothing was chosen: 10 GiB, or a tenth of the file system of `root` where that is less.
    #[must_use]
    pub fn default_at(root: &Path) -> Self {
        let size = rustix::fs::statvfs(root).map(|system| system.f_blocks.saturating_mul(system.f_frsize));
        let share = size.map_or(DEFAULT_BYTES, |size| size / DEFAULT_SHARE);
        KeepRule { bytes: Some(share.min(DEFAULT_BYTES)), ..KeepRule::default() }
    }

    /// The places of the runs that are to be removed, in the order of their removal.
    #[must_use]
    pub fn surplus(&self, runs: &[StoredRun], now_ns: i64) -> Vec<usize> {
        let end = |run: &StoredRun| run.ended_at_ns.or(run.started_at_ns).unwrap_or(i64::MAX);
        let own = || runs.iter().enumerate().filter(|(_, run)| run.is_own);
        let last_death =
            own().filter(|(_, run)| run.is_death).max_by_key(|(_, run)| end(run)).map(|(at, _)| at);
        let mut candidates: Vec<usize> =
            own().filter(|(at, run)| run.is_over && Some(*at) != last_death).map(|(at, _)| at).collect();
        candidates.sort_by_key(|at| (runs[*at].has_findings, end(&runs[*at]), runs[*at].path.clone()));
        let oldest = self.days.map(|days| now_ns.saturating_sub(i64::from(days).saturating_mul(DAY_NS)));
        let is_old = |at: &usize| oldest.is_some_and(|oldest| end(&runs[*at]) < oldest);
        let (mut surplus, younger): (Vec<usize>, Vec<usize>) = candidates.into_iter().partition(is_old);
        let mut count = own().count() as u64 - surplus.len() as u64;
        let removed: u64 = surplus.iter().map(|at| runs[*at].bytes).sum();
        let mut bytes = own().map(|(_, run)| run.bytes).sum::<u64>() - removed;
        for at in younger {
            let is_enough =
                self.runs.is_none_or(|most| count <= most) && self.bytes.is_none_or(|most| bytes <= most);
            if is_enough {
                break;
            }
            count -= 1;
            bytes -= runs[at].bytes;
            surplus.push(at);
        }
        surplus
    }
}

/// The runs that are directories of `root`, oldest first. `None` when `keep_reading` returned false before all were seen.
#[must_use]
pub fn stored_runs(root: &Path, keep_reading: &dyn Fn() -> bool) -> Option<Vec<StoredRun>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if !keep_reading() {
            return None;
        }
        // A link to a run is not a run of this directory.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            runs.extend(RunDirectory::open(&entry.path()).as_ref().and_then(StoredRun::of));
        }
    }
    runs.sort_by(|a, b| (a.started_at_ns, &a.path).cmp(&(b.started_at_ns, &b.path)));
    Some(runs)
}

/// Removes a run that was found to be surplus, unless its directory is another one by now. What is removed is below a handle of the directory: a
/// link that takes its place meanwhile leads nowhere.
pub fn remove_run(run: &StoredRun) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(&run.path, flags, Mode::empty())?;
    if rustix::fs::fstat(&folder)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("the directory belongs to another user now"));
    }
    let below = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    for entry in fs::read_dir(&below)?.flatten() {
        if entry.file_name() == RUN_FILE {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    fs::remove_file(below.join(RUN_FILE))?;
    fs::remove_dir(&run.path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::super::process::RunStatus;
    use super::*;

    fn run(name: &str, ended_day: i64, bytes: u64) -> StoredRun {
        StoredRun {
            cause: None,
            launch: None,
            path: name.into(),
            state: RunStatus::Completed,
            started_at_ns: Some(ended_day * DAY_NS - 5),
            ended_at_ns: Some(ended_day * DAY_NS),
            bytes,
            verdict: None,
            is_own: true,
            is_over: true,
            is_death: false,
            has_findings: false,
        }
    }

    fn names(rule: KeepRule, runs: &[StoredRun]) -> Vec<&str> {
        rule.surplus(runs, 100 * DAY_NS).into_iter().map(|at| runs[at].path.to_str().unwrap()).collect()
    }

    #[test]
    fn completed_runs_without_findings_go_first_and_the_oldest_of_them_before_the_others() {
        let found = StoredRun { has_findings: true, ..run("found", 1, 10) };
        let runs = [found, run("new", 9, 10), run("old", 2, 10)];
        let keep = |runs| KeepRule { runs: Some(runs), ..KeepRule::default() };
        assert_eq!(names(keep(3), &runs), [""; 0]);
        assert_eq!(names(keep(1), &runs), ["old", "new"]);
        assert_eq!(names(keep(0), &runs), ["old", "new", "found"]);
        let bytes = KeepRule { bytes: Some(25), ..KeepRule::default() };
        assert_eq!(names(bytes, &runs), ["old"]);
        assert_eq!(names(KeepRule { days: Some(95), ..KeepRule::default() }, &runs), ["old", "found"]);
        assert_eq!(names(KeepRule::default(), &runs), [""; 0], "nothing is bounded");
    }

    #[test]
    fn the_last_death_and_what_may_live_or_is_not_ours_are_kept() {
        let death = |name: &str, day| StoredRun { is_death: true, has_findings: true, ..run(name, day, 10) };
        let runs = [
            death("first death", 1),
            death("last death", 3),
            StoredRun { is_over: false, ..run("running", 2, 10) },
            StoredRun { is_own: false, ..run("another user's", 2, 1000) },
            StoredRun { started_at_ns: None, ended_at_ns: None, ..run("without a time", 2, 10) },
        ];
        let none = KeepRule { runs: Some(0), bytes: Some(0), days: Some(0) };
        assert_eq!(names(none, &runs), ["first death", "without a time"]);
        let bytes = KeepRule { bytes: Some(40), ..KeepRule::default() };
        assert_eq!(names(bytes, &runs), [""; 0], "what others take does not count");
    }
}
