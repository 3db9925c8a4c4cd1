//! What a heap capture shows: a question is asked of it once, and every picture, table and list is made from the same answer.
//!
//! ```text
//! find ─► Reading (capture + question) ─► Holdings ─► page, table, rows, leaks, diff
//! ```
//!
//! Values in, values and text out: this crate must never print, and never show a name from a recording that a terminal could take as a command.

#![forbid(unsafe_code)]

mod ask;
pub mod diff;
mod digest;
mod end;
mod error;
mod find;
mod forecast;
mod history;
mod holdings;
pub mod leaks;
pub mod live;
mod notes;
mod owners;
mod page;
mod parse;
mod question;
pub mod retained;
pub mod rows;
mod source;
mod table;
mod text;
pub mod tree;

pub use ask::{Answer, Moment, Reading};
pub use digest::{AT_FAILURE, DeviceDigest, HeapDigest, Holder};
pub use end::End;
pub use error::ViewError;
pub use find::{CaptureFile, Chosen, captures, find};
pub use forecast::{forecast, purposes};
pub use history::{History, PastHeap};
pub use notes::not_recorded;
pub use owners::owners;
pub use page::{MOMENTS, PageOptions, flamegraph, graphs, is_quick};
pub use parse::{Shape, parse};
pub use question::{Ask, Question, parse_time};
pub use table::table_page;
pub use text::{asked, when};
