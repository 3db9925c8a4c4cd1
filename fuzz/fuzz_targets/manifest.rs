//! A sink directory from an untrusted source: manifest, rollups and one segment, with NUL bytes between them.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::{directory, read};
use stormlog_model::SessionStatus;
use stormlog_store::Source;
use stormlog_store::sink::{Sink, SinkConfig, read_manifest, read_rollups};

fuzz_target!(|data: &[u8]| {
    let root = directory().join("sink");
    // The target below writes into it, so that it must be new each time.
    let _ = fs::remove_dir_all(&root);
    fs::create_dir(&root).expect("a place for the sink");
    let mut parts = data.splitn(3, |byte| *byte == 0);
    for name in ["manifest.json", "rollups.json", "segment-000001.jsonl"] {
        if let Some(part) = parts.next().filter(|part| !part.is_empty()) {
            fs::write(root.join(name), part).expect("room for the sink");
        }
    }
    let before = read_manifest(&root);
    if let Some(rollups) = read_rollups(&root) {
        fs::write(root.join("rollups.json"), rollups.to_text()).expect("room for the rollups");
        assert_eq!(read_rollups(&root), Some(rollups));
    }
    for source in Source::find(&root).into_iter().flatten() {
        read(&source);
        source.stated_sessions();
    }

    // Whatever is there, a sink takes it up, keeps the known sessions and ends its own.
    let Ok(sink) = Sink::open(SinkConfig::new(&root), "host") else { return };
    let own = sink.start_session(None).expect("a session");
    let _ = sink.close(SessionStatus::Completed);
    let after = read_manifest(&root).expect("a manifest of our own");
    let state = |id: &str| after.sessions.iter().find(|session| session.session_id == id).map(|s| s.status);
    assert_eq!(state(&own.session_id), Some(SessionStatus::Completed));
    for session in before.iter().flat_map(|manifest| &manifest.sessions) {
        assert!(state(&session.session_id).is_some_and(|status| status != SessionStatus::Running));
    }
});
