//! Appends per second, of 120-byte records with two definitions each: `cargo run --release --example append_rate [DIR]`.
#![allow(clippy::print_stdout, reason = "printing is what this program is for")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use stormlog_ring::{AppendError, Definition, Log, LogConfig, LogReader, Ring, RingConfig, RingReader};

const PER_THREAD: u64 = 3_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    for threads in [1, 2] {
        let log = dir.join(format!("append-rate-{}", std::process::id()));
        bench_log(&log, threads)?;
        std::fs::remove_dir_all(&log)?;
        let ring = dir.join(format!("append-rate-{}.ring", std::process::id()));
        bench_ring(&ring, threads)?;
        std::fs::remove_file(&ring)?;
    }
    Ok(())
}

fn bench_log(dir: &Path, threads: usize) -> Result<(), Box<dyn Error>> {
    let log = Log::create(dir, LogConfig { max_segments: Some(8), ..LogConfig::default() })?;
    let writers = (0..threads).map(|_| log.writer()).collect::<Result<Vec<_>, _>>()?;
    report("log", writers, |writer, payload, definitions| writer.append(1, payload, definitions));
    drop(log);
    let (start, mut reader, mut records) = (Instant::now(), LogReader::open(dir)?, 0u32);
    while reader.next().is_some() {
        records += 1;
    }
    println!("      read back {:.1} M/s", f64::from(records) / start.elapsed().as_secs_f64() / 1e6);
    Ok(())
}

fn bench_ring(path: &Path, threads: usize) -> Result<(), Box<dyn Error>> {
    let ring = Ring::create(path, RingConfig::default())?;
    let writers = (0..threads).map(|_| ring.writer()).collect::<Result<Vec<_>, _>>()?;
    report("ring", writers, |writer, payload, definitions| writer.append(1, payload, definitions));
    println!("      lost {}", RingReader::open(path)?.loss().records);
    Ok(())
}

fn report<W: Send>(
    name: &str,
    writers: Vec<W>,
    append: impl Fn(&mut W, &[u8], &[&Definition]) -> Result<(), AppendError> + Sync,
) {
    let (threads, start) = (writers.len(), Instant::now());
    thread::scope(|scope| {
        for mut writer in writers {
            let append = &append;
            scope.spawn(move || {
                let definitions = [Definition::new(b"train.py:17"), Definition::new(b"model.py:203")];
                let mut payload = [7; 120];
                for number in 0..PER_THREAD {
                    payload[..8].copy_from_slice(&number.to_le_bytes());
                    let _ = append(&mut writer, &payload, &[&definitions[0], &definitions[1]]);
                }
            });
        }
    });
    let rate = (threads as u64 * PER_THREAD) as f64 / start.elapsed().as_secs_f64();
    println!("{name:4}  {threads} thread(s)  {:.2} M appends/s", rate / 1e6);
}
