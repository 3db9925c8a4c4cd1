//! JSON and JSONL files of any shape, and that accepted events survive every format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::{assert_round_trip, file, read};
use stormlog_store::{Format, Source};

fuzz_target!(|data: &[u8]| {
    for name in ["in.json", "in.jsonl"] {
        let events = read(&Source::Json(file(name, data)));
        for format in [Format::Json, Format::Jsonl, Format::Csv] {
            assert_round_trip(&events, format);
        }
        // Parquet files take a hundred times as long to make as the others.
        if crc32fast::hash(data).is_multiple_of(32) {
            assert_round_trip(&events, Format::Parquet);
        }
    }
});
