//! The application: seven views behind one line of tabs.
//!
//! The shell owns what every view shares: the tabs, the footer, the help, pausing, going back, messages. A view owns its keys and its body. The shell must
//! never know what a view shows, and a view must never draw outside its area.

mod actions;
mod config;
mod crashes;
mod findings;
mod frameworks;
mod overview;
mod process;
mod ranks;
mod shell;
mod subject;
#[cfg(test)]
mod tests;
mod view;

use std::ffi::OsString;
use std::path::PathBuf;

use stormlog_catalog::run::layout::usual_runs;

pub use config::{Config, ConfigError};
pub use subject::{Subject, ViewName};

pub(crate) use shell::App;
#[cfg(test)]
use view::{KeyOutcome, View};

use crate::error::TuiError;
use crate::show::{self, Left};
use crate::signals::Keys;

/// What the application opens with.
#[derive(Debug, Clone, Default)]
pub struct AppOptions {
    /// Directories of runs; a run, a session, a capture, a bundle or a snapshot opens in its view.
    pub paths: Vec<PathBuf>,
    /// The view to begin with, where the paths do not say it.
    pub view: Option<ViewName>,
    /// What the user set.
    pub config: Config,
    /// The Python interpreter that is this process, where one is: it starts commands of ours too.
    pub interpreter: Option<OsString>,
}

impl AppOptions {
    /// Where runs are looked for: the paths that were given, the user's directories, else the usual one.
    #[must_use]
    pub fn roots(&self) -> Vec<PathBuf> {
        match (self.paths.is_empty(), self.config.directories.is_empty()) {
            (false, _) => self.paths.clone(),
            (true, false) => self.config.directories.clone(),
            (true, true) => vec![usual_runs()],
        }
    }
}

/// Shows the application until the user leaves it.
pub fn app(options: AppOptions) -> Result<Left, TuiError> {
    let theme = options.config.theme();
    show::show_in(&mut App::new(options), Keys::Ours, theme, &|| false)
}
