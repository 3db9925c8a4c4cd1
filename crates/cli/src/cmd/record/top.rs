//! `stormlog top`: the ranks of a job and the runs of a machine, on a screen or as one look in text or JSON.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use stormlog_node::{Fleet, fleet_value};
use stormlog_tui::{AppOptions, Config, ViewName};

use super::live::{columns, left};
use crate::default_path;
use crate::exit::{Exit, MissingInput, UsageError};
use crate::interpreter::this_process;

/// A directory of many runs takes time to read; then what was read by now is printed, and says so.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Options {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) once: bool,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let config = Config::read().map_err(|error| UsageError(error.to_string()))?;
    let mut app = AppOptions {
        paths: options.paths.clone(),
        view: Some(ViewName::Ranks),
        config,
        interpreter: this_process().map(OsStr::to_owned),
    };
    if app.paths.is_empty() && app.config.directories.is_empty() {
        app.paths = vec![default_path::or_runs(None)?];
    }
    let roots = app.roots();
    if let Some(missing) = roots.iter().find(|root| !root.is_dir()) {
        return Err(MissingInput::runs(missing).into());
    }
    if !options.once && !options.json && stormlog_tui::has_screen() {
        return left(stormlog_tui::app(app)?);
    }
    let (overview, jobs) = Fleet::new(roots).whole(PATIENCE);
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{:#}", fleet_value(&overview, &jobs))?;
    } else {
        write!(out, "{}", stormlog_tui::top_text(overview, &jobs, columns()))?;
    }
    Ok(Exit::Ok)
}
