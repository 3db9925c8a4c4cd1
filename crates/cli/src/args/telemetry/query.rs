//! What can be typed after `query` and `sql`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stormlog_catalog::query as catalog;

use crate::cmd::telemetry::{query, sql};

/// Query recordings with SQL (needs: pip install 'stormlog[sql]')
///
/// The tables are events, sessions, runs, ooms, issues and findings. Needs DuckDB, which comes with the
/// Python package: pip install 'stormlog[sql]'. Without it, use `stormlog query`, or `stormlog convert IN
/// OUT.parquet` for a file that DuckDB, Spark and others read.
#[derive(Debug, Args)]
pub(crate) struct Sql {
    /// A recording of any kind, or a directory of them
    path: Option<PathBuf>,
    /// SQL, as in "select max(device_used_bytes) from events"
    statement: Option<String>,
    /// Rows as a JSON list
    #[arg(long)]
    json: bool,
    /// Rows as CSV
    #[arg(long)]
    csv: bool,
}

impl From<Sql> for sql::Options {
    fn from(typed: Sql) -> Self {
        sql::Options { path: typed.path, statement: typed.statement, json: typed.json, csv: typed.csv }
    }
}

/// List runs, sessions, events, bundles, issues and figures of recordings
///
/// Prints tables for people, JSON and CSV for programs.
#[derive(Debug, Args)]
pub(crate) struct Query {
    #[command(subcommand)]
    target: Target,
}

// How rows are written.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Mode {
    /// JSON rows
    #[arg(long)]
    json: bool,
    /// A table (the default)
    #[arg(long)]
    table: bool,
    /// CSV rows
    #[arg(long)]
    csv: bool,
}

#[derive(Debug, Args)]
struct PathArgs {
    /// Files, sinks, bundles or directories of them (default: stormlog-runs)
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// List runs: processes that were started together
    Runs {
        #[command(flatten)]
        from: PathArgs,
        #[command(flatten)]
        filter: Box<RunFlags>,
    },
    /// List what belongs to runs: sinks, recordings, bundles, their attachments
    Attachments {
        #[command(flatten)]
        from: PathArgs,
        #[command(flatten)]
        filter: Box<RunFlags>,
        /// Only attachments of this kind
        #[arg(long)]
        kind: Option<String>,
    },
    /// List sessions
    Sessions {
        #[command(flatten)]
        from: PathArgs,
        /// Only this session
        #[arg(long)]
        session_id: Option<String>,
        /// Only sessions in this state: running, completed, interrupted, incomplete
        #[arg(long)]
        status: Option<String>,
        /// Only this job
        #[arg(long)]
        job_id: Option<String>,
        /// Only this rank
        #[arg(long)]
        rank: Option<i64>,
        /// Only sessions of jobs with this many ranks
        #[arg(long)]
        world_size: Option<i64>,
        /// Only sessions of this kind of source
        #[arg(long)]
        source_kind: Option<String>,
        /// Only sessions with an OOM bundle
        #[arg(long, overrides_with = "no_has_oom_bundle")]
        has_oom_bundle: bool,
        /// Only sessions without an OOM bundle
        #[arg(long)]
        no_has_oom_bundle: bool,
    },
    /// List events
    Events {
        #[command(flatten)]
        from: PathArgs,
        #[command(flatten)]
        filter: Box<EventFlags>,
    },
    /// List OOM bundles
    Ooms {
        #[command(flatten)]
        from: PathArgs,
        /// Only this session
        #[arg(long)]
        session_id: Option<String>,
        /// Only this backend: cuda, rocm, mps, cpu, ...
        #[arg(long)]
        backend: Option<String>,
        /// Only bundles with this reason
        #[arg(long)]
        reason: Option<String>,
        /// Only bundles created at this time (ISO 8601) or later
        #[arg(long)]
        created_after: Option<String>,
        /// Only bundles created at this time (ISO 8601) or earlier
        #[arg(long)]
        created_before: Option<String>,
    },
    /// List issues; identical failures are counted as one
    Issues {
        #[command(flatten)]
        from: PathArgs,
        /// Only the issue with this fingerprint
        #[arg(long)]
        fingerprint_id: Option<String>,
        /// Only issues of this kind
        #[arg(long, value_parser = ["oom", "collector_degradation", "alert", "hidden_memory_anomaly"])]
        kind: Option<String>,
        /// Only issues in this state
        #[arg(long, value_parser = ["open", "resolved", "ignored", "regressed"])]
        state: Option<String>,
        /// Only issues of this severity: info, warning, critical
        #[arg(long)]
        severity: Option<String>,
        /// Only this session
        #[arg(long)]
        session_id: Option<String>,
    },
    /// Print one number per group
    Summary {
        #[command(flatten)]
        from: PathArgs,
        /// The number to print for each group
        #[arg(long, value_parser = catalog::METRICS)]
        metric: String,
        /// Field to group the rows by
        #[arg(long, default_value = "session", value_parser = catalog::GROUPS)]
        group_by: String,
    },
    /// List events, alerts and bundles around a point in time
    Correlate {
        #[command(flatten)]
        from: PathArgs,
        /// The moment (nanoseconds since 1970)
        #[arg(long, required_unless_present = "record_id", conflicts_with = "record_id")]
        at_ns: Option<u64>,
        /// The record that gives the moment
        #[arg(long)]
        record_id: Option<String>,
        /// Only this session
        #[arg(long, alias = "session")]
        session_id: Option<String>,
        /// Only this job
        #[arg(long)]
        job_id: Option<String>,
        /// Only this rank
        #[arg(long)]
        rank: Option<i64>,
        /// Scope of the search: one session, or all ranks of its job
        #[arg(long, default_value = "session", value_parser = ["session", "distributed"])]
        scope: String,
        /// Time window on either side of the moment, in nanoseconds
        #[arg(long, default_value_t = 60_000_000_000)]
        window_ns: u64,
        /// Only evidence of this kind; may be repeated
        #[arg(long, value_parser = catalog::EVIDENCE_KINDS)]
        kind: Vec<String>,
        /// Print at most this many rows
        #[arg(long)]
        limit: Option<usize>,
    },
}

#[derive(Debug, Args)]
struct RunFlags {
    /// Only the run with this id
    #[arg(long)]
    run_id: Option<String>,
    /// Only this session
    #[arg(long, alias = "session")]
    session_id: Option<String>,
    /// Only this job
    #[arg(long)]
    job_id: Option<String>,
    /// Only this rank
    #[arg(long)]
    rank: Option<i64>,
    /// Only runs of this source, for example a scheduler
    #[arg(long)]
    source_namespace: Option<String>,
    /// Only runs with this reference in their source
    #[arg(long)]
    source_ref: Option<String>,
}

impl From<RunFlags> for catalog::RunFilter {
    fn from(typed: RunFlags) -> Self {
        let RunFlags { run_id, session_id, job_id, rank, source_namespace, source_ref } = typed;
        catalog::RunFilter { run_id, session_id, job_id, rank, source_namespace, source_ref }
    }
}

#[derive(Debug, Args)]
struct EventFlags {
    /// Only this session
    #[arg(long)]
    session_id: Option<String>,
    /// Only events of this type: sample, warning, error, ...
    #[arg(long)]
    event_type: Option<String>,
    /// Only this rank
    #[arg(long)]
    rank: Option<i64>,
    /// Only events of this collector
    #[arg(long)]
    collector: Option<String>,
    /// State of the session
    #[arg(long)]
    status: Option<String>,
    /// Only events from this time on (nanoseconds since 1970)
    #[arg(long)]
    time_start_ns: Option<u64>,
    /// Only events up to this time (nanoseconds since 1970)
    #[arg(long)]
    time_end_ns: Option<u64>,
    /// Only alerts
    #[arg(long, overrides_with = "no_has_alert")]
    has_alert: bool,
    /// Only events that are not alerts
    #[arg(long)]
    no_has_alert: bool,
    /// Only events with this collector health: healthy, degraded, unhealthy
    #[arg(long)]
    collector_health_status: Option<String>,
    /// Only this backend: cuda, rocm, mps, cpu, ...
    #[arg(long)]
    backend: Option<String>,
    /// Print at most this many rows
    #[arg(long)]
    limit: Option<usize>,
}

/// `--x` is yes, `--no-x` is no, neither is either.
fn either(yes: bool, no: bool) -> Option<bool> {
    if yes { Some(true) } else { no.then_some(false) }
}

impl From<Query> for query::Options {
    fn from(typed: Query) -> Self {
        let (from, target) = match typed.target {
            Target::Runs { from, filter } => (from, query::Target::Runs((*filter).into())),
            Target::Attachments { from, filter, kind } => {
                let RunFlags { run_id, session_id, job_id, rank, source_namespace, source_ref } = *filter;
                let filter = catalog::AttachmentFilter {
                    run_id,
                    session_id,
                    job_id,
                    rank,
                    kind,
                    source_namespace,
                    source_ref,
                };
                (from, query::Target::Attachments(filter))
            }
            Target::Sessions {
                from,
                session_id,
                status,
                job_id,
                rank,
                world_size,
                source_kind,
                has_oom_bundle,
                no_has_oom_bundle,
            } => (
                from,
                query::Target::Sessions(catalog::SessionFilter {
                    session_id,
                    status,
                    job_id,
                    rank,
                    world_size,
                    source_kind,
                    has_oom_bundle: either(has_oom_bundle, no_has_oom_bundle),
                }),
            ),
            Target::Events { from, filter } => (
                from,
                query::Target::Events(catalog::EventFilter {
                    session_id: filter.session_id,
                    event_type: filter.event_type,
                    rank: filter.rank,
                    collector: filter.collector,
                    status: filter.status,
                    time_start_ns: filter.time_start_ns.map(i128::from),
                    time_end_ns: filter.time_end_ns.map(i128::from),
                    has_alert: either(filter.has_alert, filter.no_has_alert),
                    collector_health_status: filter.collector_health_status,
                    backend: filter.backend,
                    limit: filter.limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)),
                }),
            ),
            Target::Ooms { from, session_id, backend, reason, created_after, created_before } => (
                from,
                query::Target::Ooms(catalog::BundleFilter {
                    session_id,
                    backend,
                    reason,
                    created_after,
                    created_before,
                }),
            ),
            Target::Issues { from, fingerprint_id, kind, state, severity, session_id } => (
                from,
                query::Target::Issues(catalog::IssueFilter {
                    fingerprint_id,
                    kind,
                    state,
                    severity,
                    session_id,
                }),
            ),
            Target::Summary { from, metric, group_by } => (from, query::Target::Summary { metric, group_by }),
            Target::Correlate {
                from,
                at_ns,
                record_id,
                session_id,
                job_id,
                rank,
                scope,
                window_ns,
                kind,
                limit,
            } => (
                from,
                query::Target::Correlate(catalog::CorrelationFilter {
                    at_ns: at_ns.map(i128::from),
                    record_id,
                    session_id,
                    job_id,
                    rank,
                    is_distributed: scope == "distributed",
                    window_ns: window_ns.into(),
                    kinds: kind,
                    limit,
                }),
            ),
        };
        let mode = match from.mode {
            Mode { json: true, .. } => query::Mode::Json,
            Mode { csv: true, .. } => query::Mode::Csv,
            _ => query::Mode::Table,
        };
        query::Options { paths: from.paths, mode, target }
    }
}
