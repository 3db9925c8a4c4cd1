//! Where the screens' values come from: recordings read like any other reader reads them, and `/proc`. Nothing here knows a terminal,
//! and nothing here speaks to the process that is looked at.

mod background;
mod ending;
mod names;
mod output;
mod pace;
mod place;
mod process;
pub(crate) mod source;
mod telemetry;
mod watcher;

pub(crate) use background::Background;
pub use place::LiveTarget;
pub use watcher::Watcher;
