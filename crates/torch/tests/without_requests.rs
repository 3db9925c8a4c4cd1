//! A history recorded with `skip_actions=["free_requested"]`: a block that was there before it is held until it is freed.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use serde_json::json;
use stormlog_torch::{Recording, load};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

#[test]
fn block_freed_later_is_live_at_the_start() {
    let event = |action: &str, addr: u64, size: u64| json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1, "frames": []});
    let block = json!({"address": BASE, "size": 20 * MIB, "requested_size": 20 * MIB, "state": "inactive", "frames": []});
    let mut folder = std::env::temp_dir();
    folder.push(format!("stormlog-without-requests-{}.json", std::process::id()));
    for requests in [false, true] {
        let mut trace = vec![event("alloc", BASE + 2 * MIB, 4 * MIB), event("free_completed", BASE, 2 * MIB)];
        if requests {
            trace.insert(1, event("free_requested", BASE, 2 * MIB));
        }
        trace.push(event("free_completed", BASE + 2 * MIB, 4 * MIB));
        let snapshot = json!({
            "segments": [{"device": 0, "address": BASE, "total_size": 20 * MIB, "stream": 0, "segment_type": "large",
                "segment_pool_id": [0, 0], "is_expandable": false, "blocks": [block.clone()], "frames": []}],
            "device_traces": [trace],
        });
        std::fs::write(&folder, snapshot.to_string()).unwrap();
        let loaded = load(&folder).unwrap();
        let recording = Recording::new(&loaded, 0);
        let allocated: Vec<u64> = std::iter::once(recording.tracker().totals())
            .chain(recording.totals())
            .map(|now| now.allocated / MIB)
            .collect();
        let expected: &[u64] = if requests { &[2, 6, 4, 4, 0] } else { &[2, 6, 4, 0] };
        assert_eq!(allocated, expected, "requests recorded: {requests}");
    }
    std::fs::remove_file(&folder).unwrap();
}
