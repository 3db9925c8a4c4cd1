//! Events appended per second, one thread: `append EVENTS.json DIRECTORY COUNT`. Best of five, as JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use stormlog_bench::{Outcome, events};
use stormlog_model::Event;
use stormlog_ring::{LogConfig, RingConfig};
use stormlog_store::recording::{EventLog, EventRing, RecordedEvents};

const ROUNDS: usize = 5;

fn main() -> Outcome {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [input, directory, count] = arguments.as_slice() else {
        return Err("usage: append EVENTS.json DIRECTORY COUNT".into());
    };
    let count: usize = count.to_str().ok_or("COUNT is a number")?.parse()?;
    let events = events(input, 10_000)?;
    let mut log_rate = 0f64;
    let mut ring_rate = 0f64;
    for _ in 0..ROUNDS {
        log_rate = log_rate.max(log(&directory.join("append-log"), &events, count)?);
        ring_rate = ring_rate.max(ring(&directory.join("append.ring"), &events, count)?);
    }
    println!("{{\"log\": {log_rate:.0}, \"ring\": {ring_rate:.0}}}");
    Ok(())
}

fn log(path: &Path, events: &[Event], count: usize) -> Outcome<f64> {
    let mut log = EventLog::create(path, LogConfig::default())?;
    let rate = rate(events, count, |event| log.append(event))?;
    drop(log);
    // Fast, and there: all of them are read back.
    let read = RecordedEvents::log(path)?.filter(Result::is_ok).count();
    if read != count {
        return Err(format!("{read} of {count} events came back").into());
    }
    fs::remove_dir_all(path)?;
    Ok(rate)
}

fn ring(path: &Path, events: &[Event], count: usize) -> Outcome<f64> {
    let mut ring = EventRing::create(path, RingConfig::default())?;
    let rate = rate(events, count, |event| ring.append(event))?;
    drop(ring);
    fs::remove_file(path)?;
    Ok(rate)
}

fn rate(events: &[Event], count: usize, mut append: impl FnMut(&Event) -> bool) -> Outcome<f64> {
    let start = Instant::now();
    let kept = events.iter().cycle().take(count).filter(|event| append(event)).count();
    let seconds = start.elapsed().as_secs_f64();
    if kept != count {
        return Err(format!("{} events were lost", count - kept).into());
    }
    Ok(count as f64 / seconds)
}
