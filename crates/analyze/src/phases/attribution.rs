//! The phase something belongs to: one, or several that are `ambiguous`, and how that is written.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_model::Record;

use super::Span;

/// The phase of a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseAttribution {
    /// One phase, with how it was found, its scope and thread. `None` when ambiguous.
    pub unique: Option<PhaseScope>,
    /// The paths in question, sorted.
    pub paths: Vec<String>,
    /// The likeliest of several.
    pub likely: Option<String>,
}

/// The one phase a moment belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseScope {
    /// How it was found: `exact` by the scope that was named, `thread_local` by the thread, `heuristic` by the time.
    pub source: &'static str,
    /// `<session>:<sequence>`.
    pub scope_id: String,
    /// The thread that entered it.
    pub thread_id: i64,
    /// Its name.
    pub thread_name: String,
}

impl PhaseAttribution {
    /// The object form.
    pub fn to_record(&self) -> Record {
        let mut record = Record::new();
        let mut put = |key: &str, value: Value| record.insert(key.to_owned(), value);
        put("phase_resolution", if self.unique.is_some() { "unique" } else { "ambiguous" }.into());
        put("phase_paths", self.paths.clone().into());
        if let Some(scope) = &self.unique {
            put("phase_source", scope.source.into());
            put("phase_path", self.paths.first().cloned().into());
            put("scope_id", scope.scope_id.as_str().into());
            put("thread_id", scope.thread_id.into());
            put("thread_name", scope.thread_name.as_str().into());
        }
        if let Some(likely) = &self.likely {
            let summary = [("phase_path", likely.as_str()), ("source", "heuristic")];
            let summary = summary.map(|(key, text)| (key.to_owned(), Value::from(text)));
            put("phase_summary", Value::Object(summary.into_iter().collect()));
        }
        record
    }

    /// The sentence's word for it: `train / forward`, `(likely) …`, `(ambiguous) a | b`.
    pub fn label(&self) -> Option<String> {
        match &self.likely {
            Some(likely) => Some(format!("(likely) {likely}")),
            None => label(self.unique.is_some(), None, &self.paths),
        }
    }

    /// Two attributions of one stretch, without inventing a unique one.
    pub fn merged(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        let (Some(first), Some(second)) = (&first, &second) else { return first.or(second) };
        if first.is_same(second) {
            return Some(first.clone());
        }
        let paths: BTreeSet<&String> = first.paths.iter().chain(&second.paths).collect();
        Some(PhaseAttribution { unique: None, paths: paths.into_iter().cloned().collect(), likely: None })
    }

    /// Whether both are the one phase of the one thread, however it was found.
    fn is_same(&self, other: &Self) -> bool {
        match (&self.unique, &other.unique) {
            (Some(one), Some(another)) => {
                (&one.scope_id, one.thread_id) == (&another.scope_id, another.thread_id)
                    && self.paths == other.paths
            }
            _ => false,
        }
    }
}

/// A phase as people read it: its path, or all that are possible. `path` comes before the only one of `paths`.
pub fn label(is_unique: bool, path: Option<&str>, paths: &[String]) -> Option<String> {
    match (is_unique, path, paths) {
        (true, Some(path), _) => Some(path.to_owned()),
        (true, None, [only]) => Some(only.clone()),
        (true, ..) | (false, _, []) => None,
        (false, ..) => Some(format!("(ambiguous) {}", paths.join(" | "))),
    }
}

/// The phase among those that were open at one moment: the scope that is named wins, then the newest of the thread that is
/// named, then the deepest of each thread.
pub fn attribute(
    spans: &[&Span],
    thread_id: Option<i64>,
    scope_id: Option<&str>,
) -> Option<PhaseAttribution> {
    let scope_id = scope_id.filter(|scope| !scope.is_empty());
    let named: Vec<&Span> =
        spans.iter().filter(|span| scope_id == Some(span.scope_id.as_str())).copied().collect();
    if let [only] = named.as_slice() {
        return Some(unique(only, "exact"));
    }
    let own: Vec<&Span> = spans.iter().filter(|span| thread_id == Some(span.thread_id)).copied().collect();
    if let Some(latest) = newest(&own) {
        return Some(unique(latest, "thread_local"));
    }
    let mut threads: FxHashMap<i64, Vec<&Span>> = FxHashMap::default();
    for span in spans {
        threads.entry(span.thread_id).or_default().push(span);
    }
    let mut paths = BTreeSet::new();
    let mut winners = Vec::new();
    let mut is_torn = false;
    for mut deepest in threads.into_values() {
        let depth = deepest.iter().map(|span| span.depth).max().unwrap_or(0);
        deepest.retain(|span| span.depth == depth);
        let labels: BTreeSet<&String> = deepest.iter().map(|span| &span.path).collect();
        is_torn |= labels.len() > 1;
        paths.extend(labels.into_iter().cloned());
        winners.extend(newest(&deepest));
    }
    match (winners.as_slice(), is_torn) {
        ([], _) => None,
        ([only], false) => Some(unique(only, "heuristic")),
        _ => {
            let has_choice = paths.iter().filter(|path| !path.is_empty()).count() > 1;
            let likely = newest(spans).map(|span| span.path.clone());
            let likely = likely.filter(|path| has_choice && !path.is_empty());
            Some(PhaseAttribution { unique: None, paths: paths.into_iter().collect(), likely })
        }
    }
}

/// The one that was entered last; the first of equals.
fn newest<'a>(spans: &[&'a Span]) -> Option<&'a Span> {
    spans.iter().rev().max_by_key(|span| (span.sequence, &span.scope_id)).copied()
}

fn unique(span: &Span, source: &'static str) -> PhaseAttribution {
    PhaseAttribution {
        unique: Some(PhaseScope {
            source,
            scope_id: span.scope_id.clone(),
            thread_id: span.thread_id,
            thread_name: span.thread_name.clone(),
        }),
        paths: vec![span.path.clone()],
        likely: None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::PhaseIndex;
    use super::*;

    pub(in super::super) fn span(
        from_ns: u64,
        to_ns: u64,
        thread_id: i64,
        path: &str,
        sequence: i64,
    ) -> Span {
        Span {
            from_ns,
            to_ns,
            depth: path.split(" / ").count(),
            sequence,
            thread_id,
            thread_name: format!("t{thread_id}"),
            scope_id: format!("s:{sequence}"),
            path: path.to_owned(),
            parts: path.split(" / ").map(str::to_owned).collect(),
            label: path.rsplit(" / ").next().unwrap_or(path).to_owned(),
            is_open: false,
        }
    }

    #[test]
    fn two_threads_are_ambiguous_and_the_newest_is_likely() {
        let index = PhaseIndex::of(vec![span(0, 100, 1, "train", 1), span(10, 90, 2, "load", 5)]);
        let found = index.resolve(50).unwrap();
        assert_eq!(found.unique, None);
        assert_eq!(found.label().as_deref(), Some("(likely) load"));
        assert_eq!(found.to_record()["phase_resolution"], "ambiguous");
    }

    #[test]
    fn merging_never_invents_a_unique_phase() {
        let unique = |path: &str, id: &str, source| PhaseAttribution {
            unique: Some(PhaseScope { source, scope_id: id.into(), thread_id: 1, thread_name: "t".into() }),
            paths: vec![path.into()],
            likely: None,
        };
        let merged = |a, b| PhaseAttribution::merged(Some(a), Some(b)).unwrap();
        assert!(merged(unique("a", "1", "heuristic"), unique("a", "1", "heuristic")).unique.is_some());
        assert!(merged(unique("a", "1", "exact"), unique("a", "1", "heuristic")).unique.is_some());
        assert!(merged(unique("a", "1", "exact"), unique("a", "2", "exact")).unique.is_none());
        assert_eq!(merged(unique("b", "1", "exact"), unique("a", "1", "exact")).paths, ["a", "b"]);
    }
}
