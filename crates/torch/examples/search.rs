//! Times what the first page and a search need: `search FILE`. For `bench/snapshot`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::time::Instant;

use stormlog_torch::{Recording, Replayer};

fn main() {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: search FILE");
        std::process::exit(2);
    };
    let start = Instant::now();
    let lap = move |what: &str| println!("{what}: {:.3} s", start.elapsed().as_secs_f64());
    match stormlog_torch::load(path.as_ref()) {
        Ok(snapshot) => {
            lap("loaded");
            let page = stormlog_torch::report(&snapshot, &stormlog_torch::ReportOptions::default());
            lap("first page");
            println!("{}", page.verdict.sentence);
            for device in 0..snapshot.device_count() {
                let recording = Recording::new(&snapshot, device);
                lap("start state found");
                let replayer = Replayer::new(&recording);
                lap("requests found");
                let (matched, _) = replayer.self_check(None);
                lap("proven");
                let found = replayer.search(None);
                lap("searched");
                println!(
                    "{} events, {}/{} addresses",
                    snapshot.event_count(device),
                    matched.matched,
                    matched.total
                );
                for prediction in found {
                    println!("{:>14} {}", prediction.peak_reserved_bytes, prediction.settings);
                }
            }
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(5);
        }
    }
}
