//! One file a command, a folder a domain (the groups of `stormlog --help`): options in, text out.

pub(crate) mod crash;
pub(crate) mod heap;
pub(crate) mod machine;
pub(crate) mod record;
pub(crate) mod snapshot;
pub(crate) mod telemetry;
mod whole_file;

/// Whether the process of a session that claims to run has ended.
fn is_dead(session: &stormlog_store::FoundSession) -> bool {
    let of = &session.summary;
    stormlog_catalog::run::session_life(&session.path, of.pid, &of.host, of.started_at_ns)
        == stormlog_liveness::Life::Dead
}
