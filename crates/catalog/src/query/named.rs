//! Attachments that a person or a tool named: in a `stormlog_attachments.json` beside an artifact, or in the file of a run.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use stormlog_model::Record;

use super::attachment_keys::{Listed, Pair, listed, object};
use super::is_wanted;

/// The sidecar that names attachments.
pub const ATTACHMENTS_FILE: &str = "stormlog_attachments.json";
const FORMAT: &str = "stormlog.attachments";
const SCHEMA_VERSION: u64 = 1;

/// Something that was named: a dashboard, a trace, a note.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct NamedAttachment {
    pub title: String,
    pub kind: String,
    pub storage: &'static str,
    pub attachment_id: Option<String>,
    pub url: Option<String>,
    pub path: Option<String>,
    pub run_id: Option<String>,
    pub session_id: Option<String>,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    pub local_rank: Option<i64>,
    pub world_size: Option<i64>,
    pub start_ns: Option<i64>,
    pub end_ns: Option<i64>,
    pub created_at_utc: Option<String>,
    pub updated_at_utc: Option<String>,
    pub source_namespace: Option<String>,
    pub source_ref: Option<String>,
    pub metadata: Record,
    /// The file that names it.
    pub file: PathBuf,
}

/// Which attachments of sidecars; `None` is any.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs, reason = "the names are those of the file's keys")]
pub struct NamedFilter {
    pub session_id: Option<String>,
    pub job_id: Option<String>,
    pub rank: Option<i64>,
    pub kind: Option<String>,
}

impl NamedFilter {
    pub(super) fn matches(&self, row: &NamedAttachment) -> bool {
        is_wanted(&self.session_id, row.session_id.as_deref())
            && is_wanted(&self.job_id, row.job_id.as_deref())
            && (self.rank.is_none() || self.rank == row.rank)
            && is_wanted(&self.kind, Some(&row.kind))
    }
}

impl NamedAttachment {
    /// What `item` names; `None` where it lacks a title, a kind or a place, or ends before it starts.
    pub(super) fn of(item: &Record, file: &Path) -> Option<Self> {
        let get = |key: &str| text(item.get(key));
        let number = |key: &str| integer(item.get(key));
        let path = get("path").map(|path| beside(file, &path));
        let (start_ns, end_ns) = (number("start_ns"), number("end_ns"));
        if (get("url").is_none() && path.is_none())
            || start_ns.zip(end_ns).is_some_and(|(start, end)| end < start)
        {
            return None;
        }
        Some(NamedAttachment {
            title: get("title")?,
            kind: get("kind")?,
            storage: if item.get("storage").is_some_and(|storage| storage == "copy") {
                "copy"
            } else {
                "reference"
            },
            attachment_id: get("attachment_id"),
            url: get("url"),
            path,
            run_id: get("run_id"),
            session_id: get("session_id"),
            job_id: get("job_id"),
            rank: number("rank"),
            local_rank: number("local_rank"),
            world_size: number("world_size"),
            start_ns,
            end_ns,
            created_at_utc: get("created_at_utc"),
            updated_at_utc: get("updated_at_utc"),
            source_namespace: get("source_namespace"),
            source_ref: get("source_ref"),
            metadata: item.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default(),
            file: file.to_owned(),
        })
    }

    /// Where it is: its address, its path, else the file that names it.
    pub(super) fn place(&self) -> String {
        let named = self.url.clone().or_else(|| self.path.clone());
        named.unwrap_or_else(|| self.file.display().to_string())
    }

    /// The object form of what a run names.
    pub fn to_record(&self) -> Record {
        let listed = listed!(self);
        let run: [Pair; 1] = [("run_id", self.run_id.as_deref().into())];
        let times: [Pair; 2] = [
            ("created_at_utc", self.created_at_utc.as_deref().into()),
            ("updated_at_utc", self.updated_at_utc.as_deref().into()),
        ];
        let first = listed.subject().into_iter().chain(run).chain(listed.owner());
        object(first.chain(times).chain(listed.source()))
    }

    /// The object form of what a sidecar names.
    pub fn to_sidecar_record(&self) -> Record {
        let mut row = self.to_record();
        row.remove("local_rank");
        row.remove("world_size");
        row.insert("sidecar_path".to_owned(), self.file.display().to_string().into());
        row
    }
}

/// What a sidecar names, and what is wrong with it, a sentence each.
pub(super) fn read_sidecar(file: &Path, content: Option<Value>) -> (Vec<NamedAttachment>, Vec<String>) {
    let failed = |sentence: &str| (Vec::new(), vec![sentence.to_owned()]);
    let Some(Value::Object(payload)) = content else {
        return failed("attachment sidecar is not a JSON object");
    };
    let is_known = payload.get("schema_version").is_some_and(|version| *version == SCHEMA_VERSION)
        && payload.get("format").is_some_and(|format| format == FORMAT);
    if !is_known {
        return failed("unrecognized attachment sidecar shape");
    }
    let Some(Value::Array(items)) = payload.get("attachments") else {
        return failed("attachment sidecar attachments must be a list");
    };
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (number, item) in items.iter().enumerate() {
        match item.as_object().map(|item| NamedAttachment::of(item, file)) {
            None => wrong.push(format!("attachment {number} is not an object")),
            Some(None) => wrong.push(format!("attachment {number} is invalid")),
            Some(Some(attachment)) => found.push(attachment),
        }
    }
    (found, wrong)
}

/// A text with something in it.
fn text(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A whole number, also one that is written as a text.
fn integer(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A path as the file beside it means it. As Python resolves: links as far as the path exists, then by its words.
fn beside(file: &Path, path: &str) -> String {
    let joined = file.parent().unwrap_or(Path::new("")).join(path);
    let absolute = std::path::absolute(&joined).unwrap_or(joined);
    let mut whole = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            other => {
                whole.push(other);
                whole = std::fs::canonicalize(&whole).unwrap_or(whole);
            }
        }
    }
    whole.display().to_string()
}
