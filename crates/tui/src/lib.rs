//! Screens in a terminal: the application of seven views, the call tree of a heap, and a view of a process while it runs.
//!
//! ```text
//! recordings, /proc ─► read ─► state ─► view ─► terminal
//! ```
//!
//! `state` knows no colours and `view` no logic; only this crate knows ratatui. The terminal is given back as it was, whatever happens.
//! The live view is one more reader of the files a program leaves behind: it never speaks to the program.
#![forbid(unsafe_code)]

mod act;
mod app;
mod error;
mod once;
mod once_top;
mod read;
mod screens;
mod show;
mod signals;
pub mod state;
mod terminal;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_fleet;
mod text;
mod view;

use stormlog_model::stacks::StackProfile;

pub use app::{AppOptions, Config, ConfigError, Subject, ViewName, app};
pub use error::TuiError;
pub use once::{frame, to_json};
pub use once_top::top_text;
pub use read::{LiveTarget, RecordingFollower};
pub use show::Left;
pub use state::key::{Button, Flow, Key, Mouse};
pub use terminal::has_screen;

use screens::{LiveScreen, TreeScreen};
use signals::Keys;
use state::reading::Wish;

/// Shows a call tree until the user leaves it. The first line of `title` says what it is; those after it must be seen too.
pub fn tree(held: StackProfile, title: &str) -> Result<Left, TuiError> {
    show::show(&mut TreeScreen::new(held, title), Keys::Ours, &|| false)
}

/// Shows a process, a session or a run while it continues, until the user leaves it; what `wish` asks for first.
pub fn live(target: &LiveTarget, wish: Wish) -> Result<Left, TuiError> {
    show::show(&mut LiveScreen::start(RecordingFollower::open(target)?, wish)?, Keys::Ours, &|| false)
}

/// As [`live`], for the process that also runs the program: leaves by itself once `is_over` says so, which is asked some ten times a second.
/// Ctrl-C, Ctrl-\\ and Ctrl-Z go to the terminal's foreground process group, as without a screen; the signals that end the process are the
/// caller's to handle.
pub fn live_until(target: &LiveTarget, is_over: &dyn Fn() -> bool) -> Result<Left, TuiError> {
    show::show(
        &mut LiveScreen::start(RecordingFollower::open(target)?, Wish::default())?,
        Keys::Shared,
        is_over,
    )
}
