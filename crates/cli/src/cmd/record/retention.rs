//! `stormlog runs list` and `runs prune`, and what `run` removes when it has ended.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use stormlog_catalog::run::{KeepRule, StoredRun, remove_run, stored_runs};
use stormlog_model::text::{inert_lines, short_name};
use stormlog_model::{Launch, format_bytes};

use crate::default_path;
use crate::exit::{CtrlC, Exit};
use crate::table::{self, Table};

/// How long a run that has ended searches for old runs; where the search takes longer, it removes none.
const PATIENCE: Duration = Duration::from_millis(500);

/// Which runs are kept.
pub(crate) enum Keep {
    All,
    Default,
    By(KeepRule),
}

pub(crate) enum Options {
    List { path: Option<PathBuf>, json: bool },
    Prune { path: Option<PathBuf>, keep: Keep, is_dry: bool, json: bool },
}

impl Keep {
    fn rule(&self, root: &Path) -> KeepRule {
        match self {
            Keep::All => KeepRule::default(),
            Keep::Default => KeepRule::default_at(root),
            Keep::By(rule) => *rule,
        }
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let (Options::List { path, json } | Options::Prune { path, json, .. }) = options;
    let root = default_path::or_runs(path.as_deref())?;
    let ctrl_c = CtrlC::watch();
    let Some(mut runs) = stored_runs(&root, &|| ctrl_c.check().is_ok()) else {
        ctrl_c.check()?;
        return Ok(Exit::Ok);
    };
    let mut exit = Exit::Ok;
    if let Options::Prune { keep, is_dry, .. } = options {
        let surplus = keep.rule(&root).surplus(&runs, now_ns());
        runs = surplus.into_iter().map(|at| runs[at].clone()).collect();
        if !is_dry {
            runs.retain(|run| match remove_run(run) {
                Ok(()) => true,
                Err(error) => {
                    exit = Exit::Error;
                    let _ = writeln!(io::stderr(), "Error: {}: not removed: {error}", run.path.display());
                    false
                }
            });
        }
    }
    let mut out = io::stdout().lock();
    if *json {
        writeln!(out, "{:#}", runs.iter().map(StoredRun::to_value).collect::<Value>())?;
    } else {
        print_table(&mut out, &runs)?;
        if let Options::Prune { is_dry, .. } = options {
            let verb = if *is_dry { "would be removed" } else { "removed" };
            writeln!(out, "{} {verb}.", in_words(&runs))?;
        }
    }
    Ok(exit)
}

/// Removes what the rule leaves no room for, once a run has ended. The sentence to print, where something was removed.
pub(crate) fn after_run(root: &Path, keep: &Keep) -> Option<String> {
    if matches!(keep, Keep::All) {
        return None;
    }
    let began = Instant::now();
    let runs = stored_runs(root, &|| began.elapsed() < PATIENCE)?;
    let surplus = keep.rule(root).surplus(&runs, now_ns());
    let removed: Vec<StoredRun> =
        surplus.into_iter().map(|at| runs[at].clone()).filter(|run| remove_run(run).is_ok()).collect();
    (!removed.is_empty()).then(|| {
        let words = in_words(&removed);
        format!(
            "removed {words} to stay within --keep, --keep-size or --keep-days; STORMLOG_KEEP=all keeps all"
        )
    })
}

fn in_words(runs: &[StoredRun]) -> String {
    let bytes = format_bytes(runs.iter().map(|run| run.bytes).sum());
    match runs {
        [run] => format!("{} ({bytes})", short_name(&run.path.display().to_string())),
        runs => format!("{} runs ({bytes})", runs.len()),
    }
}

fn print_table(out: &mut impl Write, runs: &[StoredRun]) -> io::Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    // Of runs that users started only the place is shown.
    let is_launched = runs.iter().any(|run| run.launch.is_some());
    let mut header = vec!["STATE", "STARTED", "SIZE", "RUN", "VERDICT"];
    if is_launched {
        header.insert(3, "LAUNCH");
    }
    let mut table = Table::new(&header, &[2]);
    for run in runs {
        let mut row = vec![
            run.state.as_str().to_owned(),
            run.started_at_ns.map_or_else(|| "-".to_owned(), table::moment),
            format_bytes(run.bytes),
            run.path.display().to_string(),
            run.verdict.clone().unwrap_or_default(),
        ];
        if is_launched {
            row.insert(3, run.launch.as_ref().map(Launch::words).unwrap_or_default());
        }
        table.row(row);
    }
    for line in table.lines() {
        writeln!(out, "{}", inert_lines(&line))?;
    }
    Ok(())
}

fn now_ns() -> i64 {
    i64::try_from(stormlog_store::wall_ns()).unwrap_or(i64::MAX)
}
