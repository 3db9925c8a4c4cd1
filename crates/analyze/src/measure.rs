//! The few numbers by which two runs are compared and a budget is kept.

use std::collections::BTreeMap;

use serde_json::Value;
use stormlog_model::memory::Memory;
use stormlog_model::{Finding, Record, Severity};

use crate::Analysis;

/// What a run took. `None` is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measures {
    /// Highest allocator bytes handed out: the same program gives the same number.
    pub peak_allocated: Option<u64>,
    /// Highest allocator bytes held: depends on what the allocator felt like.
    pub peak_reserved: Option<u64>,
    /// Highest device use; without a device, the highest host memory of all processes at one moment.
    pub peak_used: Option<u64>,
    /// Growth of what leaks, by the findings: of the host over all processes, or of the device that grows most. Bytes per second; 0 when nothing grows.
    pub growth: f64,
}

const FORMAT: &str = "stormlog.memory_baseline";

/// Why a baseline cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaselineError {
    /// It is another kind of file.
    #[error(
        "not a memory baseline: its format is {0}; make one with `stormlog check PATH --baseline F --update-baseline`"
    )]
    Format(String),
    /// A number is missing or not a number.
    #[error("the baseline's {0} is not a number of bytes; write it again with --update-baseline")]
    Number(&'static str),
}

impl Measures {
    /// The measures of an analysis.
    pub fn of(analysis: &Analysis) -> Self {
        Measures {
            peak_allocated: analysis.peak(0),
            peak_reserved: analysis.peak(1),
            peak_used: analysis.device_used_peak.or(analysis.host_peak).or_else(|| analysis.peak(2)),
            growth: growth(&analysis.findings),
        }
    }

    /// The peak a gate goes by: what is handed out where that is known, else what is used.
    pub fn gated_peak(&self) -> Option<u64> {
        self.peak_allocated.or(self.peak_used)
    }

    /// The baseline file.
    pub fn to_baseline(&self) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("schema_version", 1.into());
        put("format", FORMAT.into());
        put("peak_allocated_bytes", self.peak_allocated.into());
        put("peak_reserved_bytes", self.peak_reserved.into());
        put("peak_device_used_bytes", self.peak_used.into());
        put("growth_bytes_per_second", self.growth.into());
        record
    }

    /// Reads a baseline file.
    pub fn from_baseline(record: &Record) -> Result<Self, BaselineError> {
        let format = record.get("format").cloned().unwrap_or_default();
        if format != FORMAT {
            return Err(BaselineError::Format(format.to_string()));
        }
        let bytes = |key: &'static str| match record.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(BaselineError::Number(key)),
        };
        let growth = record.get("growth_bytes_per_second").and_then(Value::as_f64);
        Ok(Measures {
            peak_allocated: bytes("peak_allocated_bytes")?,
            peak_reserved: bytes("peak_reserved_bytes")?,
            peak_used: bytes("peak_device_used_bytes")?,
            growth: growth.ok_or(BaselineError::Number("growth_bytes_per_second"))?,
        })
    }
}

/// The growth of the leaks among findings. Two findings of one process and memory are one leak; processes leak beside each other. What others may
/// have taken of a device is not counted, unless a line of the program took it.
fn growth(findings: &[Finding]) -> f64 {
    let mut rates: BTreeMap<(Memory, Option<i64>), f64> = BTreeMap::new();
    for finding in
        findings.iter().filter(|finding| finding.kind == "leak" && finding.severity > Severity::Info)
    {
        if finding.id == "growth.driver" && finding.holder.is_none() {
            continue;
        }
        let number = |key: &str| finding.metrics.get(key).and_then(Value::as_f64);
        let rate = number("bytes_per_second").unwrap_or(0.0) * number("stream_count").unwrap_or(1.0);
        let known = rates.entry((finding.memory.unwrap_or_default(), finding.process)).or_default();
        *known = known.max(rate);
    }
    let is_host = |(memory, _): &(Memory, Option<i64>)| *memory == Memory::Host;
    let host: f64 = rates.iter().filter(|(key, _)| is_host(key)).map(|(_, rate)| rate).sum();
    rates.iter().filter(|(key, _)| !is_host(key)).map(|(_, rate)| *rate).fold(host, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_round_trip_and_others_are_refused() {
        let measures =
            Measures { peak_allocated: Some(5), peak_reserved: None, peak_used: Some(9), growth: 1.5 };
        assert_eq!(Measures::from_baseline(&measures.to_baseline()), Ok(measures));
        assert!(matches!(Measures::from_baseline(&Record::new()), Err(BaselineError::Format(_))));
        let mut wrong = measures.to_baseline();
        wrong.insert("peak_allocated_bytes".into(), "5".into());
        assert_eq!(Measures::from_baseline(&wrong), Err(BaselineError::Number("peak_allocated_bytes")));
    }
}
