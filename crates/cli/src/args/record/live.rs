//! What can be typed for the live view.

use std::ffi::OsString;

use clap::Args;
use stormlog_model::memory::Memory;
use stormlog_tui::LiveTarget;

use crate::cmd::record::live;

/// Shows a program while it runs: its heap and resident memory over time, and which lines hold it. Reads what is recorded like any other
/// reader; the program does not notice. `?` lists the keys, `q` leaves.
#[derive(Debug, Args)]
pub(crate) struct Live {
    /// A process number, the directory of a run or session, or a heap capture
    #[arg(value_name = "PID|RUN|CAPTURE")]
    target: OsString,
    /// Print one look as plain text; so it is done where there is no terminal
    #[arg(long)]
    once: bool,
    /// Print one look as JSON
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
