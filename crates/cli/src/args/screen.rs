//! What can be typed for the terminal UI.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stormlog_tui::ViewName;

use crate::cmd::screen;

/// Open the terminal UI: machine, runs, processes, ranks, findings, crashes
///
/// `stormlog` alone in a terminal does the same. `?` lists the keys, `q` quits; recordings continue.
#[derive(Debug, Args)]
pub(crate) struct Tui {
    /// Directories of runs, or one recording [default: stormlog-runs]
    ///
    /// A recording is a run, a session, a heap capture, a bundle or a snapshot. Directories in the settings
    /// replace the default.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// View to start with
    #[arg(long, value_name = "VIEW", value_parser = view)]
    view: Option<ViewName>,
    /// Start with the frameworks, as in version 0.4.3
    #[arg(long, value_enum, value_name = "NAME", conflicts_with = "view")]
    framework: Option<Framework>,
}

/// What 0.4.3 accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Framework {
    Pytorch,
    Tensorflow,
    Jax,
    Mlx,
}

impl From<Tui> for screen::Options {
    fn from(typed: Tui) -> Self {
        let Tui { paths, view, framework } = typed;
        screen::Options { paths, view: view.or(framework.map(|_| ViewName::Frameworks)) }
    }
}

fn view(word: &str) -> Result<ViewName, String> {
    ViewName::of_word(word).ok_or_else(|| {
        let words = ViewName::ALL.map(|name| name.word().to_ascii_lowercase());
        format!("expected one of {}", words.join(", "))
    })
}
