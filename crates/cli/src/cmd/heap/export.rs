//! What a capture holds as files of other tools.

use stormlog_export::{About, HeapProfile};
use stormlog_heap_report::{HeapQueryResult, Reading, rows};
use stormlog_model::stacks::StackProfile;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Svg,
    Speedscope,
    Collapsed,
    Pprof,
    Firefox,
    Json,
    Gprof2dot,
    Csv,
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Format {
    /// The end of a file's name.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Format::Svg => "svg",
            Format::Speedscope => "speedscope.json",
            Format::Collapsed => "folded",
            Format::Pprof => "pb.gz",
            Format::Firefox => "firefox.json",
            Format::Json => "json",
            Format::Gprof2dot => "gprof2dot.json",
            Format::Csv => "csv",
            #[cfg(feature = "parquet")]
            Format::Parquet => "parquet",
        }
    }

    /// The file's bytes. `shape` made what is held of the reading's answer; a format that shows what was allocated too has it shaped alike.
    pub(crate) fn write(
        self,
        reading: &Reading,
        held: &StackProfile,
        shape: &dyn Fn(HeapQueryResult) -> HeapQueryResult,
    ) -> anyhow::Result<Vec<u8>> {
        let title = reading.title();
        let header = &reading.heap.header;
        let about = About {
            title: &title,
            start_ms: header.start_realtime_ns / 1_000_000,
            pid: reading.heap.header.pid,
        };
        Ok(match self {
            Format::Svg => stormlog_export::svg(held, &about).into_bytes(),
            Format::Speedscope => serde_json::to_vec(&stormlog_export::speedscope(held, &about))?,
            Format::Collapsed => stormlog_export::collapsed(held).into_bytes(),
            Format::Pprof => {
                let allocated = shape(reading.allocated());
                let heap = HeapProfile {
                    held,
                    allocated: &allocated.held,
                    duration_ns: reading.heap.duration_us().saturating_mul(1000),
                    period: header.sample_bytes,
                    by_thread: true,
                };
                stormlog_export::pprof(&heap, &about)
            }
            Format::Firefox => stormlog_export::firefox(held, &about).into_bytes(),
            Format::Json => json(&rows::stacks(held))?,
            Format::Gprof2dot => serde_json::to_vec(&stormlog_export::gprof2dot(held))?,
            Format::Csv => stormlog_export::csv(held),
            #[cfg(feature = "parquet")]
            Format::Parquet => stormlog_export::parquet(held)?,
        })
    }
}

/// An array for scripts, one row a line.
pub(crate) fn json(rows: &[impl serde::Serialize]) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::from(b"[");
    for (index, row) in rows.iter().enumerate() {
        text.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
        serde_json::to_writer(&mut text, row)?;
    }
    text.extend_from_slice(b"\n]\n");
    Ok(text)
}
