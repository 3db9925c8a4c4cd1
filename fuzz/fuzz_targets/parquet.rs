//! Parquet files, ours or not.
#![no_main]

use std::panic;

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::{assert_round_trip, file, read};
use stormlog_store::{Format, Source};

fuzz_target!(
    init: forgive_the_parquet_crate(),
    |data: &[u8]| {
        let events = read(&Source::Parquet(file("in.parquet", data)));
        assert_round_trip(&events, Format::Parquet);
    }
);

/// The parquet crate panics on some damaged files. The reader is to catch that: a panic that gets out of it still ends the run.
fn forgive_the_parquet_crate() {
    let abort = panic::take_hook();
    panic::set_hook(Box::new(move |info| match info.location() {
        Some(place) if place.file().contains("/parquet-") => eprintln!("{info}"),
        _ => abort(info),
    }));
}
