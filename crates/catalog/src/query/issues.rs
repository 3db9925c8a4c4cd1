//! Issues: every sign of trouble in the bundles and events, the same things counted together under one fingerprint.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use stormlog_analyze::rules::gap::{GapThresholds, hidden_gaps_of};
use stormlog_model::classify::{
    event_backend, event_severity, is_alert_event, is_collector_degradation_event, is_oom_event,
};
use stormlog_model::fingerprint::{Fingerprint, alert_category, error_stem, issue_state, text_dimension};
use stormlog_model::{Event, Record};

use super::events::EventOrigin;
use super::markers::{Phases, phase_of};
use super::moment::utc_ns;
use super::ooms::{BundleFilter, BundleRow};
use super::store::{Loaded, Store};
use super::{QueryError, is_wanted, record};

/// Fewer samples show no trend.
const FEWEST_EVENTS: usize = 3;

/// Which issues; `None` is any.
#[derive(Debug, Default, Clone)]
#[allow(missing_docs, reason = "the names are those of the rows")]
pub struct IssueFilter {
    pub fingerprint_id: Option<String>,
    pub kind: Option<String>,
    pub state: Option<String>,
    pub severity: Option<String>,
    pub session_id: Option<String>,
}

/// Where an issue was seen: an event, or a bundle.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names are those of 0.4.3's rows")]
pub struct IssueLink {
    pub session_id: Option<String>,
    pub timestamp_ns: Option<i128>,
    pub rank: Option<u64>,
    pub source_path: Option<String>,
    pub source_kind: Option<String>,
    pub event_type: Option<String>,
    pub bundle_path: Option<String>,
    pub metadata: Record,
}

/// One kind of trouble with every place it was seen.
#[derive(Debug, Clone)]
pub struct Issue {
    /// What it is about.
    pub fingerprint: Fingerprint,
    /// The id of the fingerprint.
    pub fingerprint_id: String,
    /// A line for people.
    pub title: String,
    /// The worst it was seen with.
    pub severity: String,
    /// What has become of it.
    pub state: String,
    /// Where it was seen; the first stands for all.
    pub evidence: Vec<IssueLink>,
    /// What was last known of it.
    pub details: Record,
}

impl IssueLink {
    fn of(event: &Event, origin: &EventOrigin, metadata: Record) -> Self {
        IssueLink {
            session_id: Some(event.head.session_id.clone()),
            timestamp_ns: Some(event.timestamp_ns.into()),
            rank: Some(event.head.identity.rank),
            source_path: Some(origin.source_path.clone()),
            source_kind: Some(origin.source_kind.to_owned()),
            event_type: Some(event.head.event_type.clone()),
            bundle_path: None,
            metadata,
        }
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        record([
            ("session_id", self.session_id.as_deref().into()),
            ("timestamp_ns", self.timestamp_ns.and_then(|at| i64::try_from(at).ok()).into()),
            ("rank", self.rank.into()),
            ("source_path", self.source_path.as_deref().into()),
            ("source_kind", self.source_kind.as_deref().into()),
            ("event_type", self.event_type.as_deref().into()),
            ("bundle_path", self.bundle_path.as_deref().into()),
            ("metadata", Value::Object(self.metadata.clone())),
        ])
    }
}

impl Issue {
    /// The sessions it was seen in, sorted.
    pub fn affected_sessions(&self) -> BTreeSet<&str> {
        self.evidence
            .iter()
            .filter_map(|link| link.session_id.as_deref())
            .filter(|id| !id.is_empty())
            .collect()
    }

    /// When it was seen first and last.
    pub fn seen_ns(&self) -> Option<(i128, i128)> {
        let times = || self.evidence.iter().filter_map(|link| link.timestamp_ns);
        Some((times().min()?, times().max()?))
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        let seen = self.seen_ns();
        let time = |at: Option<i128>| Value::from(at.and_then(|at| i64::try_from(at).ok()));
        let links = self.evidence.iter().map(|link| Value::Object(link.to_record()));
        record([
            ("fingerprint_id", self.fingerprint_id.as_str().into()),
            ("kind", self.fingerprint.kind.as_str().into()),
            ("state", self.state.as_str().into()),
            ("severity", self.severity.as_str().into()),
            ("title", self.title.as_str().into()),
            ("hit_count", self.evidence.len().into()),
            ("first_seen_ns", time(seen.map(|(first, _)| first))),
            ("last_seen_ns", time(seen.map(|(_, last)| last))),
            ("affected_sessions", self.affected_sessions().into_iter().map(Value::from).collect()),
            ("representative_evidence", links.clone().next().unwrap_or_default()),
            ("fingerprint", Value::Object(self.fingerprint.to_record())),
            ("evidence", links.collect()),
            ("details", Value::Object(self.details.clone())),
        ])
    }
}

impl IssueFilter {
    fn matches(&self, issue: &Issue) -> bool {
        is_wanted(&self.fingerprint_id, Some(&issue.fingerprint_id))
            && is_wanted(&self.kind, Some(&issue.fingerprint.kind))
            && is_wanted(&self.state, Some(&issue.state))
            && is_wanted(&self.severity, Some(&issue.severity))
            && self.session_id.as_deref().is_none_or(|id| issue.affected_sessions().contains(id))
    }
}

fn weight(severity: &str) -> u8 {
    match severity {
        "critical" | "error" => 0,
        "warning" => 1,
        "info" => 2,
        _ => 9,
    }
}

/// One sign of trouble.
struct Sign {
    kind: &'static str,
    about: Record,
    title: String,
    severity: String,
    link: IssueLink,
    details: Record,
}

/// Issues while their signs are gathered, in the order they were seen first.
#[derive(Default)]
struct Grouping {
    issues: Vec<Issue>,
    by_id: FxHashMap<String, usize>,
}

impl Grouping {
    fn add(&mut self, sign: Sign) -> Result<(), QueryError> {
        let fingerprint = Fingerprint::new(sign.kind, &sign.about)?;
        let id = fingerprint.id();
        let at = *self.by_id.entry(id.clone()).or_insert_with(|| {
            self.issues.push(Issue {
                fingerprint,
                fingerprint_id: id,
                title: sign.title,
                severity: sign.severity.clone(),
                state: "open".to_owned(),
                evidence: Vec::new(),
                details: Record::new(),
            });
            self.issues.len() - 1
        });
        let issue = &mut self.issues[at];
        issue.evidence.push(sign.link);
        issue.details.extend(sign.details);
        if weight(&sign.severity) < weight(&issue.severity) {
            issue.severity = sign.severity;
        }
        Ok(())
    }
}

impl Store {
    /// What went wrong, the worst first. A state given for a fingerprint takes the place of `open`.
    pub fn issues(
        &mut self,
        filter: &IssueFilter,
        states: &[(String, String)],
    ) -> Result<Vec<Issue>, QueryError> {
        let mut known: FxHashMap<&str, &'static str> = FxHashMap::default();
        for (id, word) in states {
            known.insert(id, issue_state(word)?);
        }
        let mut grouping = Grouping::default();
        let bundles = self.bundles(&BundleFilter::default())?;
        // An end that was meant is not an issue.
        for bundle in bundles.into_iter().filter(|bundle| bundle.is_memory || bundle.is_failure) {
            grouping.add(of_bundle(&bundle))?;
        }
        let is_sign = |event: &Event| is_alert_event(event) || is_collector_degradation_event(event);
        let rows = self.picked(None, |_, event| is_sign(event))?;
        for (event, origin) in rows.rows() {
            if let Some(sign) = of_event(event, origin) {
                grouping.add(sign)?;
            }
        }
        for number in 0..self.source_count() {
            let kind = self.kind_of(number);
            for loaded in self.load(number)?.iter() {
                for sign in hidden(loaded, kind) {
                    grouping.add(sign)?;
                }
            }
        }
        let mut issues = grouping.issues;
        for issue in &mut issues {
            if let Some(state) = known.get(issue.fingerprint_id.as_str()) {
                issue.state = (*state).to_owned();
            }
        }
        issues.retain(|issue| filter.matches(issue));
        issues.sort_by_cached_key(|issue| {
            let last = issue.seen_ns().map_or(-1, |(_, last)| last);
            (weight(&issue.severity), -last, issue.fingerprint_id.clone())
        });
        Ok(issues)
    }
}

fn of_bundle(row: &BundleRow) -> Sign {
    let text = |text: &Option<String>| Value::from(text.as_deref());
    let about = record([("backend", text(&row.backend)), ("reason", text(&row.reason))]);
    let mut details = about.clone();
    details.extend(record([
        ("exception_type", text(&row.exception_type)),
        ("exception_module", text(&row.exception_module)),
    ]));
    let (kind, title) = match row.is_memory {
        true => ("oom", "OOM captured by flight recorder"),
        false => ("crash", "Crash captured by flight recorder"),
    };
    Sign {
        kind,
        about,
        title: title.to_owned(),
        severity: "critical".to_owned(),
        link: IssueLink {
            session_id: row.session_id.clone(),
            timestamp_ns: utc_ns(row.created_at_utc.as_deref()).map(i128::from),
            source_path: Some(row.bundle_path.clone()),
            source_kind: Some("oom_bundle".to_owned()),
            bundle_path: Some(row.bundle_path.clone()),
            metadata: record([
                ("created_at_utc", text(&row.created_at_utc)),
                ("event_count", row.event_count.into()),
                ("session_status", text(&row.session_status)),
            ]),
            ..IssueLink::default()
        },
        details,
    }
}

/// What an event is a sign of, if of anything.
fn of_event(event: &Event, origin: &EventOrigin) -> Option<Sign> {
    let (head, metadata) = (&event.head, &event.metadata.map);
    let stated = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    let link = |first: Record| {
        let mut facts = first;
        facts.insert("session_status".to_owned(), origin.session_status.into());
        IssueLink::of(event, origin, facts)
    };
    let context = record([("context", event.context.as_deref().into())]);
    let backend = || Value::from(event_backend(event));
    if is_oom_event(event) {
        let about = record([("backend", backend()), ("reason", stated("oom_reason"))]);
        let mut details = about.clone();
        details.extend(record([
            ("collector", head.collector.as_str().into()),
            ("device_id", head.device_id.into()),
        ]));
        let dump = metadata.get("oom_dump_path").and_then(Value::as_str).filter(|path| !path.is_empty());
        let link = IssueLink { bundle_path: dump.map(str::to_owned), ..link(context) };
        let (title, severity) = ("OOM telemetry event".to_owned(), "critical".to_owned());
        return Some(Sign { kind: "oom", about, title, severity, link, details });
    }
    if is_collector_degradation_event(event) {
        let health = text_dimension(&stated("collector_health_status"), "degraded");
        let partial = metadata.get("collector_partial_fields").filter(|fields| fields.is_array());
        let about = record([
            ("collector", head.collector.as_str().into()),
            ("backend", backend()),
            ("health_status", health.as_str().into()),
            ("partial_fields", partial.cloned().unwrap_or_else(|| json!([]))),
            ("error_stem", error_stem(&stated("collector_last_error")).into()),
        ]);
        let kept = ["collector_consecutive_failures", "collector_next_retry_epoch_s"];
        let link = link(kept.into_iter().map(|key| (key.to_owned(), stated(key))).collect());
        let severity = if health == "unhealthy" { "critical" } else { "warning" }.to_owned();
        let title = "Collector degradation".to_owned();
        return Some(Sign {
            kind: "collector_degradation",
            details: about.clone(),
            about,
            title,
            severity,
            link,
        });
    }
    if !is_alert_event(event) {
        return None;
    }
    let severity = event_severity(event);
    let category = alert_category(&event.context.as_deref().into());
    let details = record([
        ("event_type", head.event_type.as_str().into()),
        ("collector", head.collector.as_str().into()),
        ("backend", backend()),
        ("category", category.as_str().into()),
    ]);
    let mut about = details.clone();
    about.insert("severity".to_owned(), severity.as_str().into());
    let title = format!("Alert: {}", category.replace('_', " "));
    Some(Sign { kind: "alert", about, title, severity, link: link(context), details })
}

/// Memory that the device uses and the allocator does not know of.
fn hidden(loaded: &Loaded, source_kind: &str) -> Vec<Sign> {
    let events = &loaded.events;
    if events.len() < FEWEST_EVENTS {
        return Vec::new();
    }
    let gaps = hidden_gaps_of(events, &GapThresholds::default());
    if gaps.is_empty() {
        return Vec::new();
    }
    let phases = Phases::of(events);
    let sign = |(gap, place): (stormlog_analyze::rules::gap::GapFinding, usize)| {
        let attribution = phase_of(&phases, &events[place]);
        let phase = attribution.as_ref().and_then(stormlog_analyze::phases::PhaseAttribution::label);
        let shown = events.iter().find(|event| event.timestamp_ns == gap.at_ns);
        let (class, severity) = (gap.class.as_str(), gap.severity.as_str());
        let about = record([
            ("classification", class.into()),
            ("severity", severity.into()),
            ("phase", phase.as_deref().into()),
            ("collector", shown.map_or("unknown", |event| &event.head.collector).into()),
            ("backend", shown.map_or_else(|| "unknown".to_owned(), event_backend).into()),
        ]);
        let link = IssueLink {
            session_id: Some(loaded.known.summary.session_id.clone()),
            timestamp_ns: Some(gap.at_ns.into()),
            rank: shown.map(|event| event.head.identity.rank),
            source_path: Some(loaded.known.place()),
            source_kind: Some(source_kind.to_owned()),
            event_type: Some(shown.map_or("sample", |event| &event.head.event_type).to_owned()),
            bundle_path: None,
            metadata: record([
                ("classification", class.into()),
                ("confidence", gap.confidence.into()),
                (
                    "phase_attribution",
                    attribution.map_or(Value::Null, |found| Value::Object(found.to_record())),
                ),
            ]),
        };
        let details = record([
            ("classification", class.into()),
            ("description", gap.description.into()),
            ("confidence", gap.confidence.into()),
            ("evidence", Value::Object(gap.evidence)),
            ("phase", phase.as_deref().into()),
        ]);
        let title = format!("Hidden-memory anomaly: {class}");
        Sign { kind: "hidden_memory_anomaly", about, title, severity: severity.to_owned(), link, details }
    };
    gaps.into_iter().map(sign).collect()
}
