//! Finished heap captures of any content. Checksums are put right first, or nothing behind them would ever be met.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::directory;

const START: usize = 20;
const BLOCK: usize = 24;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    // An odd first byte leaves everything as it is.
    if bytes.first().is_some_and(|first| *first != b'X') {
        fix_checksums(&mut bytes);
    }
    stormlog_heap::fuzz(&bytes, &directory());
});

/// Puts right what a checksum would refuse; `None` at the end.
fn fix_checksums(bytes: &mut [u8]) -> Option<()> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    bytes.get_mut(..8)?.copy_from_slice(b"SLHEAPFN");
    let mut at = START.checked_add(word(bytes, 12)? as usize)?;
    let crc = crc32fast::hash(bytes.get(START..at)?);
    bytes[16..START].copy_from_slice(&crc.to_le_bytes());
    loop {
        let length = (word(bytes, at + 8)? as usize).checked_add(word(bytes, at + 12)? as usize)?;
        let end = (at + BLOCK).checked_add(length)?;
        let crc = crc32fast::hash(bytes.get(at + BLOCK..end)?);
        bytes[at..at + 4].copy_from_slice(b"SLBK");
        bytes[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
        let own = crc32fast::hash(&bytes[at..at + 20]);
        bytes[at + 20..at + 24].copy_from_slice(&own.to_le_bytes());
        at = end;
    }
}
