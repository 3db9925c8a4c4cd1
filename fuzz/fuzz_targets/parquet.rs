//! Parquet files, ours or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::{assert_round_trip, file, read};
use stormlog_store::{Format, Source};

fuzz_target!(|data: &[u8]| {
    let events = read(&Source::Parquet(file("in.parquet", data)));
    assert_round_trip(&events, Format::Parquet);
});
