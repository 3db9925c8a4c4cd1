//! TensorBoard's event file: a scalar for each counter, its step the milliseconds since the first moment.
//!
//! Records have a length and two checksums (CRC-32C, masked), which TensorBoard verifies. Scalars are 32-bit floats there: about seven digits stay.

use prost::Message;

use crate::timeline::Timeline;

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    // An absent value is not 0 to TensorBoard.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// The file.
pub(crate) fn tensorboard(timeline: &Timeline) -> Vec<u8> {
    let start = timeline.start_ns();
    let version = Some("brain.Event:2".to_owned());
    let mut file = record(&Event { wall_time: seconds(start), file_version: version, ..Event::default() });
    let has_several = timeline.processes.len() > 1;
    let mut points = Vec::new();
    for process in &timeline.processes {
        for counter in &process.counters {
            let tag = match has_several {
                true => format!("memory/{} ({})/{}", process.name, process.pid, counter.name),
                false => format!("memory/{}", counter.name),
            };
            points.extend(counter.points.iter().map(|(at, bytes)| (*at, tag.clone(), *bytes)));
        }
    }
    // A reader that follows the file expects time to move on.
    points.sort_by_key(|(at, ..)| *at);
    for (at, tag, bytes) in points {
        let value = vec![Scalar { tag, simple_value: Some(bytes as f32) }];
        let step = i64::try_from((at - start) / 1_000_000).unwrap_or(i64::MAX);
        let summary = Some(Summary { value });
        file.extend(record(&Event { wall_time: seconds(at), step, file_version: None, summary }));
    }
    file
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn record(event: &Event) -> Vec<u8> {
    let data = event.encode_to_vec();
    let length = (data.len() as u64).to_le_bytes();
    let checked = |bytes: &[u8]| masked(crc32c(bytes)).to_le_bytes();
    [&length[..], &checked(&length), &data, &checked(&data)].concat()
}

/// The checksum as records have it: one of data that holds checksums would be weak.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli).
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1)))
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn records_read_back_with_their_checksums() {
        let file = tensorboard(&crate::testing::timeline());
        let (mut rest, mut events) = (&file[..], Vec::new());
        while !rest.is_empty() {
            let length = u64::from_le_bytes(*rest.first_chunk().unwrap());
            let (head, body) = rest.split_at(12);
            assert_eq!(masked(crc32c(&head[..8])).to_le_bytes(), head[8..]);
            let (data, end) = body.split_at(length as usize);
            assert_eq!(masked(crc32c(data)).to_le_bytes(), end[..4]);
            events.push(Event::decode(data).unwrap());
            rest = &end[4..];
        }
        assert_eq!(events[0].file_version.as_deref(), Some("brain.Event:2"));
        let scalars: Vec<(i64, f32)> = events[1..]
            .iter()
            .map(|event| (event.step, event.summary.as_ref().unwrap().value[0].simple_value.unwrap()))
            .collect();
        assert_eq!(scalars, [(0, 7.0), (5, 9.0)]);
    }
}
