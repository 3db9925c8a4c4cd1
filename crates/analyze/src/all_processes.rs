//! The memory of all processes of a recording together, at one moment: what a budget is about. The highest values of single processes do not add
//! up, because they are reached at different times. Must count memory of several processes once: each of them has it among its resident pages. Where their
//! shares of it were read (PSS) these add up, else shared memory is counted once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::recording::Stream;

/// The highest host memory of all processes at one moment: the share of each in anonymous and shared memory, else all of the first and the second once; of recordings that do not tell these
/// apart, resident memory. `None` where no host memory was sampled.
pub(crate) fn host_peak<'a>(streams: impl Iterator<Item = &'a Stream>) -> Option<u64> {
    // A process that several recorders saw counts once: as the one saw it that tells the parts apart, or took the most samples.
    let mut processes: BTreeMap<(&str, i64, usize), &Stream> = BTreeMap::new();
    for (number, stream) in streams.filter(|stream| stream.is_host()).enumerate() {
        let head = &stream.head;
        let key = (head.host.as_str(), head.pid, if head.pid > 0 { 0 } else { number });
        let worth =
            |stream: &Stream| (stream.facts.resident.covers(stream.used.count()), stream.samples.len());
        let known = processes.entry(key).or_insert(stream);
        if worth(stream) > worth(known) {
            *known = stream;
        }
    }
    let series: Vec<&Stream> = processes.into_values().filter(|stream| !stream.samples.is_empty()).collect();
    let mut next: BinaryHeap<Reverse<(u64, usize, usize)>> = BinaryHeap::new();
    for (at, stream) in series.iter().enumerate() {
        next.extend(stream.samples.first().map(|sample| Reverse((sample.at_ns, at, 0))));
    }
    let mut now: Vec<(u64, u64)> = vec![(0, 0); series.len()];
    let (mut sum, mut shared, mut peak) = (0_u64, 0_u64, None);
    while let Some(Reverse((_, at, place))) = next.pop() {
        let samples = &series[at].samples;
        let parts = samples.get(place).map_or((0, 0), |sample| parts(series[at], sample));
        sum = sum.saturating_sub(now[at].0).saturating_add(parts.0);
        let was_shared = std::mem::replace(&mut now[at], parts).1;
        if was_shared != parts.1 {
            shared = now.iter().map(|(_, shared)| *shared).max().unwrap_or(0);
        }
        if place < samples.len() {
            peak = peak.max(Some(sum.saturating_add(shared)));
            // After its last sample a process is gone.
            let until =
                samples.get(place + 1).map_or(samples[place].at_ns.saturating_add(1), |next| next.at_ns);
            next.push(Reverse((until.max(samples[place].at_ns), at, place + 1)));
        }
    }
    peak
}

/// What a process holds by itself at a sample, and what it shares.
fn parts(stream: &Stream, sample: &crate::Sample) -> (u64, u64) {
    let used = sample.used().or(sample.allocated()).unwrap_or(0);
    let resident = &stream.facts.resident;
    match (resident.at(sample.at_ns), resident.counted_elsewhere(sample.at_ns)) {
        // Between two readings of its share the process is taken to grow by memory of its own.
        (Some((file_backed, shared)), Some(elsewhere)) => {
            (used.saturating_sub(file_backed).saturating_add(shared).saturating_sub(elsewhere), 0)
        }
        (Some((file_backed, shared)), None) => (used.saturating_sub(file_backed), shared.min(used)),
        (None, _) => (used, 0),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stormlog_model::{Event, Head};

    use super::*;
    use crate::testing::{finish, metadata, sample};

    const MI: u64 = 1 << 20;

    fn of(pid: i64, event: Event) -> Event {
        let head = Head { pid, session_id: format!("s{pid}"), ..(*event.head).clone() };
        Event { head: Arc::new(head), ..event }
    }

    fn peak(events: Vec<Event>) -> Option<u64> {
        let recording = finish(events);
        host_peak(recording.sessions.iter().flat_map(|session| &session.ranks).flat_map(|rank| &rank.streams))
    }

    #[test]
    fn peaks_at_different_moments_do_not_add_up() {
        let first = (0..10).map(|at| of(1, sample(at * 10, if at < 5 { 100 } else { 10 } * MI)));
        let second = (0..10).map(|at| of(2, sample(at * 10 + 1, if at < 5 { 20 } else { 90 } * MI)));
        assert_eq!(peak(first.chain(second).collect()), Some(120 * MI));
    }

    #[test]
    fn a_process_that_ended_holds_nothing() {
        let first = (0..5).map(|at| of(1, sample(at * 10, 100 * MI)));
        let second = (10..15).map(|at| of(2, sample(at * 10, 70 * MI)));
        assert_eq!(peak(first.chain(second).collect()), Some(100 * MI));
        assert_eq!(peak(Vec::new()), None);
    }

    #[test]
    fn last_samples_of_one_time_add_up() {
        let grown = |at| if at == 4 { 100 } else { 10 } * MI;
        let both = (0..5).flat_map(|at| [1, 2].map(|pid| of(pid, sample(at * 10, grown(at)))));
        assert_eq!(peak(both.collect()), Some(200 * MI));
    }

    #[test]
    fn pages_that_forked_processes_share_count_once_where_their_shares_were_read() {
        // 100 MiB of the parent that three children still share: each has a quarter of it, and 10 MiB of its own.
        let share = |own: u64| {
            [
                ("file_backed_bytes", (20 * MI).into()),
                ("pss_bytes", ((25 + own + 5) * MI).into()),
                ("pss_file_bytes", (5 * MI).into()),
            ]
        };
        let all = (0..8).flat_map(|at| [1, 2, 3, 4].map(|pid| (pid, at * 10)));
        let event = |(pid, at): (i64, u64)| {
            let own = if pid == 1 { 0 } else { 10 };
            of(pid, metadata(sample(at, (120 + own) * MI), &share(own)))
        };
        assert_eq!(peak(all.map(event).collect()), Some(130 * MI));
    }

    #[test]
    fn shared_memory_counts_once_and_files_do_not() {
        let pairs = [("file_backed_bytes", (60 * MI).into()), ("shared_memory_bytes", (50 * MI).into())];
        let both = (0..8).flat_map(|at| [1, 2].map(|pid| (pid, at * 10)));
        let events = both.map(|(pid, at)| of(pid, metadata(sample(at, 100 * MI), &pairs))).collect();
        assert_eq!(peak(events), Some((40 + 40 + 50) * MI));
    }
}
