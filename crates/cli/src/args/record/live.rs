//! What can be typed for the live view.

use std::ffi::OsString;

use clap::Args;
use stormlog_model::memory::Memory;
use stormlog_tui::LiveTarget;

use crate::cmd::record::live;

/// Watch a running program: heap, resident memory and the lines that hold it
///
/// Shows heap and resident memory over time, and the lines that hold it. Reads the recording only; the
/// program is not affected. `?` lists the keys, `q` quits.
#[derive(Debug, Args)]
pub(crate) struct Live {
    /// A process number, the directory of a run or session, or a heap capture
    #[arg(value_name = "PID|RUN|CAPTURE")]
    target: OsString,
    /// Print one screen as plain text (the default without a terminal)
    #[arg(long)]
    once: bool,
    /// Print one screen as JSON
    #[arg(long)]
    json: bool,
    /// Show this memory first: host, or a device such as cuda:0
    #[arg(long, value_name = "MEMORY")]
    memory: Option<Memory>,
}

impl From<Live> for live::Options {
    fn from(typed: Live) -> Self {
        let Live { target, once, json, memory } = typed;
        live::Options { target: LiveTarget::of(&target), once, json, memory }
    }
}
