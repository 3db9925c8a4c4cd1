//! Live files of heap captures of any content. Magic, version and slot size are put right first, or nothing behind them would be met.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::directory;

/// Where slot 0 begins; a seed is short, so its slots are moved there.
const SLOTS: usize = 65_536;
const SLOT_COUNT: usize = 48;

fuzz_target!(|data: &[u8]| {
    // A header of 96 bytes, 16 slot states, then the first slot.
    let (head, rest) = data.split_at(data.len().min(96));
    let (states, slot) = rest.split_at(rest.len().min(16));
    let mut bytes = vec![0; SLOTS];
    bytes[..head.len()].copy_from_slice(head);
    bytes[..8].copy_from_slice(b"SLHEAPLV");
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&65_536u32.to_le_bytes());
    bytes[SLOT_COUNT..SLOT_COUNT + 4].copy_from_slice(&16u32.to_le_bytes());
    bytes[4096..4096 + states.len()].copy_from_slice(states);
    bytes.extend_from_slice(slot);
    stormlog_heap::fuzz(&bytes, &directory());
});
