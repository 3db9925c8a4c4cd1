//! The findings of streams, each once: the memory of one process may be sampled from outside, from inside and by several collectors.
//!
//! What only one of them saw stays; of what several saw, the surest is kept, with the others as further evidence.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stormlog_model::Finding;

use crate::recording::Stream;

/// Collects the findings of all streams of a recording.
#[derive(Debug, Default)]
pub(crate) struct StreamFindings<'a> {
    /// In the order of the streams.
    pub(crate) findings: Vec<Finding>,
    /// The streams of each joined process, with where their findings are.
    joined: FxHashMap<usize, Vec<(&'a Stream, Range<usize>)>>,
}

impl<'a> StreamFindings<'a> {
    /// Takes what was found in a stream; `process` is the joined process it is of.
    pub(crate) fn add(&mut self, process: Option<usize>, stream: &'a Stream, found: Vec<Finding>) {
        let Some(process) = process else {
            self.findings.extend(found);
            return;
        };
        let before = self.findings.len();
        for finding in found {
            match self.position_of(process, stream, &finding.id) {
                Some(at) => merge(&mut self.findings[at], finding),
                None => self.findings.push(finding),
            }
        }
        let findings = before..self.findings.len();
        self.joined.entry(process).or_default().push((stream, findings));
    }

    /// Where another stream of the same memory has the same finding.
    fn position_of(&self, process: usize, stream: &Stream, id: &str) -> Option<usize> {
        let streams = self.joined.get(&process)?.iter();
        let same = streams.filter(|(other, _)| stream.is_same_memory(other));
        same.flat_map(|(_, range)| range.clone()).find(|at| self.findings[*at].id == id)
    }
}

/// Keeps the surer of two findings of one condition, with the evidence of both.
fn merge(known: &mut Finding, mut other: Finding) {
    let rank = |finding: &Finding| (finding.severity, finding.confidence);
    if rank(&other) > rank(known) {
        std::mem::swap(known, &mut other);
    }
    known.evidence.append(&mut other.evidence);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stormlog_model::{Event, Head};

    use crate::recording::Recording;
    use crate::testing::sample;
    use crate::{AnalysisOptions, analyze};

    const SECOND: u64 = 1_000_000_000;
    const MI: u64 = 1 << 20;

    fn in_session(event: Event, id: &str) -> Event {
        Event { head: Arc::new(Head { session_id: id.into(), ..(*event.head).clone() }), ..event }
    }

    /// One process that leaks, sampled from outside and from inside.
    fn twice(joins: bool) -> Vec<stormlog_model::Finding> {
        let mut recording = Recording::default();
        for id in ["outside", "inside"] {
            recording.next_source();
            for at in 0..300 {
                recording.observe(&in_session(sample(at * SECOND, (1000 + 50 * at) * MI), id));
            }
        }
        if joins {
            recording.join(["outside", "inside", "elsewhere"].into_iter());
        }
        analyze(recording, Vec::new(), &AnalysisOptions::default()).findings
    }

    /// One device under two numbers: the driver's outside, the one that the process has for it inside.
    fn renumbered(uuids: [&str; 2]) -> usize {
        let mut recording = Recording::default();
        for (device, (id, uuid)) in ["outside", "inside"].into_iter().zip(uuids).enumerate() {
            recording.next_source();
            for at in 0..300 {
                let mut event = in_session(sample(at * SECOND, (1000 + 50 * at) * MI), id);
                let head = Head { device_id: i64::try_from(device).unwrap_or(0), ..(*event.head).clone() };
                event.head = Arc::new(head);
                let metadata = Arc::make_mut(&mut event.metadata);
                metadata.map.insert("device_uuid".to_owned(), uuid.into());
                recording.observe(&event);
            }
        }
        recording.join(["outside", "inside"].into_iter());
        let findings = analyze(recording, Vec::new(), &AnalysisOptions::default()).findings;
        findings.iter().filter(|finding| finding.kind == "leak").count()
    }

    #[test]
    fn a_device_is_joined_by_the_drivers_id_and_not_by_its_number() {
        assert_eq!(renumbered(["GPU-7", "GPU-7"]), 1, "one device");
        assert_eq!(renumbered(["GPU-7", "GPU-8"]), 2, "two devices");
    }

    #[test]
    fn a_process_seen_from_outside_and_inside_has_each_finding_once() {
        let leaks = |findings: Vec<stormlog_model::Finding>| {
            findings.into_iter().filter(|finding| finding.kind == "leak").collect::<Vec<_>>()
        };
        let (apart, joined) = (leaks(twice(false)), leaks(twice(true)));
        assert_eq!((apart.len(), joined.len()), (2, 1));
        let evidence: usize = apart.iter().map(|finding| finding.evidence.len()).sum();
        assert_eq!(joined[0].evidence.len(), evidence, "the pointers of both are kept");
    }
}
