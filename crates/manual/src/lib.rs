//! What is generated from the definition of the commands: man pages and shell completions for the wheel, and the Markdown of docs/reference/commands.
//!
//! A crate of its own, so that no installed program links the generators, and `stormlog-cli` is compiled once for a wheel. The same sources
//! give the same bytes. Must never be part of a wheel.
#![forbid(unsafe_code)]

pub mod files;
mod man;
pub mod markdown;
