//! Memray's captures of any content, not compressed, so that a changed byte reaches the records.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::directory;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    if bytes.len() > 7 {
        bytes[..7].copy_from_slice(b"memray\0");
    }
    stormlog_heap::fuzz(&bytes, &directory());
});
