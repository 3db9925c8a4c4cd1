//! Profiles of other tools of any content, not compressed, so that a changed byte reaches the parser: whatever they are recognised as is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::directory;

fuzz_target!(|data: &[u8]| stormlog_heap::fuzz(data, &directory()));
