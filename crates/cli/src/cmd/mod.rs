//! One file a command: options in, text out.

pub(crate) mod analyze;
mod analyze_plots;
pub(crate) mod attach;
mod captures;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod diagnose;
pub(crate) mod heap;
pub(crate) mod info;
pub(crate) mod live;
pub(crate) mod monitor;
pub(crate) mod older_analyze;
pub(crate) mod oom;
mod oom_cuda;
pub(crate) mod query;
mod recordings;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod run_finish;
mod run_heap;
mod run_live;
pub(crate) mod run_start;
pub(crate) mod sessions;
pub(crate) mod snapshot;
mod snapshot_analyze;
pub(crate) mod snapshot_diff;
pub(crate) mod sql;
pub(crate) mod stats;
pub(crate) mod summary;
pub(crate) mod tensorflow;
pub(crate) mod tf_analyze;
pub(crate) mod timeline;
pub(crate) mod track;
pub(crate) mod track_export;
pub(crate) mod validate;
pub(crate) mod watch;
mod whole_file;

/// Whether the process of a session that claims to run has ended.
fn is_dead(session: &stormlog_store::FoundSession) -> bool {
    let of = &session.summary;
    stormlog_supervise::session_life(&session.path, of.pid, &of.host, of.started_at_ns)
        == stormlog_liveness::Life::Dead
}
