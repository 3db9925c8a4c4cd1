//! Which phase of the program a moment belongs to, replayed from `phase_enter` and `phase_exit` events.
//!
//! Names, rules and the object form are 0.4.3's. Looking a moment up is logarithmic, so that every sample may ask. Must never
//! make one phase out of two that ran at the same time: that is `ambiguous`.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use serde_json::Value;
use stormlog_model::{Event, Record};

/// More boundaries than this are a loop that marks its every turn; the rest is counted, not kept.
const MAX_SPANS: usize = 500_000;

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
    /// It was never left: it ends with the last event.
    pub is_open: bool,
}

impl Span {
    fn stretch(&self) -> (&str, u64, u64) {
        (&self.path, self.from_ns, self.to_ns)
    }
}

#[derive(Debug, Clone)]
struct Boundary {
    at_ns: u64,
    enters: bool,
    span: Span,
}

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
        match (&self.likely, &self.unique) {
            (Some(likely), _) => Some(format!("(likely) {likely}")),
            (None, Some(_)) => self.paths.first().cloned(),
            (None, None) if self.paths.is_empty() => None,
            (None, None) => Some(format!("(ambiguous) {}", self.paths.join(" | "))),
        }
    }

    /// Two attributions of one stretch, without inventing a unique one.
    pub fn merged(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        let (Some(first), Some(second)) = (&first, &second) else { return first.or(second) };
        if first == second && first.unique.is_some() {
            return Some(first.clone());
        }
        let paths: BTreeSet<&String> = first.paths.iter().chain(&second.paths).collect();
        Some(PhaseAttribution { unique: None, paths: paths.into_iter().cloned().collect(), likely: None })
    }
}

/// Takes boundaries as they come and gives the index at the end.
#[derive(Debug, Clone, Default)]
pub struct PhaseRecord {
    boundaries: Vec<Boundary>,
    last_ns: u64,
    unkept: u64,
}

impl PhaseRecord {
    /// Takes any event; only boundaries are kept.
    pub fn observe(&mut self, event: &Event) {
        self.last_ns = self.last_ns.max(event.timestamp_ns);
        let enters = match event.head.event_type.as_str() {
            "phase_enter" => true,
            "phase_exit" => false,
            _ => return,
        };
        if self.boundaries.len() >= 2 * MAX_SPANS {
            self.unkept += 1;
            return;
        }
        self.boundaries.extend(boundary(event, enters));
    }

    /// Boundaries beyond what is kept.
    pub fn unkept(&self) -> u64 {
        self.unkept
    }

    /// The spans, open ones until the last event.
    pub fn index(mut self) -> PhaseIndex {
        self.boundaries.sort_by(|a, b| {
            (a.at_ns, a.span.sequence, &a.span.scope_id).cmp(&(b.at_ns, b.span.sequence, &b.span.scope_id))
        });
        let mut open: FxHashMap<i64, Vec<Span>> = FxHashMap::default();
        let mut spans = Vec::new();
        for boundary in self.boundaries {
            let stack = open.entry(boundary.span.thread_id).or_default();
            if boundary.enters {
                stack.push(boundary.span);
            } else if let Some(opened) = stack.pop_if(|opened| opened.scope_id == boundary.span.scope_id) {
                let thread_name = boundary.span.thread_name;
                spans.push(Span { to_ns: boundary.at_ns, thread_name, ..opened });
            }
        }
        let last_ns = self.last_ns;
        spans.extend(open.into_values().flatten().map(|span| Span { to_ns: last_ns, is_open: true, ..span }));
        PhaseIndex::of(spans)
    }
}

fn boundary(event: &Event, enters: bool) -> Option<Boundary> {
    let scope = event.metadata.map.get("phase_scope")?.as_object()?;
    let text = |key: &str| scope.get(key).and_then(Value::as_str);
    if text("action") != Some(if enters { "enter" } else { "exit" }) || text("name")?.trim().is_empty() {
        return None;
    }
    let parts: Vec<&str> = scope.get("path")?.as_array()?.iter().filter_map(Value::as_str).collect();
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return None;
    }
    let span = Span {
        from_ns: event.timestamp_ns,
        to_ns: event.timestamp_ns,
        depth: parts.len(),
        sequence: scope.get("sequence")?.as_i64()?,
        thread_id: scope.get("thread_id")?.as_i64()?,
        thread_name: text("thread_name")?.to_owned(),
        scope_id: text("scope_id")?.to_owned(),
        path: parts.join(" / "),
        parts: parts.into_iter().map(str::to_owned).collect(),
        is_open: false,
    };
    Some(Boundary { at_ns: event.timestamp_ns, enters, span })
}

/// Spans that can be asked for a moment.
#[derive(Debug, Clone, Default)]
pub struct PhaseIndex {
    /// By start; read as a balanced tree whose root is the middle.
    spans: Vec<Span>,
    /// The latest end in each subtree.
    latest: Vec<u64>,
}

impl PhaseIndex {
    fn of(mut spans: Vec<Span>) -> Self {
        spans.sort_by_key(|span| (span.from_ns, span.to_ns));
        let mut index = PhaseIndex { latest: vec![0; spans.len()], spans };
        index.measure(0, index.spans.len());
        index
    }

    fn measure(&mut self, low: usize, high: usize) -> u64 {
        if low >= high {
            return 0;
        }
        let middle = low + (high - low) / 2;
        let below = self.measure(low, middle).max(self.measure(middle + 1, high));
        self.latest[middle] = below.max(self.spans[middle].to_ns);
        self.latest[middle]
    }

    fn active<'a>(&'a self, at_ns: u64, low: usize, high: usize, found: &mut Vec<&'a Span>) {
        if low >= high {
            return;
        }
        let middle = low + (high - low) / 2;
        if self.latest[middle] < at_ns {
            return;
        }
        self.active(at_ns, low, middle, found);
        let span = &self.spans[middle];
        if span.from_ns <= at_ns {
            if at_ns <= span.to_ns {
                found.push(span);
            }
            self.active(at_ns, middle + 1, high, found);
        }
    }

    /// Whether there are no phases at all.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Path, start and end of the phases that are in no other, in time order.
    pub fn outermost(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.spans.iter().filter(|span| span.depth == 1).map(Span::stretch)
    }

    /// Path, start and end of every phase, in time order.
    pub fn all(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.spans.iter().map(Span::stretch)
    }

    /// The outermost phase that comes again and again (steps, epochs): its path and each time it ran, in time order.
    pub fn repeated(&self, least: usize) -> Option<(&str, Vec<(u64, u64)>)> {
        let mut runs: FxHashMap<(usize, &str), Vec<(u64, u64)>> = FxHashMap::default();
        for span in &self.spans {
            runs.entry((span.depth, &span.path)).or_default().push((span.from_ns, span.to_ns));
        }
        let often = runs.into_iter().filter(|(_, spans)| spans.len() >= least);
        let ((_, path), spans) =
            often.min_by_key(|((depth, path), spans)| (*depth, usize::MAX - spans.len(), *path))?;
        Some((path, spans))
    }

    /// Every phase, in time order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The phase at a moment: the deepest of each thread, one or several.
    pub fn resolve(&self, at_ns: u64) -> Option<PhaseAttribution> {
        self.resolve_from(at_ns, None, None)
    }

    /// The phase of an event that may name the thread and the scope it came from: the scope wins, then the newest of the thread.
    pub fn resolve_from(
        &self,
        at_ns: u64,
        thread_id: Option<i64>,
        scope_id: Option<&str>,
    ) -> Option<PhaseAttribution> {
        let mut spans = Vec::new();
        self.active(at_ns, 0, self.spans.len(), &mut spans);
        let newest = |spans: &[&'_ Span]| -> Option<Span> {
            spans.iter().max_by_key(|span| (span.sequence, &span.scope_id)).map(|span| (*span).clone())
        };
        let named: Vec<&Span> =
            spans.iter().filter(|span| scope_id == Some(span.scope_id.as_str())).copied().collect();
        if let [only] = named.as_slice() {
            return Some(unique(only, "exact"));
        }
        let own: Vec<&Span> =
            spans.iter().filter(|span| thread_id == Some(span.thread_id)).copied().collect();
        if let Some(latest) = newest(&own) {
            return Some(unique(&latest, "thread_local"));
        }
        let mut threads: FxHashMap<i64, Vec<&Span>> = FxHashMap::default();
        for span in &spans {
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
                let likely = (paths.len() > 1).then(|| newest(&spans).map(|span| span.path)).flatten();
                Some(PhaseAttribution { unique: None, paths: paths.into_iter().collect(), likely })
            }
        }
    }
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
mod tests {
    use super::*;

    fn span(from_ns: u64, to_ns: u64, thread_id: i64, path: &str, sequence: i64) -> Span {
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
            is_open: false,
        }
    }

    #[test]
    fn the_deepest_of_one_thread_is_unique() {
        let index = PhaseIndex::of(vec![span(0, 100, 1, "train", 1), span(10, 20, 1, "train / forward", 2)]);
        assert_eq!(index.resolve(15).unwrap().label().as_deref(), Some("train / forward"));
        assert_eq!(index.resolve(50).unwrap().label().as_deref(), Some("train"));
        assert_eq!(index.resolve(101), None);
        assert_eq!(PhaseIndex::default().resolve(1), None);
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
    fn many_spans_under_a_long_one_are_found_quickly_and_right() {
        let mut spans = vec![span(0, 1_000_000, 1, "run", 1)];
        spans.extend((0..10_000).map(|i| span(i * 100, i * 100 + 50, 1, "run / step", i as i64 + 2)));
        let index = PhaseIndex::of(spans);
        for i in 0..10_000 {
            assert_eq!(index.resolve(i * 100 + 25).unwrap().paths, ["run / step"]);
            assert_eq!(index.resolve(i * 100 + 75).unwrap().paths, ["run"]);
        }
    }

    #[test]
    fn merging_never_invents_a_unique_phase() {
        let unique = |path: &str, id: &str| PhaseAttribution {
            unique: Some(PhaseScope {
                source: "heuristic",
                scope_id: id.into(),
                thread_id: 1,
                thread_name: "t".into(),
            }),
            paths: vec![path.into()],
            likely: None,
        };
        let merged = |a, b| PhaseAttribution::merged(Some(a), Some(b)).unwrap();
        assert!(merged(unique("a", "1"), unique("a", "1")).unique.is_some());
        assert!(merged(unique("a", "1"), unique("a", "2")).unique.is_none());
        assert_eq!(merged(unique("b", "1"), unique("a", "1")).paths, ["a", "b"]);
    }
}
