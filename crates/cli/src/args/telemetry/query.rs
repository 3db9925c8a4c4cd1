//! What can be typed after `query` and `sql`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stormlog_catalog::query as catalog;

use crate::cmd::telemetry::{query, sql};

/// Tables: events, sessions, runs, ooms, issues, findings. It needs DuckDB, which comes with the Python package only:
/// pip install 'stormlog[sql]'. This program by itself can answer with `stormlog query`, and `stormlog convert IN OUT.parquet`
/// makes a file that DuckDB, Spark and others read as it is.
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

/// Rows out of recordings: tables for people, JSON and CSV for programs.
#[derive(Debug, Args)]
pub(crate) struct Query {
    #[command(subcommand)]
    target: Target,
}

/// How rows are written.
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
struct Place {
    /// Files, sinks, bundles or directories of them (default: stormlog-runs)
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Target {
    /// Runs: what was started together
    Runs {
        #[command(flatten)]
        from: Place,
        #[command(flatten)]
        filter: Box<RunFlags>,
    },
    /// What belongs to runs: sinks, recordings, bundles, and what they name themselves
    Attachments {
        #[command(flatten)]
        from: Place,
        #[command(flatten)]
        filter: Box<RunFlags>,
        #[arg(long)]
        kind: Option<String>,
    },
    /// Sessions
    Sessions {
        #[command(flatten)]
        from: Place,
        #[arg(long)]
        session_id: Option<String>,
        #[arg(long)]
        status: Option<String>,
        #[arg(long)]
        job_id: Option<String>,
        #[arg(long)]
        rank: Option<i64>,
        #[arg(long)]
        world_size: Option<i64>,
        #[arg(long)]
        source_kind: Option<String>,
        #[arg(long, overrides_with = "no_has_oom_bundle")]
        has_oom_bundle: bool,
        #[arg(long)]
        no_has_oom_bundle: bool,
    },
    /// Events
    Events {
        #[command(flatten)]
        from: Place,
        #[command(flatten)]
        filter: Box<EventFlags>,
    },
    /// Bundles
    Ooms {
        #[command(flatten)]
        from: Place,
        #[arg(long)]
        session_id: Option<String>,
        #[arg(long)]
        backend: Option<String>,
        #[arg(long)]
        reason: Option<String>,
        #[arg(long)]
        created_after: Option<String>,
        #[arg(long)]
        created_before: Option<String>,
    },
    /// What went wrong, the same things counted together
    Issues {
        #[command(flatten)]
        from: Place,
        #[arg(long)]
        fingerprint_id: Option<String>,
        #[arg(long, value_parser = ["oom", "collector_degradation", "alert", "hidden_memory_anomaly"])]
        kind: Option<String>,
        #[arg(long, value_parser = ["open", "resolved", "ignored", "regressed"])]
        state: Option<String>,
        #[arg(long)]
        severity: Option<String>,
        #[arg(long)]
        session_id: Option<String>,
    },
    /// One number a group
    Summary {
        #[command(flatten)]
        from: Place,
        #[arg(long, value_parser = catalog::METRICS)]
        metric: String,
        #[arg(long, default_value = "session", value_parser = catalog::GROUPS)]
        group_by: String,
    },
    /// What else happened around a moment
    Correlate {
        #[command(flatten)]
        from: Place,
        #[arg(long, required_unless_present = "record_id", conflicts_with = "record_id")]
        at_ns: Option<u64>,
        #[arg(long)]
        record_id: Option<String>,
        #[arg(long, alias = "session")]
        session_id: Option<String>,
        #[arg(long)]
        job_id: Option<String>,
        #[arg(long)]
        rank: Option<i64>,
        #[arg(long, default_value = "session", value_parser = ["session", "distributed"])]
        scope: String,
        #[arg(long, default_value_t = 60_000_000_000)]
        window_ns: u64,
        #[arg(long, value_parser = catalog::EVIDENCE_KINDS)]
        kind: Vec<String>,
        #[arg(long)]
        limit: Option<usize>,
    },
}

#[derive(Debug, Args)]
struct RunFlags {
    #[arg(long)]
    run_id: Option<String>,
    #[arg(long, alias = "session")]
    session_id: Option<String>,
    #[arg(long)]
    job_id: Option<String>,
    #[arg(long)]
    rank: Option<i64>,
    #[arg(long)]
    source_namespace: Option<String>,
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
    #[arg(long)]
    session_id: Option<String>,
    #[arg(long)]
    event_type: Option<String>,
    #[arg(long)]
    rank: Option<i64>,
    #[arg(long)]
    collector: Option<String>,
    /// State of the session
    #[arg(long)]
    status: Option<String>,
    #[arg(long)]
    time_start_ns: Option<u64>,
    #[arg(long)]
    time_end_ns: Option<u64>,
    #[arg(long, overrides_with = "no_has_alert")]
    has_alert: bool,
    #[arg(long)]
    no_has_alert: bool,
    #[arg(long)]
    collector_health_status: Option<String>,
    #[arg(long)]
    backend: Option<String>,
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
