//! `stormlog oom explain LOG`: what an allocator wrote into a log when it failed.

use std::io::{self, BufReader, Write};
use std::path::Path;

use serde_json::{Value, json};
use stormlog_files::open_regular;
use stormlog_model::text::inert_lines;
use stormlog_oom_text::{Failure, advice, page, read_from, summary};

use crate::exit::{Exit, MissingInput};

pub(crate) fn run(log: &Path, json: bool) -> anyhow::Result<Exit> {
    let unreadable =
        |error: io::Error| MissingInput(format!("cannot read {}: {error}; give a log file", log.display()));
    let failures = read_from(BufReader::new(open_regular(log).map_err(unreadable)?)).map_err(unreadable)?;
    if failures.is_empty() {
        let sentence =
            "no failed allocation of TensorFlow or JAX in this log; record again with TF_CPP_MIN_LOG_LEVEL=0";
        return Err(MissingInput(format!("{}: {sentence}", log.display())).into());
    }
    let mut out = io::stdout().lock();
    if json {
        let rows: Vec<Value> = failures.iter().map(to_value).collect();
        writeln!(out, "{:#}", json!({ "answer": summary(&failures), "failures": rows }))?;
    } else {
        // A name in a log may steer a terminal.
        write!(out, "{}", inert_lines(&page(&failures)))?;
    }
    Ok(Exit::Ok)
}

/// The failure as read, and what follows from it.
fn to_value(failure: &Failure) -> Value {
    let mut value = serde_json::to_value(failure).unwrap_or_default();
    value["verdict"] = json!(failure.verdict());
    value["free_memory"] = json!(failure.free());
    value["advice"] = json!(advice(failure));
    value
}
