//! One record of any schema or none: the plain way to read it and the fast one must agree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use stormlog_fuzz::{file, read};
use stormlog_model::{Defaults, Interner, check_record, event_from_record};
use stormlog_store::Source;

fuzz_target!(|data: &[u8]| {
    let Ok(Value::Object(record)) = serde_json::from_slice(data) else { return };
    let _ = check_record(&record);
    let defaults = Defaults { session_id: Some("s"), ..Defaults::default() };
    let plain = event_from_record(&record, &defaults, &mut Interner::default()).ok();
    let line = serde_json::to_vec(&record).expect("what was read can be written");
    let fast = read(&Source::Json(file("in.jsonl", &line))).into_iter().next();
    assert_eq!(plain, fast);
});
