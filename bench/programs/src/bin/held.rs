//! Bytes that the events of a file take in memory, held as every reader of this package holds them: `held EVENTS.json`. As JSON.

use std::path::{Path, PathBuf};

use stormlog_bench::Outcome;
use stormlog_store::{LoadOptions, LoadedSession, load_sessions};

fn main() -> Outcome {
    let input = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: held EVENTS.json")?;
    // Once for nothing, so that code and static tables are there before.
    drop(load(&input)?);
    let before = resident()?;
    let held = load(&input)?;
    let bytes = resident()?.saturating_sub(before);
    let count: usize = held.iter().map(|session| session.events.len()).sum();
    println!("{{\"bytes\": {bytes}, \"events\": {count}}}");
    Ok(())
}

fn load(path: &Path) -> Outcome<Vec<LoadedSession>> {
    Ok(load_sessions(path, &LoadOptions::default())?)
}

/// Resident bytes, less what the allocator keeps for later.
fn resident() -> Outcome<u64> {
    // SAFETY: takes no pointers and may be called at any time.
    unsafe { libc::malloc_trim(0) };
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("statm has two fields at least")?.parse()?;
    Ok(pages * 4096)
}
