//! What a run was started with and on, as rows of names and values. Secrets were replaced when it was recorded.

use std::path::{Path, PathBuf};

use stormlog_catalog::recording::settings_of;
use stormlog_catalog::run::{RunRecord, find_runs};
use stormlog_render::report::Rows;

use crate::moment::clock;

/// Variables of the environment that are listed.
const MOST_SETTINGS: usize = 400;

/// The run as its own file describes it, then settings and variables.
pub(super) fn environment(paths: &[PathBuf]) -> Vec<(String, Rows)> {
    let Some(path) = paths.first() else { return Vec::new() };
    let mut run = run_rows(path);
    let (mut settings, mut variables) = (Vec::new(), Vec::new());
    for (key, value) in settings_of(path).into_iter().take(MOST_SETTINGS) {
        match key.split_once('.') {
            Some(("environment" | "env", name)) => variables.push((name.to_owned(), value)),
            _ if key == "command" => {}
            _ => settings.push((key, value)),
        }
    }
    run.append(&mut settings);
    let groups = [("run".to_owned(), run), ("environment variables".to_owned(), variables)];
    groups.into_iter().filter(|(_, rows)| !rows.is_empty()).collect()
}

fn run_rows(path: &Path) -> Rows {
    let runs = find_runs(path).map(|found| found.directories).unwrap_or_default();
    let Some(record) = runs.first().and_then(|run| RunRecord::read(run.path()).ok().flatten()) else {
        return Vec::new();
    };
    let moment = |at: Option<i64>| at.and_then(|at| clock(at.into()));
    let rows = [
        ("command", Some(record.command.join(" ")).filter(|command| !command.is_empty())),
        ("working directory", record.working_directory),
        ("host", record.host),
        ("started", moment(record.started_at_ns)),
        ("ended", moment(record.ended_at_ns)),
        ("interval", record.interval_ms.map(|ms| format!("{ms} ms"))),
        ("exit status", record.exit_code.map(|code| code.to_string())),
        ("signal", record.signal.map(|signal| signal.to_string())),
        ("runs at this path", (runs.len() > 1).then(|| runs.len().to_string())),
    ];
    rows.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
