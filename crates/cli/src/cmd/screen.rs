//! `stormlog tui`, and `stormlog` alone in a terminal.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use stormlog_catalog::run::layout::RUNS_DIRECTORY;
use stormlog_tui::{AppOptions, Config, ViewName};

use crate::cmd::record::live;
use crate::default_path;
use crate::exit::{Exit, MissingInput};
use crate::interpreter::this_process;

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) view: Option<ViewName>,
}

/// Whether a bare `stormlog` opens the screen: there is one, and a keyboard.
pub(crate) fn is_possible() -> bool {
    stormlog_tui::has_screen() && io::stdin().is_terminal()
}

pub(crate) fn run(options: Options) -> anyhow::Result<Exit> {
    let Options { mut paths, view } = options;
    if let Some(missing) = paths.iter().find(|path| !path.exists()) {
        return Err(
            MissingInput(format!("{}: not found; give runs or a recording", missing.display())).into()
        );
    }
    let config = Config::read()?;
    if paths.is_empty() {
        paths.clone_from(&config.directories);
    }
    if paths.is_empty() {
        // Runs that begin later are found there too.
        paths = vec![default_path::or_runs(None).unwrap_or_else(|_| PathBuf::from(RUNS_DIRECTORY))];
    }
    live::left(stormlog_tui::app(AppOptions {
        paths,
        view,
        config,
        interpreter: this_process().map(OsStr::to_owned),
    })?)
}
