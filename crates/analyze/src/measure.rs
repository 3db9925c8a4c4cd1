//! The few numbers by which two runs are compared and a budget is kept.

use serde_json::Value;
use stormlog_model::Record;

use crate::Analysis;

/// What a run took. `None` is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measures {
    /// Highest allocator bytes handed out: the same program gives the same number.
    pub peak_allocated: Option<u64>,
    /// Highest allocator bytes held: depends on what the allocator felt like.
    pub peak_reserved: Option<u64>,
    /// Highest device use, or RSS.
    pub peak_used: Option<u64>,
    /// Steepest growth of a floor that goes on, bytes per second; 0 when nothing grows.
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
    #[error("the baseline's {0} is not a number of bytes; make it anew with --update-baseline")]
    Number(&'static str),
}

impl Measures {
    /// The measures of an analysis.
    pub fn of(analysis: &Analysis) -> Self {
        let rates = analysis.sessions.iter().filter_map(|session| session.growth);
        Measures {
            peak_allocated: analysis.peak(0),
            peak_reserved: analysis.peak(1),
            peak_used: analysis.peak(2),
            growth: rates.fold(0.0, f64::max),
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
