//! Ring files and log segments of any content. The header's checksum is put right first, or nothing behind it would ever be met.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::{directory, file, read};
use stormlog_ring::{LogReader, RingReader};
use stormlog_store::Source;

/// The header's unchanging part and the checksum behind it, in bytes.
const CHECKED: usize = 13 * 8;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    // The first byte of a file is fixed anyway: an odd one leaves the checksum as it is.
    if let Some(first) = bytes.first_mut().filter(|first| **first != b'X') {
        *first = b'S';
        if bytes.len() >= CHECKED + 8 {
            let crc = u64::from(crc32fast::hash(&bytes[..CHECKED]));
            bytes[CHECKED..CHECKED + 8].copy_from_slice(&crc.to_le_bytes());
        }
    }

    let ring = file("in.ring", &bytes);
    if let Ok(mut reader) = RingReader::open(&ring) {
        let _ = (reader.status(), reader.loss(), reader.label(), reader.is_stale());
        let mut records = reader.records();
        let mut last = None;
        while let Some(record) = records.next() {
            assert!(last < Some(record.position), "records out of order");
            last = Some(record.position);
        }
        let _ = records.stats();
    }
    read(&Source::Ring(ring));

    let log = directory().join("log");
    fs::create_dir_all(&log).expect("a place for the log");
    // Twice, so that there is a segment to go on to.
    fs::write(log.join("00000001.slog"), &bytes).expect("room for the log");
    fs::write(log.join("00000002.slog"), &bytes).expect("room for the log");
    if let Ok(mut reader) = LogReader::open(&log) {
        let mut last = None;
        loop {
            while let Some(record) = reader.next() {
                assert!(last < Some(record.position), "records out of order");
                last = Some(record.position);
            }
            if !reader.skip_unfinished() {
                break;
            }
        }
        let _ = (reader.status(), reader.loss(), reader.stats());
    }
    read(&Source::Log(log));
});
