//! `stormlog_run.json`: a run as a person or a tool describes it. Read whole and exact, or not at all.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;
use serde_json::Value;
use stormlog_model::Record;

use super::named::NamedAttachment;
use super::record;

/// The file that describes a run.
pub const RUN_ENVELOPE_FILE: &str = "stormlog_run.json";
/// How it calls itself.
pub const RUN_ENVELOPE_FORMAT: &str = "stormlog.run_envelope";
/// The version that is read.
pub const RUN_ENVELOPE_VERSION: u64 = 1;

/// What such a file states.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct RunEnvelope {
    pub run_id: String,
    /// The file.
    pub path: PathBuf,
    pub title: Option<String>,
    pub description: Option<String>,
    pub job_id: Option<String>,
    pub started_at_ns: Option<i64>,
    pub ended_at_ns: Option<i64>,
    pub created_at_utc: Option<String>,
    pub updated_at_utc: Option<String>,
    pub source_namespace: Option<String>,
    pub source_ref: Option<String>,
    pub tags: Vec<String>,
    pub sessions: Vec<SessionRef>,
    pub attachments: Vec<NamedAttachment>,
    pub metadata: Record,
}

/// A session that a run names.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct SessionRef {
    pub session_id: String,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    pub local_rank: Option<i64>,
    pub world_size: Option<i64>,
    pub role: Option<String>,
    pub source_namespace: Option<String>,
    pub source_ref: Option<String>,
    pub metadata: Record,
}

/// What a value must be.
enum Check {
    Any,
    Name,
    NameOrNull,
    TextOrNull,
    AtLeastOrNull(i64),
    Storage,
    Map,
    Tags,
    Sessions,
    Attachments,
}

const SESSION: [(&str, Check); 9] = [
    ("job_id", Check::NameOrNull),
    ("rank", Check::AtLeastOrNull(0)),
    ("local_rank", Check::AtLeastOrNull(0)),
    ("world_size", Check::AtLeastOrNull(1)),
    ("source_namespace", Check::NameOrNull),
    ("source_ref", Check::NameOrNull),
    ("metadata", Check::Map),
    ("session_id", Check::Name),
    ("role", Check::NameOrNull),
];
const ATTACHMENT: [(&str, Check); 19] = [
    ("job_id", Check::NameOrNull),
    ("rank", Check::AtLeastOrNull(0)),
    ("local_rank", Check::AtLeastOrNull(0)),
    ("world_size", Check::AtLeastOrNull(1)),
    ("source_namespace", Check::NameOrNull),
    ("source_ref", Check::NameOrNull),
    ("metadata", Check::Map),
    ("attachment_id", Check::NameOrNull),
    ("title", Check::Name),
    ("kind", Check::Name),
    ("storage", Check::Storage),
    ("url", Check::Name),
    ("path", Check::Name),
    ("run_id", Check::NameOrNull),
    ("session_id", Check::NameOrNull),
    ("start_ns", Check::AtLeastOrNull(0)),
    ("end_ns", Check::AtLeastOrNull(0)),
    ("created_at_utc", Check::TextOrNull),
    ("updated_at_utc", Check::TextOrNull),
];
const ENVELOPE: [(&str, Check); 16] = [
    ("schema_version", Check::Any),
    ("format", Check::Any),
    ("run_id", Check::Name),
    ("title", Check::NameOrNull),
    ("description", Check::TextOrNull),
    ("job_id", Check::NameOrNull),
    ("started_at_ns", Check::AtLeastOrNull(0)),
    ("ended_at_ns", Check::AtLeastOrNull(0)),
    ("created_at_utc", Check::TextOrNull),
    ("updated_at_utc", Check::TextOrNull),
    ("source_namespace", Check::NameOrNull),
    ("source_ref", Check::NameOrNull),
    ("tags", Check::Tags),
    ("sessions", Check::Sessions),
    ("attachments", Check::Attachments),
    ("metadata", Check::Map),
];

impl Check {
    fn accepts(&self, value: &Value) -> bool {
        let is_name = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let all = |accepts: &dyn Fn(&Value) -> bool| {
            value.as_array().is_some_and(|items| items.iter().all(accepts))
        };
        match self {
            Check::Any => true,
            Check::Name => is_name(value),
            Check::NameOrNull => value.is_null() || is_name(value),
            Check::TextOrNull => value.is_null() || value.is_string(),
            Check::AtLeastOrNull(least) => {
                value.is_null() || value.as_i64().is_some_and(|number| number >= *least)
            }
            Check::Storage => value == "reference" || value == "copy",
            Check::Map => value.is_object(),
            Check::Tags => {
                let tags = value.as_array().map_or(&[][..], Vec::as_slice);
                all(&is_name) && tags.iter().collect::<FxHashSet<&Value>>().len() == tags.len()
            }
            Check::Sessions => all(&|item| has_shape(item, &SESSION, &["session_id", "metadata"])),
            Check::Attachments => all(&is_attachment),
        }
    }
}

fn is_attachment(item: &Value) -> bool {
    has_shape(item, &ATTACHMENT, &["title", "kind", "storage", "metadata"])
        && (item.get("url").is_some() || item.get("path").is_some())
        && is_ordered(item, "start_ns", "end_ns")
}

/// Whether an object has every key it needs, none that is unknown, and nothing of the wrong kind.
fn has_shape(value: &Value, checks: &[(&str, Check)], required: &[&str]) -> bool {
    let Some(map) = value.as_object() else { return false };
    let is_right = |(key, given): (&String, &Value)| {
        checks.iter().find(|(name, _)| name == key).is_some_and(|(_, check)| check.accepts(given))
    };
    required.iter().all(|key| map.contains_key(*key)) && map.iter().all(is_right)
}

fn is_ordered(value: &Value, first: &str, last: &str) -> bool {
    let number = |key: &str| value.get(key).and_then(Value::as_i64);
    number(first).zip(number(last)).is_none_or(|(first, last)| last >= first)
}

impl RunEnvelope {
    /// Whether it calls itself a run of the version we know.
    pub fn is_one(payload: &Value) -> bool {
        payload.get("schema_version").is_some_and(|version| *version == RUN_ENVELOPE_VERSION)
            && payload.get("format").is_some_and(|format| format == RUN_ENVELOPE_FORMAT)
    }

    /// What the file states; `None` if anything in it is missing, unknown or of the wrong kind.
    pub fn of(payload: &Value, path: &Path) -> Option<Self> {
        let is_whole = Self::is_one(payload)
            && has_shape(payload, &ENVELOPE, &["schema_version", "format", "run_id", "metadata"])
            && is_ordered(payload, "started_at_ns", "ended_at_ns");
        let stated = payload.as_object().filter(|_| is_whole)?;
        let text = |key: &str| stated.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| stated.get(key).and_then(Value::as_i64);
        let items = |key: &str| stated.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let run_id = text("run_id")?;
        let attachment = |item: &Value| {
            let mut attachment = NamedAttachment::of(item.as_object()?, path)?;
            attachment.run_id.get_or_insert_with(|| run_id.clone());
            // These may be empty texts here.
            for (key, slot) in [
                ("created_at_utc", &mut attachment.created_at_utc),
                ("updated_at_utc", &mut attachment.updated_at_utc),
            ] {
                *slot = item.get(key).and_then(Value::as_str).map(str::to_owned);
            }
            Some(attachment)
        };
        Some(RunEnvelope {
            path: path.to_owned(),
            title: text("title"),
            description: text("description"),
            job_id: text("job_id"),
            started_at_ns: number("started_at_ns"),
            ended_at_ns: number("ended_at_ns"),
            created_at_utc: text("created_at_utc"),
            updated_at_utc: text("updated_at_utc"),
            source_namespace: text("source_namespace"),
            source_ref: text("source_ref"),
            tags: items("tags").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            sessions: items("sessions").iter().filter_map(SessionRef::of).collect(),
            attachments: items("attachments").iter().filter_map(attachment).collect(),
            metadata: stated.get("metadata")?.as_object()?.clone(),
            run_id,
        })
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        let objects = |records: Vec<Record>| Value::Array(records.into_iter().map(Value::Object).collect());
        record([
            ("run_id", self.run_id.as_str().into()),
            ("path", self.path.display().to_string().into()),
            ("title", self.title.as_deref().into()),
            ("description", self.description.as_deref().into()),
            ("job_id", self.job_id.as_deref().into()),
            ("started_at_ns", self.started_at_ns.into()),
            ("ended_at_ns", self.ended_at_ns.into()),
            ("created_at_utc", self.created_at_utc.as_deref().into()),
            ("updated_at_utc", self.updated_at_utc.as_deref().into()),
            ("source_namespace", self.source_namespace.as_deref().into()),
            ("source_ref", self.source_ref.as_deref().into()),
            ("tags", self.tags.clone().into()),
            ("sessions", objects(self.sessions.iter().map(SessionRef::to_record).collect())),
            ("attachments", objects(self.attachments.iter().map(NamedAttachment::to_record).collect())),
            ("metadata", Value::Object(self.metadata.clone())),
        ])
    }
}

impl SessionRef {
    fn of(item: &Value) -> Option<Self> {
        let text = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| item.get(key).and_then(Value::as_i64);
        Some(SessionRef {
            session_id: text("session_id")?,
            job_id: text("job_id"),
            rank: number("rank"),
            local_rank: number("local_rank"),
            world_size: number("world_size"),
            role: text("role"),
            source_namespace: text("source_namespace"),
            source_ref: text("source_ref"),
            metadata: item.get("metadata")?.as_object()?.clone(),
        })
    }

    fn to_record(&self) -> Record {
        record([
            ("session_id", self.session_id.as_str().into()),
            ("job_id", self.job_id.as_deref().into()),
            ("rank", self.rank.into()),
            ("local_rank", self.local_rank.into()),
            ("world_size", self.world_size.into()),
            ("role", self.role.as_deref().into()),
            ("source_namespace", self.source_namespace.as_deref().into()),
            ("source_ref", self.source_ref.as_deref().into()),
            ("metadata", Value::Object(self.metadata.clone())),
        ])
    }
}
