//! Rollups from JSON, with 0.4.3's words for what is wrong. Strict: what does not fit is refused whole, because the
//! records are there to be read instead.

use std::collections::BTreeMap;

use serde_json::Value;
use stormlog_model::{Record, SessionSummary};

use super::{
    AlertSummary, CollectorHealth, CounterSummary, OomSummary, PeakValue, RankRollup, RollupCoverage,
    RollupFile, SessionRollup, WindowRollup,
};
use crate::sink::{ROLLUP_FORMAT, ROLLUP_SCHEMA_VERSION, SinkError};

impl RollupFile {
    /// Reads the object form.
    pub fn from_record(record: &Record) -> Result<Self, SinkError> {
        let fields = Fields(record);
        let schema_version = fields.count("schema_version", 1)?;
        if schema_version != ROLLUP_SCHEMA_VERSION {
            return Err(wrong("unsupported telemetry rollup schema_version"));
        }
        if record.get("format").and_then(Value::as_str) != Some(ROLLUP_FORMAT) {
            return Err(wrong("unsupported telemetry rollup format"));
        }
        let coverage = fields.object("coverage")?;
        Ok(RollupFile {
            schema_version,
            format: ROLLUP_FORMAT.to_owned(),
            generated_at_ns: fields.count("generated_at_ns", 0)?,
            source_manifest: fields.optional_text("source_manifest")?,
            source_manifest_schema_version: fields.optional_count("source_manifest_schema_version", 1)?,
            window_duration_ns: fields.count("window_duration_ns", 1)?,
            coverage: RollupCoverage {
                retained_segment_filenames: coverage.texts("retained_segment_filenames")?,
                retained_segment_count: coverage.count("retained_segment_count", 0)?,
                retained_event_count: coverage.count("retained_event_count", 0)?,
                retained_bytes: coverage.count("retained_bytes", 0)?,
                pruned_segment_count: coverage.optional_count("pruned_segment_count", 0)?,
                pruned_bytes: coverage.optional_count("pruned_bytes", 0)?,
            },
            sessions: fields.objects("sessions", session)?,
        })
    }
}

fn session(fields: Fields<'_>) -> Result<SessionRollup, SinkError> {
    let summary = SessionSummary::from_record(fields.object("session")?.0);
    Ok(SessionRollup {
        session: summary.map_err(|problem| wrong(problem.message))?,
        event_count: fields.count("event_count", 0)?,
        sample_count: fields.count("sample_count", 0)?,
        first_timestamp_ns: fields.optional_count("first_timestamp_ns", 0)?,
        last_timestamp_ns: fields.optional_count("last_timestamp_ns", 0)?,
        source_count: fields.count("source_count", 0)?,
        sources_loaded: fields.texts("sources_loaded")?,
        warnings: fields.texts("warnings")?,
        counters: counters(fields)?,
        alerts: alerts(fields.object("alerts")?)?,
        collector_health: collector_health(fields.object("collector_health")?)?,
        oom: oom(fields.object("oom")?)?,
        ranks: fields.objects("ranks", rank)?,
        windows: fields.objects("windows", window)?,
    })
}

fn rank(fields: Fields<'_>) -> Result<RankRollup, SinkError> {
    Ok(RankRollup {
        rank: fields.count("rank", 0)?,
        local_rank: fields.count("local_rank", 0)?,
        world_size: fields.count("world_size", 1)?,
        event_count: fields.count("event_count", 0)?,
        sample_count: fields.count("sample_count", 0)?,
        first_timestamp_ns: fields.optional_count("first_timestamp_ns", 0)?,
        last_timestamp_ns: fields.optional_count("last_timestamp_ns", 0)?,
        counters: counters(fields)?,
        hidden_gap_first_bytes: fields.optional_integer("hidden_gap_first_bytes")?,
        hidden_gap_latest_bytes: fields.optional_integer("hidden_gap_latest_bytes")?,
        hidden_gap_peak_bytes: fields.optional_integer("hidden_gap_peak_bytes")?,
        hidden_gap_delta_bytes: fields.optional_integer("hidden_gap_delta_bytes")?,
        hidden_gap_drift_bytes_per_second: fields.optional_number("hidden_gap_drift_bytes_per_second")?,
    })
}

fn window(fields: Fields<'_>) -> Result<WindowRollup, SinkError> {
    Ok(WindowRollup {
        index: fields.count("index", 0)?,
        start_ns: fields.integer("start_ns", Some(0))?,
        end_ns: fields.integer("end_ns", Some(0))?,
        event_count: fields.count("event_count", 0)?,
        sample_count: fields.count("sample_count", 0)?,
        rank_count: fields.count("rank_count", 0)?,
        counters: counters(fields)?,
        alert_count: fields.count("alert_count", 0)?,
        collector_transition_count: fields.count("collector_transition_count", 0)?,
        oom_count: fields.count("oom_count", 0)?,
    })
}

fn counters(fields: Fields<'_>) -> Result<CounterSummary, SinkError> {
    let counters = fields.object("counters")?;
    let peak = |key: &str| -> Result<PeakValue, SinkError> {
        let fields = counters.object(key)?;
        Ok(PeakValue {
            value: fields.optional_integer("value")?,
            timestamp_ns: fields.optional_count("timestamp_ns", 0)?,
            rank: fields.optional_count("rank", 0)?,
            device_id: fields.optional_integer("device_id")?,
        })
    };
    Ok(CounterSummary {
        allocator_allocated_bytes: peak("allocator_allocated_bytes")?,
        allocator_reserved_bytes: peak("allocator_reserved_bytes")?,
        device_used_bytes: peak("device_used_bytes")?,
    })
}

fn alerts(fields: Fields<'_>) -> Result<AlertSummary, SinkError> {
    Ok(AlertSummary {
        total_count: fields.count("total_count", 0)?,
        severity_counts: fields.counts("severity_counts")?,
        event_type_counts: fields.counts("event_type_counts")?,
    })
}

fn collector_health(fields: Fields<'_>) -> Result<CollectorHealth, SinkError> {
    Ok(CollectorHealth {
        transition_count: fields.count("transition_count", 0)?,
        degraded_count: fields.count("degraded_count", 0)?,
        recovered_count: fields.count("recovered_count", 0)?,
        degraded_time_ns: fields.count("degraded_time_ns", 0)?,
        last_status: fields.optional_text("last_status")?,
    })
}

fn oom(fields: Fields<'_>) -> Result<OomSummary, SinkError> {
    Ok(OomSummary {
        marker_count: fields.count("marker_count", 0)?,
        event_count: fields.count("event_count", 0)?,
        bundle_path_count: fields.count("bundle_path_count", 0)?,
    })
}

/// An object whose fields are requested by name and kind.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Record);

impl<'a> Fields<'a> {
    fn get(self, key: &str) -> Result<&'a Value, SinkError> {
        self.0.get(key).ok_or_else(|| wrong(format!("missing required {key}")))
    }

    fn integer(self, key: &str, least: Option<i128>) -> Result<i128, SinkError> {
        let value = self.get(key)?;
        let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
        let number = number.ok_or_else(|| wrong(format!("{key} must be an integer")))?;
        match least {
            Some(least) if number < least => Err(wrong(format!("{key} must be >= {least}"))),
            _ => Ok(number),
        }
    }

    fn optional_integer(self, key: &str) -> Result<Option<i128>, SinkError> {
        if self.get(key)?.is_null() { Ok(None) } else { self.integer(key, None).map(Some) }
    }

    fn count(self, key: &str, least: u64) -> Result<u64, SinkError> {
        let number = self.integer(key, Some(least.into()))?;
        u64::try_from(number).map_err(|_| wrong(format!("{key} must be an integer")))
    }

    fn optional_count(self, key: &str, least: u64) -> Result<Option<u64>, SinkError> {
        if self.get(key)?.is_null() { Ok(None) } else { self.count(key, least).map(Some) }
    }

    fn optional_number(self, key: &str) -> Result<Option<f64>, SinkError> {
        match self.get(key)? {
            Value::Null => Ok(None),
            Value::Number(number) => Ok(number.as_f64()),
            _ => Err(wrong(format!("{key} must be a number or null"))),
        }
    }

    fn optional_text(self, key: &str) -> Result<Option<String>, SinkError> {
        match self.get(key)? {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(wrong(format!("{key} must be a string or null"))),
        }
    }

    fn object(self, key: &str) -> Result<Fields<'a>, SinkError> {
        as_object(self.get(key)?, key)
    }

    fn list(self, key: &str) -> Result<&'a [Value], SinkError> {
        let list = self.get(key)?.as_array().map(Vec::as_slice);
        list.ok_or_else(|| wrong(format!("{key} must be a list")))
    }

    fn texts(self, key: &str) -> Result<Vec<String>, SinkError> {
        let texts = self.list(key)?.iter().map(|item| item.as_str().map(str::to_owned));
        texts.collect::<Option<_>>().ok_or_else(|| wrong(format!("{key} must contain only strings")))
    }

    fn objects<T>(
        self,
        key: &str,
        read: impl Fn(Fields<'a>) -> Result<T, SinkError>,
    ) -> Result<Vec<T>, SinkError> {
        let label = format!("{key} item");
        self.list(key)?.iter().map(|item| read(as_object(item, &label)?)).collect()
    }

    fn counts(self, key: &str) -> Result<BTreeMap<String, u64>, SinkError> {
        let counts = self.object(key)?.0.iter().map(|(name, count)| Some((name.clone(), count.as_u64()?)));
        let message = || wrong(format!("{key} values must be non-negative integers"));
        counts.collect::<Option<_>>().ok_or_else(message)
    }
}

fn as_object<'a>(value: &'a Value, label: &str) -> Result<Fields<'a>, SinkError> {
    value.as_object().map(Fields).ok_or_else(|| wrong(format!("{label} must be an object")))
}

fn wrong(message: impl Into<String>) -> SinkError {
    SinkError::Rollup(message.into())
}
