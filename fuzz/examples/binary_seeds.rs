//! Makes the seeds that no command writes: small rings, a log segment, bare payloads. `binary_seeds EVENTS.json OUT`

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use stormlog_ring::{LogConfig, RingConfig, RingReader};
use stormlog_store::recording::{EventLog, EventRing};
use stormlog_store::{ReadOptions, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(input), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err("usage: binary_seeds EVENTS.json OUT".into());
    };
    let events: Vec<_> = Source::Json(input).events(&ReadOptions::default())?.collect::<Result<_, _>>()?;
    let (rings, payloads) = (out.join("ring"), out.join("codec"));
    fs::create_dir_all(&rings)?;
    fs::create_dir_all(&payloads)?;

    // One with room for all, and one that has gone round.
    for (name, slots) in [("whole", 64), ("overwritten", 16)] {
        let path = rings.join(name);
        let config = RingConfig { slots, definition_bytes: 4 << 10, replace: true, ..RingConfig::default() };
        let mut ring = EventRing::create(&path, config)?;
        events.iter().for_each(|event| _ = ring.append(event));
        drop(ring);
        let mut reader = RingReader::open(&path)?;
        let mut records = reader.records();
        for number in 0..4 {
            let Some(record) = records.next() else { break };
            fs::write(payloads.join(format!("{name}-{number}")), record.payload)?;
        }
    }
    let log = out.join("log");
    let mut writer = EventLog::create(&log, LogConfig { segment_bytes: 8 << 10, ..LogConfig::default() })?;
    events.iter().for_each(|event| _ = writer.append(event));
    for (number, entry) in fs::read_dir(&log)?.enumerate() {
        fs::copy(entry?.path(), rings.join(format!("segment-{number}")))?; // not closed: as a killed writer leaves it
    }
    drop(writer);
    Ok(fs::remove_dir_all(log)?)
}
