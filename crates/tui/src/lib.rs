//! Screens in a terminal: the call tree of a heap, and a view of a process while it runs.
//!
//! ```text
//! recordings, /proc ─► read ─► state ─► view ─► terminal
//! ```
//!
//! `state` knows no colours and `view` no logic; only this crate knows ratatui. The terminal is given back as it was, whatever happens.
//! The live view is one more reader of the files a program leaves behind: it never speaks to the program.
#![forbid(unsafe_code)]

mod error;
mod once;
mod read;
mod screens;
mod show;
pub mod state;
mod terminal;
#[cfg(test)]
mod testing;
mod text;
mod view;

use stormlog_event::stacks::Holdings;

pub use error::TuiError;
pub use once::{frame, to_json};
pub use read::{LiveTarget, Watcher};
pub use show::Left;
pub use state::key::{Flow, Key};

use screens::{LiveScreen, TreeScreen};

/// Shows a call tree until the user leaves it.
pub fn tree(held: Holdings, title: &str) -> Result<Left, TuiError> {
    show::show(&mut TreeScreen::new(held, title), &|| false)
}

/// Shows a process, a session or a run while it goes on, until the user leaves it.
pub fn live(target: &LiveTarget) -> Result<Left, TuiError> {
    live_until(target, &|| false)
}

/// As [`live`], and leaves by itself once `is_over` says so; it is asked some ten times a second.
pub fn live_until(target: &LiveTarget, is_over: &dyn Fn() -> bool) -> Result<Left, TuiError> {
    show::show(&mut LiveScreen::start(Watcher::open(target)?)?, is_over)
}
