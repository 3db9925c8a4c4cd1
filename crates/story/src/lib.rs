//! One process, one story: what every recorder saw of it is joined into how it ended, what held its memory, what is wrong with it, and the answer in
//! a few lines that every view begins with.
//!
//! ```text
//! catalog (processes, bundles) ─┐
//! heap-report (captures) ───────┼─► ProcessStory ─► Story ─► headline ─► run, oom show, analyze, report, JSON
//! analyze (findings) ───────────┘
//! ```
//!
//! Values in, values and sentences out. Must never print, and must never judge a recording or a death: that is done by `analyze` and `postmortem`.

#![forbid(unsafe_code)]

mod answer;
mod bundle_page;
pub mod captures;
mod choice;
mod crash;
mod during;
mod evidence;
mod finding_row;
mod follow;
mod gain;
mod holder;
mod judged;
pub mod lanes;
mod moment;
mod outlook;
mod process;
pub mod report;
mod residual;
mod story;
mod trace;

pub use answer::{HEADLINE_LINES, answer, message};
pub use bundle_page::bundle_page;
pub use crash::Crash;
pub use finding_row::FindingRow;
pub use follow::FollowedSessions;
pub use holder::{Growth, Holder};
pub use judged::{Judged, complete_analysis, findings_if_small, judge, judge_if_small};
pub use moment::clock;
pub use outlook::Outlook;
pub use process::ProcessStory;
pub use residual::{Part, Residual};
pub use stormlog_postmortem::Ended;
pub use stormlog_render::report::{Lane, Line, LineKind, Mark, Rule, Stretch};
pub use story::{Story, held_at_peak};
pub use trace::trace;
