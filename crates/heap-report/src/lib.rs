//! What a heap capture shows: it is queried once, and every picture, table and list is made from the same answer.
//!
//! ```text
//! find ─► Reading (capture + query) ─► StackProfile ─► page, table, rows, leaks, diff
//! ```
//!
//! Values in, values and text out: this crate must never print, and never show a name from a recording that a terminal could take as a command.

#![forbid(unsafe_code)]

pub mod diff;
mod digest;
mod error;
mod exit_state;
mod find;
mod forecast;
mod heap_query;
mod history;
pub mod leaks;
pub mod live;
mod notes;
mod owners;
mod page;
mod parse;
mod reading;
pub mod retained;
pub mod rows;
pub mod snapshot;
mod source;
mod stack_profile;
mod table;
mod text;
pub mod tree;

pub use digest::{AT_FAILURE, DeviceDigest, HeapDigest, Holder};
pub use error::ViewError;
pub use exit_state::End;
pub use find::{CaptureFile, Chosen, captures, find, find_with};
pub use forecast::{forecast, purposes};
pub use heap_query::{Ask, HeapQuery, parse_time};
pub use history::{History, PastHeap};
pub use notes::not_recorded;
pub use owners::owners;
pub use page::{MOMENTS, PageOptions, flamegraph, graphs, is_quick};
pub use parse::{Shape, parse};
pub use reading::{HeapPoint, HeapQueryResult, Reading};
pub use table::table_page;
pub use text::{asked, when};
