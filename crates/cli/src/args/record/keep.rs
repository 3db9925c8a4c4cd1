//! Which runs are kept: the options of `run` and of `runs prune`.

use clap::Args;
use stormlog_catalog::run::{KEEP_DAYS_VARIABLE, KEEP_SIZE_VARIABLE, KEEP_VARIABLE, KeepRule};

use crate::args::any_size;
use crate::cmd::record::retention::Keep;

// Without any of them runs take at most 10 GiB, or a tenth of the file system where that is less.
#[derive(Debug, Args)]
pub(crate) struct Kept {
    /// Keep this number of runs, or `all`
    ///
    /// Completed runs without findings are removed first; the run with the most recent crash is never removed. Without any of these options
    /// runs take at most 10 GiB, or a tenth of the file system if that is less.
    #[arg(long, env = KEEP_VARIABLE, value_parser = number_or_all, value_name = "N", help_heading = "Old runs")]
    keep: Option<Number>,
    /// Keep as many runs as fit into this size (e.g. 20GiB)
    #[arg(long, env = KEEP_SIZE_VARIABLE, value_parser = any_size, value_name = "SIZE", help_heading = "Old runs")]
    keep_size: Option<u64>,
    /// Keep runs that ended in the last D days
    #[arg(long, env = KEEP_DAYS_VARIABLE, value_name = "D", help_heading = "Old runs")]
    keep_days: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
enum Number {
    All,
    Runs(u64),
}

fn number_or_all(text: &str) -> Result<Number, String> {
    match text {
        "all" => Ok(Number::All),
        text => text.parse().map(Number::Runs).map_err(|_| "expected a number of runs, or all".to_owned()),
    }
}

impl From<Kept> for Keep {
    fn from(typed: Kept) -> Self {
        let runs = match typed.keep {
            Some(Number::All) => return Keep::All,
            Some(Number::Runs(runs)) => Some(runs),
            None => None,
        };
        let rule = KeepRule { runs, bytes: typed.keep_size, days: typed.keep_days };
        if rule == KeepRule::default() { Keep::Default } else { Keep::By(rule) }
    }
}
