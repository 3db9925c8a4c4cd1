//! The fleet report: peaks, outliers and deaths over thousands of ranks.
//!
//! Rows ([`row`]) come from a lake or from run directories, are gathered by readers in parallel ([`gather`]) and become one [`report`]. Everything but
//! `read` is pure: values in, values out. Must never hold more than a bounded part of a file, and must never decide alone what a rule of `analyze`
//! decides for every view.
#![forbid(unsafe_code)]

pub mod answer;
mod deaths;
pub mod gather;
mod job;
mod meeting;
mod moment;
mod outliers;
mod page;
pub mod peak;
mod read;
pub mod report;
pub mod row;
mod since;
mod summary;
mod text;
mod trend;

pub use page::page;
pub use read::{FleetError, Scope, report as read_report};
pub use report::Report;
pub use since::parse_since;
pub use summary::summarise;
pub use text::text;

/// How far the clocks of two machines are taken to differ, in microseconds. NTP keeps machines within milliseconds; a machine that lost it drifts by a
/// second in a day.
pub const CLOCK_SKEW_US: i64 = 5_000_000;
