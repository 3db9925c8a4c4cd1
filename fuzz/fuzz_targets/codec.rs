//! Any payload in a sound ring: what decodes as an event must be recorded again without loss, with and without definitions.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::directory;
use stormlog_model::Event;
use stormlog_ring::{Ring, RingConfig};
use stormlog_store::recording::{EventRing, RecordedEvents};

/// The record kind of telemetry events.
const KIND_EVENT: u8 = 1;

fuzz_target!(|data: &[u8]| {
    let config = || RingConfig { slots: 256, definition_bytes: 64 << 10, ..RingConfig::default() };
    let path = directory().join("payload.ring");
    let _ = fs::remove_file(&path);
    {
        let ring = Ring::create(&path, config()).expect("a ring");
        let _ = ring.writer().expect("a writer").append(KIND_EVENT, data, &[]);
    }
    let Some(event) = events(&path).pop() else { return };

    let path = directory().join("event.ring");
    let _ = fs::remove_file(&path);
    let mut ring = EventRing::create(&path, config()).expect("a ring");
    // The first time inline, the second with its definitions written, the third with them known.
    let kept = (0..3).filter(|_| ring.append(&event)).count();
    drop(ring);
    assert_eq!(events(&path), vec![event; kept]);
});

fn events(path: &std::path::Path) -> Vec<Event> {
    RecordedEvents::ring(path).expect("a ring just made").filter_map(Result::ok).collect()
}
