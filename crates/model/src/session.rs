//! Sessions: one capture from start to end, its state, and the default one when several are found.

use std::cmp::{Ordering, Reverse};

use serde_json::Value;
use uuid::Uuid;

use crate::record::{get, non_empty};
use crate::{Event, Problem, Record, value_str};

/// The life of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionStatus {
    /// Open, being written.
    Running,
    /// Stopped cleanly.
    Completed,
    /// Its writer died; found out later.
    Interrupted,
    /// Recording failed, or nothing proves how it ended.
    Incomplete,
}

impl SessionStatus {
    /// The word written to files.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionStatus::Running => "running",
            SessionStatus::Completed => "completed",
            SessionStatus::Interrupted => "interrupted",
            SessionStatus::Incomplete => "incomplete",
        }
    }

    /// Reads a status word; case and surrounding space do not matter.
    pub fn parse(value: &Value) -> Result<Self, Problem> {
        let Some(text) = value.as_str().filter(|text| !text.trim().is_empty()) else {
            return Err(Problem::at("status", "session status must be a non-empty string"));
        };
        match text.trim().to_lowercase().as_str() {
            "running" => Ok(SessionStatus::Running),
            "completed" => Ok(SessionStatus::Completed),
            "interrupted" => Ok(SessionStatus::Interrupted),
            "incomplete" => Ok(SessionStatus::Incomplete),
            _ => Err(Problem::at("status", format!("Unsupported session status: {text}"))),
        }
    }

    /// Lower is chosen first.
    fn priority(self) -> u8 {
        match self {
            SessionStatus::Completed => 0,
            SessionStatus::Interrupted => 1,
            SessionStatus::Incomplete => 2,
            SessionStatus::Running => 3,
        }
    }
}

/// Identity and life of one session, as kept in manifests and bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// Opaque id.
    pub session_id: String,
    /// Where in its life it is.
    pub status: SessionStatus,
    /// Start, nanoseconds since the epoch.
    pub started_at_ns: i64,
    /// End, when known.
    pub ended_at_ns: Option<i64>,
    /// The machine's name.
    pub host: String,
    /// The recorded process; -1 when unknown.
    pub pid: i64,
    /// The job's name.
    pub job_id: Option<String>,
    /// Rank over the whole job.
    pub rank: i64,
    /// Rank on this machine.
    pub local_rank: i64,
    /// Number of ranks; at least 1.
    pub world_size: i64,
    /// How often the launcher had restarted the job; `None` where it does not count that.
    pub attempt: Option<u64>,
    /// What recorded it.
    pub source: String,
}

impl SessionSummary {
    /// The object form, keys in contract order.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("session_id", self.session_id.as_str().into());
        put("status", self.status.as_str().into());
        put("started_at_ns", self.started_at_ns.into());
        put("ended_at_ns", self.ended_at_ns.into());
        put("host", self.host.as_str().into());
        put("pid", self.pid.into());
        put("job_id", self.job_id.as_deref().into());
        put("rank", self.rank.into());
        put("local_rank", self.local_rank.into());
        put("world_size", self.world_size.into());
        if let Some(attempt) = self.attempt {
            put("attempt", attempt.into());
        }
        put("source", self.source.as_str().into());
        record
    }

    /// Reads the object form.
    pub fn from_record(record: &Record) -> Result<Self, Problem> {
        let session_id = required(record, "session_id")?;
        let source = required(record, "source")?;
        let status = SessionStatus::parse(get(record, "status"))?;
        if get(record, "started_at_ns").is_null() {
            return Err(Problem::of("started_at_ns", "must be present"));
        }
        let started_at_ns = int(record, "started_at_ns", 0)?;
        let ended = get(record, "ended_at_ns");
        let ended_at_ns = if ended.is_null() { None } else { Some(int(record, "ended_at_ns", 0)?) };
        let host = required(record, "host")?;
        Ok(SessionSummary {
            session_id,
            status,
            started_at_ns,
            ended_at_ns,
            host,
            pid: int(record, "pid", -1)?,
            job_id: get(record, "job_id").as_str().map(str::to_owned),
            rank: int(record, "rank", 0)?,
            local_rank: int(record, "local_rank", 0)?,
            world_size: int(record, "world_size", 1)?.max(1),
            attempt: get(record, "attempt").as_u64(),
            source,
        })
    }

    /// What bare events prove about their session: a `stop` means it completed, else `otherwise`.
    /// `None` without events, for then nothing is proven.
    pub fn infer<'a>(
        session_id: &str,
        events: impl IntoIterator<Item = &'a Event>,
        source: &str,
        otherwise: SessionStatus,
    ) -> Option<Self> {
        let mut first: Option<&Event> = None;
        let mut stop: Option<u64> = None;
        for event in events {
            if first.is_none_or(|first| event.timestamp_ns < first.timestamp_ns) {
                first = Some(event);
            }
            if event.head.event_type == "stop" {
                stop = Some(stop.unwrap_or(0).max(event.timestamp_ns));
            }
        }
        let first = first?;
        let identity = &first.head.identity;
        Some(SessionSummary {
            session_id: session_id.to_owned(),
            status: if stop.is_some() { SessionStatus::Completed } else { otherwise },
            started_at_ns: clamp(first.timestamp_ns),
            ended_at_ns: stop.map(clamp),
            host: first.head.host.clone(),
            pid: first.head.pid,
            job_id: identity.job_id.clone(),
            rank: clamp(identity.rank),
            local_rank: clamp(identity.local_rank),
            world_size: clamp(identity.world_size).max(1),
            attempt: None,
            source: source.to_owned(),
        })
    }
}

/// Which of two sessions is the default when none is named: the proven and the newest first.
pub fn selection_order(a: &SessionSummary, b: &SessionSummary) -> Ordering {
    let key = |summary: &SessionSummary| {
        // As in Python, an end of 0 counts as no end.
        let newest = summary.ended_at_ns.filter(|end| *end != 0).unwrap_or(summary.started_at_ns);
        (summary.status.priority(), Reverse(newest), Reverse(summary.started_at_ns))
    };
    key(a).cmp(&key(b)).then_with(|| a.session_id.cmp(&b.session_id))
}

/// A new opaque session id.
pub fn new_session_id() -> String {
    Uuid::new_v4().to_string()
}

/// The synthetic id of artifacts that carry none: the same parts give the same id, on every machine and in every
/// release.
pub fn legacy_session_id<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let name: Vec<&str> = parts.into_iter().collect();
    format!("legacy-{}", Uuid::new_v5(&Uuid::NAMESPACE_URL, name.join("::").as_bytes()))
}

fn required(record: &Record, key: &str) -> Result<String, Problem> {
    let value = get(record, key);
    match value {
        Value::String(_) => non_empty(value, key).map(str::to_owned),
        _ => Err(Problem::of(key, "must be a non-empty string")),
    }
}

fn int(record: &Record, key: &str, default: i64) -> Result<i64, Problem> {
    let value = match record.get(key) {
        None => return Ok(default),
        Some(value) => value,
    };
    let number = match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| Problem::of(key, &format!("must be an integer, not {}", value_str(value))))
}

fn clamp(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(id: &str, status: SessionStatus, start: i64, end: Option<i64>) -> SessionSummary {
        SessionSummary {
            session_id: id.into(),
            status,
            started_at_ns: start,
            ended_at_ns: end,
            host: "h".into(),
            pid: 1,
            job_id: None,
            rank: 0,
            local_rank: 0,
            world_size: 1,
            attempt: None,
            source: "test".into(),
        }
    }

    #[test]
    fn selection_prefers_proof_then_recency_then_id() {
        let mut sessions = [
            summary("running", SessionStatus::Running, 900, None),
            summary("incomplete", SessionStatus::Incomplete, 800, None),
            summary("old", SessionStatus::Completed, 100, Some(200)),
            summary("b", SessionStatus::Completed, 100, Some(300)),
            summary("a", SessionStatus::Completed, 100, Some(300)),
            summary("later-start", SessionStatus::Completed, 150, Some(300)),
            summary("interrupted", SessionStatus::Interrupted, 1, None),
        ];
        sessions.sort_by(selection_order);
        let order: Vec<&str> = sessions.iter().map(|s| s.session_id.as_str()).collect();
        assert_eq!(order, ["later-start", "a", "b", "old", "interrupted", "incomplete", "running"]);
    }

    #[test]
    fn synthetic_ids_are_those_of_python() {
        // uuid.uuid5(uuid.NAMESPACE_URL, "/data/events.json::json")
        assert_eq!(
            legacy_session_id(["/data/events.json", "json"]),
            "legacy-f49ff9a4-28e9-5df3-97d1-29cd2a36b2ee"
        );
    }

    #[test]
    fn summaries_round_trip() {
        let mut before = summary("x", SessionStatus::Interrupted, 5, Some(9));
        assert!(!before.to_record().contains_key("attempt"), "the form of 0.4.3 where no launcher counts");
        assert_eq!(SessionSummary::from_record(&before.to_record()), Ok(before.clone()));
        before.attempt = Some(2);
        assert_eq!(SessionSummary::from_record(&before.to_record()), Ok(before));
    }
}
