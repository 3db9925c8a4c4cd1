//! Pages of one file: everything they show and everything that shows it is inside, nothing is fetched at view time.
//!
//! Values in, HTML out: this crate must never read or write a file, and never put text from a recording into a page other than
//! packed (where the page's script takes it as text) or escaped.
#![forbid(unsafe_code)]

pub mod flamegraph;
pub mod fleet;
mod page;
pub mod plot;
mod prune;
pub mod report;
pub mod table;
pub mod timeline;
