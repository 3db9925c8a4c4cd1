//! Forked workers whose shared pages become private: each worker ends up with a copy of what its parent made before the fork. In CPython a page of
//! objects is written when an object on it is only read, because its reference count is stored beside it. Page: `docs/rules/copy_on_write.md`.
//!
//! Judged by the kernel's sums: a page that is copied leaves the shared pages, joins the private ones, and changes nothing in the anonymous memory as
//! a whole; memory that a worker allocates itself raises that. Must be silent about everything else: a process that executed a program, a rank, a
//! worker whose parent gave up its own pages, a program that is not Python.

use std::collections::BTreeMap;

use stormlog_model::memory::Memory;
use stormlog_model::{Evidence, Finding, Severity, format_bytes};

use super::heap::{Capture, Kept, add_evidence};
use super::shared_pages::PageReading;
use super::{about, advice, metrics};
use crate::recording::Stream;
use crate::text::{counted, duration};

/// The one id of this rule.
const ID: &str = "copy_on_write.workers";
/// What a worker copies of the interpreter and its libraries is less: 4 MiB measured of PyTorch, 40 to 50 MiB with a collection of all objects.
const LEAST_OF_WORKER: u64 = 64 << 20;
/// All workers together cost at least this.
const LEAST_OF_ALL: u64 = 128 << 20;
/// A worker copies at least this share of what it shared at its first reading.
const LEAST_SHARE: f64 = 0.1;
/// A parent whose anonymous memory fell by this share of what a worker seems to have copied gave up its own pages; the worker is left with them.
const PARENT_GAVE_UP: f64 = 0.5;
/// The smallest page. A page is copied in a fault of the process that writes to it.
const PAGE: u64 = 4096;
/// At least this share of the copied pages came in faults of the worker itself.
const BY_ITSELF: f64 = 0.5;
/// A collection of all objects writes to the pages of what imports made: the explanation where that held this share of what a worker copied, and no line
/// of the program made objects.
const BY_COLLECTOR: f64 = 0.8;
/// Blocks of at most this mean size are objects…
const OBJECT_BYTES: u64 = 1024;
/// …and so are those of the size of an arena, from which CPython hands out objects: a sampled heap has arenas (256 KiB before 3.10, then 1 MiB). Others
/// are buffers, which have one reference count for many pages.
const ARENA_BYTES: std::ops::RangeInclusive<u64> = 240 << 10..=1536 << 10;
/// A line is named when it held this share of what a worker copied.
const EXPLAINS: f64 = 0.25;
/// Sessions of workers that are pointed at.
const NAMED: usize = 16;

/// A worker that copied pages.
struct Copying<'a> {
    worker: &'a Stream,
    first: PageReading,
    last: PageReading,
    bytes: u64,
}

/// What the processes of a recording show, each as its streams.
pub(crate) fn findings(processes: &[Vec<&Stream>]) -> Vec<Finding> {
    let mut forks: BTreeMap<i64, Vec<&[&Stream]>> = BTreeMap::new();
    for streams in processes {
        if let Some(parent) = reported(streams).and_then(|own| own.facts.pages.forked_from) {
            forks.entry(parent).or_default().push(streams);
        }
    }
    let mut found = Vec::new();
    for parent in processes.iter().filter_map(|streams| reported(streams)) {
        let Some(forks) = forks.get(&parent.head.pid) else { continue };
        let workers = forks.iter().filter(|streams| is_worker(parent, streams));
        let mut copying: Vec<Copying<'_>> =
            workers.filter_map(|streams| copied(parent, reported(streams)?)).collect();
        copying.sort_by_key(|one| one.first.at_ns);
        found.extend(finding(parent, &copying));
    }
    found
}

/// The stream of a process that has the kernel's sums.
fn reported<'a>(streams: &[&'a Stream]) -> Option<&'a Stream> {
    streams.iter().copied().find(|stream| stream.is_host() && !stream.facts.pages.readings().is_empty())
}

/// Whether a process is a worker of `parent`: forked from it, of the same rank, and without a device of its own.
fn is_worker(parent: &Stream, streams: &[&Stream]) -> bool {
    let Some(own) = reported(streams) else { return false };
    let (head, above) = (&own.head, &parent.head);
    let uses_device = streams.iter().any(|stream| !stream.is_host());
    head.pid != above.pid
        && !uses_device
        && (head.host.as_str(), &head.identity) == (above.host.as_str(), &above.identity)
        && (own.facts.pages.is_python || parent.facts.pages.is_python)
}

/// The pages that a worker copied, where that is worth a finding.
fn copied<'a>(parent: &Stream, worker: &'a Stream) -> Option<Copying<'a>> {
    let end_of_parent = parent.samples.last()?.at_ns;
    let readings = worker.facts.pages.readings();
    let at_fork = worker.facts.pages.at_fork();
    let first = at_fork.or_else(|| readings.first().copied())?;
    let compared = usize::from(at_fork.is_none());
    let judged = readings.iter().skip(compared).take_while(|reading| reading.at_ns <= end_of_parent);
    let copies = judged.map(|reading| (copied_between(&first, reading), *reading));
    let (bytes, last) = copies.max_by_key(|(bytes, _)| *bytes)?;
    let least = LEAST_OF_WORKER.max((LEAST_SHARE * first.shared_dirty as f64) as u64);
    let faults = last.minor_faults.zip(first.minor_faults).map(|(last, first)| last.saturating_sub(first));
    let is_by_itself =
        faults.is_some_and(|faults| faults.saturating_mul(PAGE) as f64 >= BY_ITSELF * bytes as f64);
    let of_parent = |at_ns: u64| parent.facts.pages.at(at_ns).map(|reading| reading.anonymous);
    let given_up = of_parent(first.at_ns)?.saturating_sub(of_parent(last.at_ns)?);
    let keeps = (given_up as f64) < PARENT_GAVE_UP * bytes as f64;
    (bytes >= least && is_by_itself && keeps).then_some(Copying { worker, first, last, bytes })
}

/// Bytes that left the shared pages for the private ones. What the process allocated itself is private too, and raises what is anonymous.
fn copied_between(first: &PageReading, last: &PageReading) -> u64 {
    let became_private = last.private_dirty.saturating_sub(first.private_dirty);
    let allocated = last.anonymous.saturating_sub(first.anonymous);
    let no_longer_shared = first.shared_dirty.saturating_sub(last.shared_dirty);
    became_private.saturating_sub(allocated).min(no_longer_shared)
}

fn finding(parent: &Stream, copying: &[Copying<'_>]) -> Option<Finding> {
    let together = most_together(copying);
    let sum: u64 = together.iter().map(|one| one.bytes).sum();
    if sum < LEAST_OF_ALL {
        return None;
    }
    let mean = sum / together.len() as u64;
    let first_ns = together.iter().map(|one| one.first.at_ns).min()?;
    let last_ns = together.iter().map(|one| one.last.at_ns).max()?;
    let highest = |of: fn(&Copying<'_>) -> u64| together.iter().map(|one| of(one)).max().unwrap_or(0);
    let from = highest(|one| one.first.private_dirty);
    let to = highest(|one| one.last.private_dirty);
    let title = format!(
        "{} copied {} of the pages shared with their parent, {} each: copy-on-write",
        counted(together.len() as u64, "forked worker"),
        format_bytes(sum),
        format_bytes(mean)
    );
    let mut found = about(parent, ID, "copy_on_write", Severity::Warning, 0.7, title);
    found.message = Some(format!(
        "private memory of a worker rose from {} to {} within {} while its total anonymous memory did not grow; reading a Python object writes its \
        reference count, and the page it is on is copied",
        format_bytes(from),
        format_bytes(to),
        duration(last_ns.saturating_sub(first_ns) as f64 / 1e9)
    ));
    found.metrics.extend(metrics([
        ("copied_bytes", sum.into()),
        ("copied_bytes_per_worker", mean.into()),
        ("workers", together.len().into()),
        ("first_private_dirty_bytes", from.into()),
        ("private_dirty_bytes", to.into()),
        ("uss_bytes", together.iter().filter_map(|one| one.last.uss).max().into()),
    ]));
    let pointers = together.iter().take(NAMED).map(|one| Evidence {
        kind: "telemetry".to_owned(),
        session_id: Some(one.worker.head.session_id.clone()),
        start_ns: Some(one.first.at_ns),
        end_ns: Some(one.last.at_ns),
        description: Some(format!(
            "pid {}: {} copied, private {} → {}",
            one.worker.head.pid,
            format_bytes(one.bytes),
            format_bytes(one.first.private_dirty),
            format_bytes(one.last.private_dirty)
        )),
        ..Evidence::default()
    });
    found.evidence.extend(pointers);
    found.advice = cure();
    Some(found)
}

/// The workers that lived at one moment and copied most: those of earlier epochs have given theirs back.
fn most_together<'a, 'b>(copying: &'b [Copying<'a>]) -> Vec<&'b Copying<'a>> {
    let ended = |one: &Copying<'_>| one.worker.samples.last().map_or(one.last.at_ns, |sample| sample.at_ns);
    let alive = |at_ns: u64| {
        copying.iter().filter(move |one| one.last.at_ns <= at_ns && at_ns <= ended(one)).collect::<Vec<_>>()
    };
    let sets = copying.iter().map(|one| alive(one.last.at_ns));
    sets.max_by_key(|set| set.iter().map(|one| one.bytes).sum::<u64>()).unwrap_or_default()
}

fn cure() -> Vec<String> {
    advice([
        "Keep what the workers read in arrays made before they start (numpy, torch or Arrow), not in lists or dicts of objects: an array has one reference count for all its pages.",
        "`gc.freeze()` before the workers start keeps the garbage collector from writing to the pages; reading the objects still does.",
        "Fewer workers, or a dataset that each worker reads from a file, cost less memory.",
    ])
}

/// Names the line that made the copied objects, as the parent's heap shows it at the fork. Where the program made none, the collector wrote to those of
/// imports; where there are too few of these as well, the workers wrote to buffers on purpose, which reference counts do not explain.
pub(crate) fn explain(finding: &mut Finding, capture: &Capture) {
    let is_asked = finding.id == ID
        && finding.holder.is_none()
        && capture.memory == Memory::Host
        && finding.process == Some(capture.pid.into());
    if !is_asked {
        return;
    }
    let number = |key: &str| finding.metrics.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let at_ns = finding.evidence.iter().filter_map(|pointer| pointer.start_ns).min().unwrap_or(0);
    let copied = number("copied_bytes_per_worker") as f64;
    let least = (EXPLAINS * copied) as u64;
    let imports = capture.kept.iter().filter(|kept| is_of_imports(kept) && is_of_objects(kept));
    let imported: u64 = imports.map(|kept| held_at(capture, kept, at_ns)).sum();
    let made = capture.kept.iter().filter(|kept| !is_of_imports(kept));
    let lines = made.map(|kept| (held_at(capture, kept, at_ns), kept));
    let mut lines: Vec<(u64, &Kept)> = lines.filter(|(bytes, _)| *bytes >= least.max(1)).collect();
    lines.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    if let Some((bytes, kept)) = lines.iter().find(|(_, kept)| is_of_objects(kept)) {
        finding.confidence = 0.9;
        finding.holder = Some(kept.holder.clone());
        finding.title += &format!("; allocated at {}", kept.place);
        let line =
            format!("{} in objects were made before the fork by {}", format_bytes(*bytes), kept.words());
        add_evidence(finding, capture, line);
    } else if imported as f64 >= BY_COLLECTOR * copied {
        finding.severity = Severity::Info;
        finding.confidence = 0.6;
        finding.message = None;
        let line = format!(
            "imports made {} in objects before the fork and the program few: a collection of all objects in a worker writes to each of them",
            format_bytes(imported)
        );
        add_evidence(finding, capture, line);
        finding.advice = advice([
            "Call `gc.collect()` and `gc.freeze()` before the workers start: what exists then is left out of later collections.",
        ]);
    } else if let Some((bytes, kept)) = lines.first() {
        finding.severity = Severity::Info;
        finding.confidence = 0.5;
        finding.message = None;
        let line = format!(
            "the parent's heap held {} in large blocks by {} and little in small objects: the workers write into what they inherited",
            format_bytes(*bytes),
            kept.words()
        );
        add_evidence(finding, capture, line);
        finding.advice = advice([
            "Copy the part that a worker changes before it changes it, or put the array into shared memory where all workers may write to it.",
        ]);
    }
}

/// Whether a line holds objects, each with a reference count of its own.
fn is_of_objects(kept: &Kept) -> bool {
    kept.block_bytes <= OBJECT_BYTES || ARENA_BYTES.contains(&kept.block_bytes)
}

/// The most that a line held.
fn most_of(kept: &Kept) -> u64 {
    kept.live.iter().map(|(_, bytes)| *bytes).max().unwrap_or(kept.bytes)
}

/// Whether a line holds what imports made: that counts from the beginning of a capture.
fn is_of_imports(kept: &Kept) -> bool {
    kept.live.first().is_some_and(|(_, bytes)| *bytes > most_of(kept) / 2)
}

/// What a line held at a moment; of a capture that does not know when memory came, at its end.
fn held_at(capture: &Capture, kept: &Kept, at_ns: u64) -> u64 {
    let since_us = at_ns.checked_sub(capture.started_at_ns).filter(|_| capture.started_at_ns > 0);
    match (since_us, kept.live.is_empty()) {
        (Some(since_ns), false) => {
            let after = kept.live.partition_point(|(time_us, _)| *time_us <= since_ns / 1000);
            after.checked_sub(1).and_then(|at| kept.live.get(at)).map_or(0, |(_, bytes)| *bytes)
        }
        _ => kept.bytes,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stormlog_model::{Event, Head, Holder, Identity};

    use super::*;
    use crate::testing::{finish, gpu, metadata, sample};
    use crate::{AnalysisOptions, analyze};

    const SECOND: u64 = 1_000_000_000;
    const MI: u64 = 1 << 20;
    const PARENT: i64 = 100;

    /// MiB of private, shared and anonymous memory of a process at a second, and thousands of faults so far.
    type Pages = fn(u64) -> [u64; 4];

    fn of(pid: i64, event: Event) -> Event {
        let head = Head { pid, session_id: format!("s{pid}"), ..(*event.head).clone() };
        Event { head: Arc::new(head), ..event }
    }

    fn process(pid: i64, is_fork: bool, pages: Pages) -> Vec<Event> {
        let event = |second: u64| {
            let [private, shared, anonymous, faults] = pages(second);
            let pairs = [
                ("comm", "python3".into()),
                ("ppid", PARENT.into()),
                ("is_fork", is_fork.into()),
                ("uss_bytes", (private * MI).into()),
                ("private_dirty_bytes", (private * MI).into()),
                ("shared_dirty_bytes", (shared * MI).into()),
                ("anonymous_bytes", (anonymous * MI).into()),
                ("minor_faults", (faults * 1000).into()),
            ];
            of(pid, metadata(sample(second * SECOND, (anonymous + 20) * MI), &pairs))
        };
        (0..20).map(event).collect()
    }

    fn parent() -> Vec<Event> {
        process(PARENT, false, |second| [9 + 8 * second, 445 - 8 * second, 454, 500])
    }

    /// The same process, of which is known what it shared at the fork.
    fn met_at_fork(mut events: Vec<Event>, anonymous: u64) -> Vec<Event> {
        for event in &mut events {
            *event = metadata(event.clone(), &[("fork_anonymous_bytes", (anonymous * MI).into())]);
        }
        events
    }

    /// 156 MiB are copied within twenty seconds, a page a fault.
    const COPYING: Pages = |second| [9 + 8 * second, 445 - 8 * second, 454, 10 + 3 * second];

    fn judged(mut events: Vec<Event>, workers: u64, pages: Pages) -> Vec<Finding> {
        for worker in 0..workers {
            events.extend(process(PARENT + 1 + worker as i64, true, pages));
        }
        let mut found = analyze(finish(events), Vec::new(), &AnalysisOptions::default()).findings;
        found.retain(|finding| finding.kind == "copy_on_write");
        found
    }

    #[test]
    fn shared_pages_that_become_private_are_one_finding_about_the_parent() {
        let found = judged(parent(), 4, COPYING);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].severity, found[0].process), (Severity::Warning, Some(PARENT)));
        assert_eq!(found[0].metrics["copied_bytes"], 4 * 152 * MI);
        assert!(found[0].title.starts_with("4 forked workers copied 608"), "{}", found[0].title);
        assert_eq!(found[0].evidence.len(), 5, "the parent and each worker");
    }

    #[test]
    fn copies_made_before_the_first_reading_count_where_the_fork_was_met() {
        let late: Pages = |second| [150 + second / 5, 304 - second / 5, 454, 40 + second];
        let own: Pages = |second| [150 + second / 5, 304 - second / 5, 594, 40 + second];
        let judged = |pages: Pages, is_met: bool| {
            let mut events = parent();
            for worker in 1..=3 {
                let worker = process(PARENT + worker, true, pages);
                events.extend(if is_met { met_at_fork(worker, 454) } else { worker });
            }
            let found = analyze(finish(events), Vec::new(), &AnalysisOptions::default()).findings;
            found.iter().filter(|finding| finding.kind == "copy_on_write").count()
        };
        assert_eq!([judged(late, true), judged(late, false)], [1, 0]);
        assert_eq!(judged(own, true), 0, "what it allocated itself before the first reading");
    }

    #[test]
    fn healthy_workers_and_workers_that_allocate_are_not_named() {
        let healthy: Pages = |second| [10 + second / 5, 404 - second / 5, 415, 10 + 9 * second];
        assert!(judged(parent(), 4, healthy).is_empty());
        let caches: Pages = |second| [11 + 8 * second, 291, 303 + 8 * second, 10 + 9 * second];
        assert!(judged(parent(), 4, caches).is_empty(), "own memory");
        let shared_memory: Pages = |second| [11 + 8 * second, 291, 303, 10 + 9 * second];
        assert!(judged(parent(), 4, shared_memory).is_empty(), "segments that only the worker maps");
        let both: Pages = |second| [9 + 16 * second, 445 - 8 * second, 454 + 8 * second, 10 + 9 * second];
        assert_eq!(judged(parent(), 4, both).len(), 1, "copies beside a cache");
    }

    #[test]
    fn pages_that_the_parent_wrote_or_gave_up_are_not_the_workers_copies() {
        // The only other owner has written to its pages: the worker is left with the old ones, without a fault of its own.
        let left: Pages = |second| [9 + 8 * second, 445 - 8 * second, 454, 10];
        assert!(judged(parent(), 1, left).is_empty());
        let frees = process(PARENT, false, |second| [9, 445 - 8 * second, 454 - 8 * second, 500]);
        assert!(judged(frees, 1, COPYING).is_empty());
        let ended: Vec<Event> = parent().into_iter().take(3).collect();
        assert!(judged(ended, 4, COPYING).is_empty(), "judged while the parent lives");
    }

    #[test]
    fn ranks_devices_executed_programs_and_other_languages_are_not_workers() {
        let changed = |change: fn(Event) -> Vec<Event>| {
            let workers = (1..5).flat_map(|pid| process(PARENT + pid, true, COPYING)).flat_map(change);
            judged(parent().into_iter().chain(workers).collect(), 0, COPYING)
        };
        assert_eq!(changed(|event| vec![event]).len(), 1);
        assert!(changed(|event| vec![metadata(event, &[("is_fork", false.into())])]).is_empty());
        let on_rank = |event: Event| {
            let identity =
                Identity { world_size: 4, rank: event.head.pid as u64 - 100, ..Identity::default() };
            let head = Head { identity, ..(*event.head).clone() };
            vec![Event { head: Arc::new(head), ..event }]
        };
        assert!(changed(on_rank).is_empty(), "ranks");
        let with_device = |event: Event| {
            let device = of(event.head.pid, gpu(event.timestamp_ns, MI, MI, MI, 80_000 * MI));
            vec![device, event]
        };
        assert!(changed(with_device).is_empty(), "a trainer");
        let other = |event: Event| metadata(event, &[("comm", "postgres".into())]);
        let events = parent().into_iter().chain((1..5).flat_map(|pid| process(PARENT + pid, true, COPYING)));
        assert!(judged(events.map(other).collect(), 0, COPYING).is_empty());
    }

    fn explained(block_bytes: u64, imported: u64) -> Finding {
        let kept = Kept {
            place: "data.py:9 load".into(),
            holder: Holder { file: "/src/data.py".into(), line: 9, function: "load".into() },
            bytes: 150 * MI,
            count: 150,
            block_bytes,
            live: vec![(0, 0), (10, 150 * MI), (1_000_000_000, 0)],
            ..Kept::default()
        };
        let imports = Kept {
            place: "data.py:1 <module>".into(),
            live: vec![(0, imported)],
            block_bytes: 60,
            ..kept.clone()
        };
        let capture = Capture {
            path: "heap.bin".into(),
            pid: PARENT as u32,
            started_at_ns: 1,
            seconds: 20.0,
            kept: vec![imports, kept],
            ..Capture::default()
        };
        let mut events = parent();
        (1..5).for_each(|pid| events.extend(process(PARENT + pid, true, COPYING)));
        for event in &mut events {
            event.timestamp_ns += SECOND;
        }
        let mut analysis = analyze(finish(events), Vec::new(), &AnalysisOptions::default());
        analysis.take_capture(&capture);
        analysis.findings.into_iter().find(|finding| finding.kind == "copy_on_write").unwrap()
    }

    #[test]
    fn line_that_made_the_objects_is_named_and_large_blocks_are_for_information() {
        let objects = explained(52, 900 * MI);
        assert_eq!(objects.holder.as_ref().map(|holder| holder.line), Some(9));
        assert!(objects.title.ends_with("allocated at data.py:9 load"), "{}", objects.title);
        assert!(explained(MI, 900 * MI).holder.is_some(), "arenas");
        let arrays = explained(75 * MI, 10 * MI);
        assert_eq!((arrays.severity, &arrays.holder), (Severity::Info, &None));
        assert!(arrays.advice[0].starts_with("Copy the part"), "{:?}", arrays.advice);
    }

    #[test]
    fn collection_of_imported_objects_is_for_information_and_names_no_array() {
        let healthy = explained(75 * MI, 900 * MI);
        assert_eq!((healthy.severity, &healthy.holder), (Severity::Info, &None));
        assert!(healthy.advice[0].contains("gc.freeze()"), "{:?}", healthy.advice);
    }
}
