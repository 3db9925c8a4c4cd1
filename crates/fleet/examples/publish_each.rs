//! Publishes each run directory below `RUNS` by itself, as a thousand machines do that publish their own: a lake of small files.
//!
//! ```text
//! publish_each RUNS LAKE [--delta]
//! ```
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a generator for benches and tests: an error ends it"
)]

use std::path::{Path, PathBuf};

use stormlog_lake::{PublishOptions, publish};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: publish_each RUNS LAKE [--delta]";
    let (runs, lake) = (words.first().expect(usage), words.get(1).expect(usage));
    let files = publish_each(Path::new(runs), Path::new(lake), words.iter().any(|word| word == "--delta"));
    println!("{files} files");
}

/// Publishes them; gives the number of files that were made.
pub fn publish_each(runs: &Path, lake: &Path, is_delta: bool) -> usize {
    let entries = std::fs::read_dir(runs).expect("the directory of runs can be read").flatten();
    let mut directories: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    directories.sort();
    let put = |run: PathBuf| {
        let options = PublishOptions { paths: vec![run], lake: lake.to_owned(), is_delta };
        publish(&options).expect("the run can be published").files.len()
    };
    directories.into_iter().map(put).sum()
}
