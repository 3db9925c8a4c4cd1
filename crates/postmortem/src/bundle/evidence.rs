//! What is known beyond 0.4.3's files: how it ended, under which limits, and what held the memory. Written as `evidence.json`.
//!
//! Plain data. Unknown is `None` and `null`, never 0.

use serde_json::Value;
use stormlog_model::{Counter, Counters, Record};

use crate::verdict::Verdict;
use crate::{Cause, Ended, signal_name};
use stormlog_model::phases::OpenPhase;

/// The version of `evidence.json`.
const EVIDENCE_VERSION: u64 = 1;

/// Everything about the end of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// What ended it.
    pub cause: Cause,
    /// Whether that is a failure; `None` where it was not judged.
    pub ended: Option<Ended>,
    /// How sure the cause is, 0 to 1; `None` where it was not judged.
    pub confidence: Option<f64>,
    /// The signal's number, if one did.
    pub signal: Option<i32>,
    /// Its exit status, if it had one.
    pub exit_code: Option<i32>,
    /// The verdict in one sentence.
    pub verdict: Option<String>,
    /// What to try.
    pub tries: Vec<String>,
    /// What is odd or missing about this evidence.
    pub notes: Vec<String>,
    /// The limit that held.
    pub limit_bytes: Option<u64>,
    /// Whose limit it is: `cgroup /train`, `RLIMIT_AS`.
    pub limit_source: Option<String>,
    /// Bytes used against that limit at the last look.
    pub usage_bytes: Option<u64>,
    /// The most resident memory the process had.
    pub peak_rss_bytes: Option<u64>,
    /// The last event before the end.
    pub last_event_timestamp_ns: Option<u64>,
    /// Every limit that was read, as the collectors name them.
    pub limits: Record,
    /// PSI and other pressure, as the collectors name it.
    pub pressure: Record,
    /// The memory map, summed up by what is mapped.
    pub memory_map: Vec<MapRow>,
    /// The last sample of every device.
    pub devices: Vec<DeviceSample>,
    /// Phases that were open.
    pub open_phases: Vec<OpenPhase>,
    /// Who held what, largest first.
    pub held_by: Vec<HeldBy>,
    /// The kernel's own lines about it.
    pub kernel_log: Vec<String>,
}

/// A part of the memory map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MapRow {
    /// `[heap]`, `[anon]`, a file's path.
    pub name: String,
    /// Mappings summed up.
    pub mappings: u64,
    /// Bytes of address space.
    pub size_bytes: Option<u64>,
    /// Bytes resident.
    pub rss_bytes: Option<u64>,
    /// Bytes swapped out.
    pub swap_bytes: Option<u64>,
    /// Bytes resident, each shared page divided by the number of processes that share it.
    pub pss_bytes: Option<u64>,
}

/// The last that is known of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSample {
    /// The device; -1 is the host.
    pub device_id: i64,
    /// Who read it.
    pub collector: String,
    /// When.
    pub timestamp_ns: u64,
    /// What.
    pub counters: Counters,
}

/// A holder of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldBy {
    /// A line, a function, a library or a process.
    pub place: String,
    /// Bytes held.
    pub bytes: u64,
    /// What more is known: `since epoch 2, still growing`.
    pub note: Option<String>,
}

impl From<&Verdict> for Evidence {
    /// What a verdict says.
    fn from(verdict: &Verdict) -> Self {
        Evidence {
            ended: Some(verdict.ended),
            confidence: Some(verdict.confidence),
            signal: verdict.signal,
            exit_code: verdict.exit_code,
            verdict: Some(verdict.sentence.clone()),
            tries: verdict.tries.clone(),
            notes: verdict.notes.clone(),
            limit_bytes: verdict.limit_bytes,
            limit_source: verdict.limit_source.clone(),
            usage_bytes: verdict.usage_bytes,
            ..Evidence::of(verdict.cause)
        }
    }
}

impl Evidence {
    /// Evidence that knows the cause and nothing else.
    pub fn of(cause: Cause) -> Self {
        Evidence {
            cause,
            ended: None,
            confidence: None,
            signal: None,
            exit_code: None,
            verdict: None,
            tries: Vec::new(),
            notes: Vec::new(),
            limit_bytes: None,
            limit_source: None,
            usage_bytes: None,
            peak_rss_bytes: None,
            last_event_timestamp_ns: None,
            limits: Record::new(),
            pressure: Record::new(),
            memory_map: Vec::new(),
            devices: Vec::new(),
            open_phases: Vec::new(),
            held_by: Vec::new(),
            kernel_log: Vec::new(),
        }
    }

    /// The object written to `evidence.json`.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("evidence_version", EVIDENCE_VERSION.into());
        put("cause", self.cause.as_str().into());
        put("ended", self.ended.map(Ended::as_str).into());
        put("confidence", self.confidence.into());
        put("signal", self.signal.into());
        put("signal_name", self.signal.map(signal_name).into());
        put("exit_code", self.exit_code.into());
        put("verdict", self.verdict.as_deref().into());
        put("try", self.tries.clone().into());
        put("notes", self.notes.clone().into());
        put("limit_bytes", self.limit_bytes.into());
        put("limit_source", self.limit_source.as_deref().into());
        put("usage_bytes", self.usage_bytes.into());
        put("peak_rss_bytes", self.peak_rss_bytes.into());
        put("last_event_timestamp_ns", self.last_event_timestamp_ns.into());
        put("limits", Value::Object(self.limits.clone()));
        put("pressure", Value::Object(self.pressure.clone()));
        put("memory_map", self.memory_map.iter().map(MapRow::to_value).collect());
        put("devices", self.devices.iter().map(DeviceSample::to_value).collect());
        put("open_phases", self.open_phases.iter().map(|phase| Value::Object(phase.to_record())).collect());
        put("held_by", self.held_by.iter().map(HeldBy::to_value).collect());
        put("kernel_log", self.kernel_log.clone().into());
        record
    }
}

impl MapRow {
    /// The object in `memory_map` of `evidence.json`.
    pub fn to_value(&self) -> Value {
        Value::Object(Record::from_iter([
            ("name".to_owned(), Value::from(self.name.as_str())),
            ("mappings".to_owned(), self.mappings.into()),
            ("size_bytes".to_owned(), self.size_bytes.into()),
            ("rss_bytes".to_owned(), self.rss_bytes.into()),
            ("swap_bytes".to_owned(), self.swap_bytes.into()),
            ("pss_bytes".to_owned(), self.pss_bytes.into()),
        ]))
    }

    /// Reads such an object; `None` when it has no name.
    pub fn of_value(value: &Value) -> Option<Self> {
        let bytes = |key: &str| value.get(key).and_then(Value::as_u64);
        Some(MapRow {
            name: value.get("name")?.as_str()?.to_owned(),
            mappings: bytes("mappings").unwrap_or(0),
            size_bytes: bytes("size_bytes"),
            rss_bytes: bytes("rss_bytes"),
            swap_bytes: bytes("swap_bytes"),
            pss_bytes: bytes("pss_bytes"),
        })
    }
}

impl DeviceSample {
    fn to_value(&self) -> Value {
        let mut record = Record::from_iter([
            ("device_id".to_owned(), Value::from(self.device_id)),
            ("collector".to_owned(), self.collector.as_str().into()),
            ("timestamp_ns".to_owned(), self.timestamp_ns.into()),
        ]);
        for counter in Counter::ALL.into_iter().filter(|counter| *counter != Counter::Change) {
            record.insert(counter.field().name().to_owned(), self.counters.get(counter).into());
        }
        Value::Object(record)
    }
}

impl HeldBy {
    fn to_value(&self) -> Value {
        Value::Object(Record::from_iter([
            ("place".to_owned(), Value::from(self.place.as_str())),
            ("bytes".to_owned(), self.bytes.into()),
            ("note".to_owned(), self.note.as_deref().into()),
        ]))
    }
}
