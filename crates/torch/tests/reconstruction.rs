//! The state at every event, against what the allocator counted while it happened.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

mod support;

use stormlog_torch::{BlockState, Recording, Totals};
use support::{all, counted, counter, counters, snapshot};

fn peaks(recording: &Recording<'_>) -> Totals {
    let start = recording.tracker().totals();
    recording.totals().fold(start, |peak, now| Totals {
        reserved: peak.reserved.max(now.reserved),
        active: peak.active.max(now.active),
        allocated: peak.allocated.max(now.allocated),
        requested: peak.requested.max(now.requested),
    })
}

#[test]
fn peaks_are_those_the_allocator_counted() {
    for name in counted() {
        let (snapshot, counters) = (snapshot(&name), counters(&name));
        let recording = Recording::new(&snapshot, 0);
        let peaks = peaks(&recording);
        let expect = |key: &str| counter(&counters, &format!("{key}.all.peak"));
        assert_eq!(peaks.reserved, expect("reserved_bytes"), "{name} reserved");
        assert_eq!(peaks.allocated, expect("allocated_bytes"), "{name} allocated");
        assert_eq!(peaks.active, expect("active_bytes"), "{name} active");
        assert_eq!(peaks.requested, expect("requested_bytes"), "{name} requested");
    }
}

#[test]
fn nothing_in_a_recording_is_left_unexplained() {
    for name in all() {
        let snapshot = snapshot(&name);
        let recording = Recording::new(&snapshot, 0);
        let end = recording.state_after(snapshot.event_count(0));
        assert_eq!(end.anomalies(), 0, "{name}");
        // Followed from the start, the end is the file's own, block by block.
        let ours = end.segments();
        assert_eq!(ours.len(), snapshot.segments.len(), "{name}");
        for (ours, theirs) in ours.iter().zip(&snapshot.segments) {
            assert_eq!(
                (ours.addr(), ours.size(), ours.pool),
                (theirs.address, theirs.total_size, theirs.pool),
                "{name}"
            );
            assert_eq!(
                (ours.stream, ours.small, ours.expandable),
                (theirs.stream, theirs.small, theirs.expandable),
                "{name}"
            );
            let blocks = snapshot.blocks_of(theirs);
            assert_eq!(ours.blocks.len(), blocks.len(), "{name}");
            for (ours, theirs) in ours.blocks.iter().zip(blocks) {
                assert_eq!(
                    (ours.addr, ours.size, ours.state),
                    (theirs.address, theirs.size, theirs.state),
                    "{name}"
                );
                if theirs.state != BlockState::Inactive {
                    assert_eq!((ours.requested, ours.stack), (theirs.requested, theirs.stack), "{name}");
                }
            }
        }
    }
}

/// The second half of a recording, as if its ring had lost the first: same states, rebuilt backwards.
#[test]
fn a_recording_that_lost_its_beginning_is_rewound() {
    for name in all() {
        let whole = snapshot(&name);
        let half = whole.event_count(0) / 2;
        let cut = whole.without_oldest(0, half);
        assert_eq!(cut.event_count(0), whole.event_count(0) - half);
        let (whole, cut) = (Recording::new(&whole, 0), Recording::new(&cut, 0));
        let expected: Vec<Totals> = whole.totals().skip(half).collect();
        let found: Vec<Totals> = cut.totals().collect();
        assert_eq!(expected.len(), found.len());
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!((expected.reserved, expected.requested), (found.reserved, found.requested), "{name}");
            // What a block held beyond its request is unknowable where nothing was put behind it: up to 1 MiB each.
            let missing = expected
                .active
                .checked_sub(found.active)
                .unwrap_or_else(|| panic!("{name}: more than there was"));
            assert!(
                missing * 200 <= expected.active,
                "{name}: {missing} of {} bytes missing",
                expected.active
            );
        }
    }
}

#[test]
fn lives_add_up_to_the_totals_at_every_event() {
    for name in ["varlen-s11-default", "streams-s11-expandable", "kvcache-s11-oomretry", "gpt-leak"] {
        let snapshot = snapshot(name);
        let recording = Recording::new(&snapshot, 0);
        let count = snapshot.event_count(0);
        let mut changes = vec![(0i64, 0i64); count + 1];
        for life in recording.lifetimes() {
            let size = life.size as i64;
            let born = life.born.map_or(0, |event| event as usize + 1);
            changes[born].0 += size;
            changes[born].1 += size;
            if let Some(event) = life.released {
                changes[event as usize + 1].0 -= size;
            }
            if let Some(event) = life.freed {
                changes[event as usize + 1].1 -= size;
            }
        }
        let (mut allocated, mut active) = changes[0];
        for (index, totals) in recording.totals().enumerate() {
            allocated += changes[index + 1].0;
            active += changes[index + 1].1;
            assert_eq!(
                (allocated, active),
                (totals.allocated as i64, totals.active as i64),
                "{name}, event {index}"
            );
        }
    }
}

/// Every second block of many segments is free, and nothing was recorded: what is there is found without looking at all of it each time.
#[test]
fn fragmented_heap_equals_the_file() {
    let (segments, blocks, size) = (16u64, 2048u64, 1024u64);
    let base = |segment: u64| 0x7f00_0000_0000 + segment * (4 << 20);
    let block = |segment: u64, number: u64| {
        let (state, requested) =
            if number.is_multiple_of(2) { ("inactive", 0) } else { ("active_allocated", size) };
        let address = base(segment) + number * size;
        format!(
            r#"{{"address": {address}, "size": {size}, "requested_size": {requested}, "state": "{state}"}}"#
        )
    };
    let segment = |segment: u64| {
        let inside: Vec<String> = (0..blocks).map(|number| block(segment, number)).collect();
        format!(
            r#"{{"device": 0, "address": {}, "total_size": {}, "stream": 0, "segment_type": "small", "blocks": [{}]}}"#,
            base(segment),
            blocks * size,
            inside.join(",")
        )
    };
    let all: Vec<String> = (0..segments).map(segment).collect();
    let json = format!(r#"{{"segments": [{}], "device_traces": [[]]}}"#, all.join(","));
    let snapshot = stormlog_torch::read(json.as_bytes()).unwrap();
    let recording = Recording::new(&snapshot, 0);
    assert_eq!(recording.anomalies(), 0);
    let found = recording.tracker().segments();
    assert_eq!(found.len() as u64, segments);
    for (segment, found) in found.iter().enumerate() {
        assert_eq!((found.addr(), found.blocks.len() as u64), (base(segment as u64), blocks));
        for (number, block) in found.blocks.iter().enumerate() {
            let state = if number.is_multiple_of(2) { BlockState::Inactive } else { BlockState::Allocated };
            assert_eq!((block.size, block.state), (size, state), "block {number} of segment {segment}");
        }
    }
}
