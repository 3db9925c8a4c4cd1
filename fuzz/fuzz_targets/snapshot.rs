//! Allocator snapshots: pickles, JSON and what is wrapped around them; then every report on what was accepted.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| stormlog_torch::fuzz(data));
