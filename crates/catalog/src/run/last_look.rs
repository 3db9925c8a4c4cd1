//! The last look at a process that ended together with its supervisor: how near its limit it was, and how fast it grew, by the events that were written
//! before. The counters of a container are gone with it, so nothing here proves a kill. Pure.

use std::time::Duration;

use stormlog_collect::PROCESS_COLLECTOR;
use stormlog_model::{Counter, Event};
use stormlog_postmortem::verdict::{CgroupFacts, Growth};

/// In an event's metadata: what the limit in its numbers is of, `cgroup /train` or the machine.
pub const LIMIT_SOURCE: &str = "memory_limit_source";
/// Before the path of a cgroup there.
const CGROUP: &str = "cgroup ";
/// Growth is that of the last seconds.
const RECENT_NS: u64 = 2_000_000_000;
/// A shorter span says nothing of a pace.
const LEAST_NS: u64 = 150_000_000;
/// The kernel kills between two samples; a loaded machine may miss one.
const MISSED_SAMPLES: u32 = 2;
const LONGEST_GAP: Duration = Duration::from_secs(5);
/// A full cgroup is not short of memory while most of it is page cache: the processes must hold this part of it, in percent.
const HELD_PERCENT: u64 = 70;

/// What the events show.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LastLook {
    /// The cgroup that limited it, where it was filled by its processes.
    pub(crate) cgroup: Option<CgroupFacts>,
    pub(crate) growth: Option<Growth>,
}

/// Whether an event is about the process itself and not about a GPU.
pub(crate) fn is_of_process(event: &Event) -> bool {
    event.head.collector == PROCESS_COLLECTOR
}

/// Of one process; `held` is what all processes of the run had resident.
pub(crate) fn last_look(events: &[Event], held: u64) -> LastLook {
    let samples = events.iter().filter(|event| is_of_process(event)).filter_map(sample);
    let samples: Vec<(u64, u64, u64)> = samples.collect();
    let Some((last_ns, used, limit)) = samples.last().copied() else { return LastLook::default() };
    let is_recent = |(at, _, _): &&(u64, u64, u64)| last_ns.saturating_sub(*at) <= RECENT_NS;
    let growth = samples.iter().find(is_recent).and_then(|(since_ns, before, _)| {
        let span = last_ns.saturating_sub(*since_ns);
        let bytes_per_second = used.checked_sub(*before)? as f64 / (span.max(1) as f64 / 1e9);
        let is_pace = span >= LEAST_NS && bytes_per_second > 0.0;
        is_pace.then_some(Growth { bytes_per_second, confidence: 0.5, since_ns: *since_ns })
    });
    let interval = events.last().map_or(0, |event| event.head.sampling_interval_ms);
    let gap = (Duration::from_millis(interval) * (MISSED_SAMPLES + 1)).min(LONGEST_GAP);
    let more = growth.map_or(0.0, |growth| growth.bytes_per_second * gap.as_secs_f64());
    let source = events.iter().rev().find_map(|event| event.metadata.map.get(LIMIT_SOURCE)?.as_str());
    let path = source.and_then(|source| source.strip_prefix(CGROUP));
    let is_filled = held / 100 >= limit / 10_000 * HELD_PERCENT;
    let cgroup = path.filter(|_| is_filled).map(|path| CgroupFacts {
        path: path.to_owned(),
        limit_bytes: Some(limit),
        usage_bytes: Some(used),
        soon_bytes: Some(used.saturating_add(more as u64)),
        ..CgroupFacts::default()
    });
    LastLook { cgroup, growth }
}

/// When, bytes in use and the limit.
fn sample(event: &Event) -> Option<(u64, u64, u64)> {
    let (total, free) = (event.counter(Counter::Total)?, event.counter(Counter::Free)?);
    Some((event.timestamp_ns, total.checked_sub(free)?, total))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::sync::Arc;
    use stormlog_model::{Counters, Head, Identity, Metadata};

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 200 * MIB;

    /// A sample every 100 ms, that many MiB of the limit in use at each.
    fn events(used: &[u64], source: &str) -> Vec<Event> {
        let head = Head {
            session_id: "s".to_owned(),
            event_type: "sample".to_owned(),
            collector: PROCESS_COLLECTOR.to_owned(),
            sampling_interval_ms: 100,
            pid: 7,
            host: "h".to_owned(),
            identity: Identity::default(),
            device_id: -1,
        };
        let head = Arc::new(head);
        let map = [(LIMIT_SOURCE.to_owned(), source.into())].into_iter().collect();
        let metadata = Arc::new(Metadata::read(map, PROCESS_COLLECTOR, &Counters::UNKNOWN).unwrap());
        let event = |(at, used): (usize, &u64)| {
            let mut counters = Counters::UNKNOWN;
            counters.set(Counter::Total, Some(LIMIT));
            counters.set(Counter::Free, Some(LIMIT - used * MIB));
            let timestamp_ns = at as u64 * 100_000_000;
            let (head, metadata) = (Arc::clone(&head), Arc::clone(&metadata));
            Event { timestamp_ns, counters, context: None, head, metadata }
        };
        used.iter().enumerate().map(event).collect()
    }

    #[test]
    fn last_look_projects_the_growth_of_the_last_seconds() {
        let growing: Vec<u64> = (0..40).map(|at| 100 + at * 2).collect();
        let look = last_look(&events(&growing, "cgroup /train"), 170 * MIB);
        let growth = look.growth.unwrap().bytes_per_second / MIB as f64;
        assert!((growth - 20.0).abs() < 0.1, "{growth}");
        let cgroup = look.cgroup.unwrap();
        assert_eq!((cgroup.path.as_str(), cgroup.usage_bytes), ("/train", Some(178 * MIB)));
        assert_eq!(cgroup.soon_bytes.unwrap() / MIB, 184, "three samples further");
    }

    #[test]
    fn cgroup_full_of_page_cache_and_the_machine_give_no_evidence() {
        let full = [199; 10];
        assert_eq!(last_look(&events(&full, "cgroup /train"), 100 * MIB).cgroup, None);
        assert_eq!(last_look(&events(&full, "this machine's memory"), 199 * MIB).cgroup, None);
        assert_eq!(last_look(&[], 0), LastLook::default());
    }
}
