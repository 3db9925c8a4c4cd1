//! Records appended per second through the append-only sink, and the time to close it: `sink RECORDS.jsonl DIRECTORY`. As JSON.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use stormlog_bench::Outcome;
use stormlog_model::SessionStatus;
use stormlog_store::sink::{Sink, SinkConfig};

fn main() -> Outcome {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [input, directory] = arguments.as_slice() else {
        return Err("usage: sink RECORDS.jsonl DIRECTORY".into());
    };
    let text = fs::read_to_string(input)?;
    let lines: Vec<&str> = text.lines().collect();
    let sink = Sink::open(SinkConfig::new(directory), "host")?;
    let start = Instant::now();
    for line in &lines {
        sink.append(line, None)?;
    }
    let rate = lines.len() as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    sink.close(SessionStatus::Completed)?;
    println!("{{\"rate\": {rate:.0}, \"close\": {:.4}}}", start.elapsed().as_secs_f64());
    Ok(())
}
