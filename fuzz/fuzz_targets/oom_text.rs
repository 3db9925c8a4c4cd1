//! Logs of any content: reports of failed allocations are read, judged and written as a page.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let failures = stormlog_oom_text::read_from(data).expect("memory is read without errors");
    let _ = stormlog_oom_text::page(&failures);
    for failure in &failures {
        let _ = (failure.verdict(), failure.free(), failure.largest_sizes());
    }
    assert!(serde_json::to_string(&failures).is_ok());
});
