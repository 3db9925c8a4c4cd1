//! `telemetry_timeline.json` of a `diagnose` bundle as samples of one rank.
//!
//! The lists name no rank: it is in the payload, else in the path (`rank3`, `rank_3`, `rank-3`), else the next free number. As in
//! 0.4.3 the device's use is what the allocator holds, so that ranks can be compared; the metadata states the source. Every other
//! reader takes the device's use of such a file as unknown (`stormlog_store`).

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use stormlog_model::{
    Defaults, Event, Interner, Record, SessionStatus, SessionSummary, event_from_record, legacy_session_id,
};
use stormlog_store::{LoadedSession, json};

use super::input::{Input, by_session};
pub(super) use crate::diagnose::TIMELINE as TIMELINE_FILE;

const COLLECTOR: &str = "stormlog.diagnose.timeline";

/// The ranks that were seen, and the largest world.
#[derive(Debug, Default)]
pub(super) struct RankNumbers {
    used: BTreeSet<u64>,
    world_size: u64,
}

impl RankNumbers {
    pub(super) fn register(&mut self, rank: u64, world_size: u64) {
        self.used.insert(rank);
        self.world_size = self.world_size.max(world_size);
    }

    fn next_free(&self) -> u64 {
        // The ranks are sorted: the first that differs from its place leaves a number free.
        let taken = self.used.iter().zip(0..).take_while(|(rank, place)| **rank == *place);
        taken.count() as u64
    }
}

/// Where the samples of a timeline belong.
struct RankContext {
    rank: u64,
    local_rank: u64,
    world_size: u64,
    source: &'static str,
}

/// Loads one timeline.
pub(super) fn load(path: &Path, ranks: &mut RankNumbers) -> Input {
    match sessions(path, ranks) {
        Ok((sessions, note)) => Input { sessions, warnings: vec![note] },
        Err(problem) => Input { sessions: Vec::new(), warnings: vec![problem] },
    }
}

fn sessions(path: &Path, ranks: &mut RankNumbers) -> Result<(Vec<LoadedSession>, String), String> {
    let shown = path.display();
    let unreadable = |problem: String| format!("Failed to read timeline payload {shown}: {problem}");
    let payload = match json::read_value(path) {
        Ok(Value::Object(payload)) => payload,
        Ok(_) => return Err(format!("Timeline payload is not a JSON object: {shown}")),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let list = |key: &str| payload.get(key).and_then(Value::as_array);
    let (Some(timestamps), Some(allocated)) = (list("timestamps"), list("allocated")) else {
        return Err(format!("Invalid timeline payload shape in {shown}"));
    };
    if timestamps.is_empty() || allocated.is_empty() {
        return Err(format!("Timeline payload has no samples in {shown}"));
    }
    let reserved = list("reserved").unwrap_or(allocated);
    if reserved.is_empty() {
        return Err(format!("Timeline payload has no aligned samples in {shown}"));
    }
    let rows: Option<Vec<Row>> = timestamps
        .iter()
        .zip(allocated)
        .zip(reserved)
        .map(|((at, allocated), reserved)| {
            Some(Row { at: seconds(at)?, allocated: whole(allocated)?, reserved: whole(reserved)? })
        })
        .collect();
    let Some(rows) = rows else {
        return Err(unreadable("timestamps, allocated and reserved must be lists of numbers".to_owned()));
    };
    let context = rank_context(path, &payload, ranks);
    let summary = summary(path, &context, rows[0].at);
    let events = events(&rows, &summary).map_err(unreadable)?;
    let note = format!(
        "Synthesized telemetry events from {TIMELINE_FILE}; assigned rank={} world_size={} \
         (source={}, session_id={}, status={}).",
        context.rank,
        context.world_size,
        context.source,
        summary.session_id,
        summary.status.as_str()
    );
    let session = |events| {
        let sources = vec![path.to_owned()];
        LoadedSession { summary: summary.clone(), events, sources, warnings: Vec::new() }
    };
    Ok((by_session(events).into_iter().map(session).collect(), note))
}

/// One sample of the lists.
struct Row {
    at: f64,
    allocated: i64,
    reserved: i64,
}

fn events(rows: &[Row], summary: &SessionSummary) -> Result<Vec<Event>, String> {
    let defaults =
        Defaults { collector: COLLECTOR, session_id: Some(&summary.session_id), ..Defaults::default() };
    let base = base_record(summary);
    let mut interner = Interner::default();
    let mut events = Vec::with_capacity(rows.len());
    let (mut before, mut before_at) = (0, rows.first().map_or(0.0, |row| row.at));
    for row in rows {
        let mut record = base.clone();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        let interval_ms = ((row.at - before_at) * 1000.0).round_ties_even().max(0.0) as u64;
        put("timestamp", row.at.into());
        put("sampling_interval_ms", interval_ms.into());
        put("memory_allocated", row.allocated.into());
        put("memory_reserved", row.reserved.into());
        put("memory_change", row.allocated.saturating_sub(before).into());
        put("device_used_bytes", row.allocated.max(row.reserved).into());
        (before, before_at) = (row.allocated, row.at);
        events.push(
            event_from_record(&record, &defaults, &mut interner).map_err(|problem| problem.to_string())?,
        );
    }
    Ok(events)
}

fn base_record(summary: &SessionSummary) -> Record {
    let metadata = [("source".to_owned(), Value::from("diagnose.telemetry_timeline"))];
    let pairs: [(&str, Value); 12] = [
        ("session_id", summary.session_id.as_str().into()),
        ("event_type", "sample".into()),
        ("collector", COLLECTOR.into()),
        ("pid", summary.pid.into()),
        ("host", summary.host.as_str().into()),
        ("device_id", 0.into()),
        ("device_total_bytes", Value::Null),
        ("context", "diagnose timeline sample".into()),
        ("job_id", summary.job_id.as_deref().into()),
        ("rank", summary.rank.into()),
        ("local_rank", summary.local_rank.into()),
        ("world_size", summary.world_size.into()),
    ];
    let mut record: Record = pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    record.insert("metadata".to_owned(), Value::Object(metadata.into_iter().collect()));
    record
}

fn rank_context(path: &Path, payload: &Record, ranks: &mut RankNumbers) -> RankContext {
    let hint = |key: &str, least: u64| {
        let nested = |name: &str| payload.get(name).and_then(Value::as_object).and_then(|map| map.get(key));
        [payload.get(key), nested("metadata"), nested("distributed_identity")]
            .into_iter()
            .flatten()
            .find_map(|value| natural(value).filter(|number| *number >= least))
    };
    let (rank, source) = match (hint("rank", 0), rank_in_path(path)) {
        (Some(rank), _) => (rank, "payload"),
        (None, Some(rank)) => (rank, "path"),
        (None, None) => (ranks.next_free(), "allocator"),
    };
    let local_rank = hint("local_rank", 0).unwrap_or(rank);
    let known = ranks.used.len() as u64 + u64::from(!ranks.used.contains(&rank));
    let least = [rank.saturating_add(1), local_rank.saturating_add(1), ranks.world_size, known, 1];
    let least = least.into_iter().max().unwrap_or(1);
    let world_size = hint("world_size", 1).unwrap_or(least).max(least);
    ranks.register(rank, world_size);
    RankContext { rank, local_rank, world_size, source }
}

/// The number in the nearest part of a path that names a rank, but not a local one.
fn rank_in_path(path: &Path) -> Option<u64> {
    path.ancestors().filter_map(Path::file_name).find_map(|name| rank_in_name(&name.to_string_lossy()))
}

fn rank_in_name(name: &str) -> Option<u64> {
    let name = name.to_ascii_lowercase();
    name.match_indices("rank").find_map(|(at, word)| {
        let (before, after) = (&name[..at], &name[at + word.len()..]);
        let is_part_of_word = before.ends_with(|last: char| last.is_ascii_alphanumeric());
        if is_part_of_word || before.ends_with("local_") || before.ends_with("local-") {
            return None;
        }
        let digits = after.strip_prefix(['_', '-']).unwrap_or(after);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    })
}

fn summary(path: &Path, context: &RankContext, first_at: f64) -> SessionSummary {
    let started_at_ns = (first_at * 1e9) as i64;
    let id = || legacy_session_id([path.to_string_lossy().as_ref(), "diagnose.timeline"]);
    let stated = path.parent().and_then(|directory| stated_summary(directory, started_at_ns));
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let base =
        stated.unwrap_or_else(|| unknown(id(), SessionStatus::Incomplete, started_at_ns, None, COLLECTOR));
    SessionSummary {
        rank: signed(context.rank),
        local_rank: signed(context.local_rank),
        world_size: signed(context.world_size),
        ..base
    }
}

/// The session that a bundle's manifest states, whole or only by name and state.
fn stated_summary(directory: &Path, first_ns: i64) -> Option<SessionSummary> {
    let Ok(Value::Object(manifest)) = json::read_value(&directory.join("manifest.json")) else { return None };
    let whole = manifest.get("session").and_then(Value::as_object);
    if let Some(summary) = whole.and_then(|record| SessionSummary::from_record(record).ok()) {
        return Some(summary);
    }
    let id = manifest.get("session_id")?.as_str().filter(|id| !stormlog_model::strip(id).is_empty())?;
    let status = manifest.get("session_status").and_then(|status| SessionStatus::parse(status).ok());
    let status = status.unwrap_or(SessionStatus::Incomplete);
    let created = manifest.get("created_iso").and_then(Value::as_str).and_then(created_ns);
    let ended = created.filter(|_| status != SessionStatus::Running);
    Some(unknown(id.to_owned(), status, created.unwrap_or(first_ns), ended, "stormlog.diagnose.bundle"))
}

fn unknown(
    session_id: String,
    status: SessionStatus,
    started_at_ns: i64,
    ended_at_ns: Option<i64>,
    source: &str,
) -> SessionSummary {
    SessionSummary {
        session_id,
        status,
        started_at_ns,
        ended_at_ns,
        host: "unknown".to_owned(),
        pid: -1,
        job_id: None,
        rank: 0,
        local_rank: 0,
        world_size: 1,
        attempt: None,
        source: source.to_owned(),
    }
}

/// Nanoseconds since the epoch of an ISO date, to the microsecond, as Python's `datetime` has it.
fn created_ns(text: &str) -> Option<i64> {
    let text = stormlog_model::strip(text);
    let microseconds = match text.parse::<jiff::Timestamp>() {
        Ok(moment) => moment.as_microsecond(),
        Err(_) => {
            let local = text.parse::<jiff::civil::DateTime>().ok()?;
            local.to_zoned(jiff::tz::TimeZone::system()).ok()?.timestamp().as_microsecond()
        }
    };
    Some((microseconds as f64 / 1e6 * 1e9) as i64)
}

/// Seconds since the epoch, also when they are written as text; nanoseconds of them must fit 63 bits.
fn seconds(value: &Value) -> Option<f64> {
    let number: f64 = match value {
        Value::String(text) => stormlog_model::strip(text).parse().ok()?,
        other => other.as_f64()?,
    };
    (0.0..9.2e9).contains(&number).then_some(number)
}

/// Bytes: a fraction is cut off.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => stormlog_model::strip(text).parse().ok(),
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64().filter(|float| float.abs() < 9e18)?;
            Some(float as i64)
        }),
        _ => None,
    }
}

/// A number of 0 or more without a fraction, also when it is written as text.
fn natural(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => stormlog_model::strip(text).parse().ok(),
        Value::Number(number) => number.as_u64().or_else(|| {
            let float =
                number.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float))?;
            Some(float as u64)
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_rank_as_a_word_of_its_own() {
        for (name, expected) in [
            ("rank3", Some(3)),
            ("node-RANK_12-x", Some(12)),
            ("a.rank-0", Some(0)),
            ("frank3", None),
            ("local_rank2", None),
            ("local-rank2_rank5", Some(5)),
            ("rank", None),
            ("rank99999999999999999999", None),
        ] {
            assert_eq!(rank_in_name(name), expected, "{name}");
        }
    }

    #[test]
    fn the_next_free_rank_fills_a_hole() {
        let mut ranks = RankNumbers::default();
        assert_eq!(ranks.next_free(), 0);
        [0, 1, 3].into_iter().for_each(|rank| ranks.register(rank, 4));
        assert_eq!(ranks.next_free(), 2);
    }
}
