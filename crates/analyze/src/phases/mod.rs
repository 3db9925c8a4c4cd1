//! Which phase of the program a moment belongs to, replayed from `phase_enter` and `phase_exit` events.
//!
//! Names, rules and the object form are 0.4.3's; `stormlog.phases` is a front-end of this. Looking a moment up is logarithmic, so
//! that every sample may ask. Must never make one phase out of two that ran at the same time: that is `ambiguous`.

mod attribution;
mod index;

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_model::{Event, Record, strip};

pub use attribution::{PhaseAttribution, PhaseScope, attribute, label};
pub use index::{Intervals, PhaseIndex};

/// The key of an event's metadata that holds the scope of a boundary.
pub const SCOPE_KEY: &str = "phase_scope";
/// More boundaries than this are a loop that marks its every turn; the rest is counted, not kept.
const MAX_SPANS: usize = 500_000;
/// Characters of a phase's label.
const MAX_LABEL: usize = 120;

/// A phase from its beginning to its end.
#[derive(Debug, Clone)]
pub struct Span {
    /// When it was entered.
    pub from_ns: u64,
    /// When it was left.
    pub to_ns: u64,
    /// How many phases it is inside of, itself included.
    pub depth: usize,
    /// Its number among the phases of its session.
    pub sequence: i64,
    /// The thread that entered it.
    pub thread_id: i64,
    /// The name of that thread.
    pub thread_name: String,
    /// `<session>:<sequence>`.
    pub scope_id: String,
    /// The names of the phases it is inside of and its own, `train / forward`.
    pub path: String,
    /// The same, name by name.
    pub parts: Vec<String>,
    /// Its own name with its attributes, `step 3`.
    pub label: String,
    /// It was never left: it ends with the last event.
    pub is_open: bool,
}

/// The beginning or the end of a phase, as an event states it.
#[derive(Debug, Clone)]
pub struct Boundary {
    /// Whether it is the beginning.
    pub enters: bool,
    /// The phase's own name.
    pub name: String,
    /// The names of the phases it is inside of and its own.
    pub parts: Vec<String>,
    /// `<session>:<sequence>`.
    pub scope_id: String,
    /// The scope it is inside of.
    pub parent_scope_id: Option<String>,
    /// The thread.
    pub thread_id: i64,
    /// Its name.
    pub thread_name: String,
    /// Its number among the phases of its session.
    pub sequence: i64,
    /// Its own name with its attributes, `step 3`.
    pub label: String,
}

impl Boundary {
    /// The boundary of an event of that type with that scope; `None` when it is none, or not whole.
    pub fn of(event_type: &str, scope: &Record) -> Option<Self> {
        let enters = enters(event_type)?;
        let text = |key: &str| scope.get(key).and_then(Value::as_str);
        let name = strip(text("name")?);
        if text("action") != Some(if enters { "enter" } else { "exit" }) || name.is_empty() {
            return None;
        }
        let parent_scope_id = match scope.get("parent_scope_id") {
            None | Some(Value::Null) => None,
            Some(parent) => Some(parent.as_str()?.to_owned()),
        };
        let parts = scope.get("path")?.as_array()?.iter().filter_map(Value::as_str);
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).map(str::to_owned).collect();
        (!parts.is_empty()).then_some(())?;
        let label = labelled(name, &parts, scope.get("attributes").and_then(Value::as_object));
        Some(Boundary {
            enters,
            label,
            name: name.to_owned(),
            parts,
            scope_id: text("scope_id")?.to_owned(),
            parent_scope_id,
            thread_id: integer(scope.get("thread_id")?)?,
            thread_name: text("thread_name")?.to_owned(),
            sequence: integer(scope.get("sequence")?)?,
        })
    }

    fn span(self, at_ns: u64) -> Span {
        Span {
            from_ns: at_ns,
            to_ns: at_ns,
            depth: self.parts.len(),
            sequence: self.sequence,
            thread_id: self.thread_id,
            thread_name: self.thread_name,
            scope_id: self.scope_id,
            path: self.parts.join(" / "),
            parts: self.parts,
            label: self.label,
            is_open: false,
        }
    }
}

/// A phase's own name and what the program said of it: `step 3`, `forward (layer 2)`. An attribute that has the name of an outer phase is that
/// phase's. Bounded, because a recording may have hundreds of thousands of phases.
fn labelled(name: &str, parts: &[String], attributes: Option<&Record>) -> String {
    let mut label = name.to_owned();
    let mut details = Vec::new();
    for (key, value) in attributes.into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => continue,
        };
        if key == name {
            label = format!("{name} {value}");
        } else if !parts.contains(key) {
            details.push(format!("{key} {value}"));
        }
    }
    if !details.is_empty() {
        label = format!("{label} ({})", details.join(", "));
    }
    match label.char_indices().nth(MAX_LABEL) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label,
    }
}

/// Whether an event of that type begins (true) or ends a phase.
fn enters(event_type: &str) -> Option<bool> {
    match event_type {
        "phase_enter" => Some(true),
        "phase_exit" => Some(false),
        _ => None,
    }
}

/// A number as Python has it: a truth value is one.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_bool().map(i64::from))
}

/// Takes the boundaries of one session and rank as they come, and gives the phases at the end.
#[derive(Debug, Clone, Default)]
pub struct PhaseRecord {
    boundaries: Vec<(u64, Boundary)>,
    last_ns: u64,
    unkept: u64,
}

impl PhaseRecord {
    /// Takes any event; only boundaries are kept.
    pub fn observe(&mut self, event: &Event) {
        let found = enters(&event.head.event_type)
            .and_then(|_| event.metadata.map.get(SCOPE_KEY)?.as_object())
            .and_then(|scope| Boundary::of(&event.head.event_type, scope));
        if found.is_some() && self.boundaries.len() >= 2 * MAX_SPANS {
            self.last_ns = self.last_ns.max(event.timestamp_ns);
            self.unkept += 1;
            return;
        }
        self.add(event.timestamp_ns, found);
    }

    /// Takes the boundary at a moment, or only the moment.
    pub fn add(&mut self, at_ns: u64, boundary: Option<Boundary>) {
        self.last_ns = self.last_ns.max(at_ns);
        self.boundaries.extend(boundary.map(|boundary| (at_ns, boundary)));
    }

    /// Boundaries beyond what is kept.
    pub fn unkept(&self) -> u64 {
        self.unkept
    }

    /// The phases in the order in which they were left, then those that were not, which end with the last event.
    pub fn spans(mut self) -> Vec<Span> {
        self.boundaries.sort_by(|(a_ns, a), (b_ns, b)| {
            (a_ns, a.sequence, &a.scope_id).cmp(&(b_ns, b.sequence, &b.scope_id))
        });
        // The phases open in each thread, with the number of the first boundary of the thread since none was open.
        let mut open: FxHashMap<i64, (usize, Vec<Span>)> = FxHashMap::default();
        let mut spans = Vec::new();
        for (number, (at_ns, boundary)) in self.boundaries.into_iter().enumerate() {
            let thread_id = boundary.thread_id;
            // An end without its beginning counts as a boundary of its thread, as in 0.4.3.
            let (_, stack) = open.entry(thread_id).or_insert((number, Vec::new()));
            if boundary.enters {
                stack.push(boundary.span(at_ns));
            } else if let Some(opened) = stack.pop_if(|opened| opened.scope_id == boundary.scope_id) {
                let is_last = stack.is_empty();
                spans.push(Span { to_ns: at_ns, thread_name: boundary.thread_name, ..opened });
                if is_last {
                    open.remove(&thread_id);
                }
            }
        }
        let mut left: Vec<(usize, Vec<Span>)> = open.into_values().collect();
        left.sort_by_key(|(number, _)| *number);
        let last_ns = self.last_ns;
        let left = left.into_iter().flat_map(|(_, stack)| stack);
        spans.extend(left.map(|span| Span { to_ns: last_ns, is_open: true, ..span }));
        spans
    }

    /// The phases, to be asked by time.
    pub fn index(self) -> PhaseIndex {
        PhaseIndex::of(self.spans())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn boundary(event_type: &str, changes: Value) -> Option<Boundary> {
        let mut scope = json!({
            "action": event_type.trim_start_matches("phase_"), "name": " load ", "path": ["load"], "scope_id": "s:1",
            "thread_id": 7, "thread_name": "main", "sequence": 1,
        });
        let scope = scope.as_object_mut()?;
        scope.extend(changes.as_object()?.clone());
        Boundary::of(event_type, scope)
    }

    #[test]
    fn a_boundary_is_whole_or_none() {
        assert_eq!(boundary("phase_enter", json!({})).unwrap().name, "load");
        assert_eq!(boundary("phase_enter", json!({"thread_id": true})).unwrap().thread_id, 1);
        for broken in [
            json!({"parent_scope_id": 3}),
            json!({"action": "exit"}),
            json!({"path": ["", 3]}),
            json!({"sequence": 1.5}),
            json!({"name": "\u{1f} "}),
        ] {
            assert!(boundary("phase_enter", broken.clone()).is_none(), "{broken}");
        }
        assert!(boundary("sample", json!({})).is_none());
    }

    #[test]
    fn label_has_the_attributes_that_no_outer_phase_has() {
        let label = |name: &str, attributes: Value| {
            let changes = json!({"name": name, "path": ["train", "epoch", name], "attributes": attributes});
            boundary("phase_enter", changes).unwrap().label
        };
        assert_eq!(label("step", json!({"epoch": 0, "step": 3})), "step 3");
        assert_eq!(label("forward", json!({"layer": "conv", "shape": [1, 2]})), "forward (layer conv)");
        assert_eq!(label("load", json!(null)), "load");
        assert_eq!(label("load", json!({"load": "x".repeat(500)})).chars().count(), MAX_LABEL + 1);
    }

    #[test]
    fn phases_that_were_not_left_come_last_in_the_order_of_their_threads() {
        let mut record = PhaseRecord::default();
        for (at_ns, thread_id) in [(1, 9), (2, 3), (3, 5)] {
            let changes =
                json!({"thread_id": thread_id, "scope_id": format!("s:{at_ns}"), "sequence": at_ns});
            record.add(at_ns, boundary("phase_enter", changes));
        }
        let changes = json!({"thread_id": 9, "scope_id": "s:1", "sequence": 1});
        record.add(4, boundary("phase_exit", changes));
        record.add(9, None);
        let spans: Vec<(i64, u64, bool)> =
            record.spans().iter().map(|span| (span.thread_id, span.to_ns, span.is_open)).collect();
        assert_eq!(spans, [(9, 4, false), (3, 9, true), (5, 9, true)]);
    }
}
