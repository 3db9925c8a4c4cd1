//! The layers of a process's memories: what each explains of the one around it, at the moment that matters. RSS = heap + files + shared memory + the rest;
//! device used = reserved + context + other processes + the rest.
//!
//! Of the host it is the moment of the highest RSS, of a device the end of the recording. A part that was not sampled is left out; what no part explains is
//! not judged here. Numbers in, numbers out.

use stormlog_model::memory::Memory;

use crate::recording::{Recording, Stream};
use crate::rules::heap::Capture;
use crate::rules::hidden::outside_allocator;

/// Anonymous memory before a capture splits it.
pub const ANONYMOUS: &str = "heap, stacks and other anonymous memory";

/// The estimate of a sampled heap may exceed what is resident by a quarter.
const ESTIMATE_PART: u64 = 4;

/// One memory of one process, and its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    /// The process.
    pub pid: i64,
    /// The session that was sampled.
    pub session_id: String,
    /// Which memory.
    pub memory: Memory,
    /// When, nanoseconds since 1970.
    pub at_ns: u64,
    /// All of it: resident bytes of the process, or used bytes of the device.
    pub total_bytes: u64,
    /// The parts, in the order of the sum; `None` is not known.
    pub parts: Vec<(&'static str, Option<u64>)>,
}

/// The layers of every process of a recording that has the samples for them.
pub(crate) fn layers(processes: &[Vec<&Stream>]) -> Vec<Layers> {
    let mut found = Vec::new();
    for streams in processes {
        let mut of_process: Vec<Layers> = Vec::new();
        for stream in streams {
            let of_stream = if stream.is_host() { of_host(stream) } else { of_device(stream, streams) };
            let Some(layers) = of_stream else { continue };
            // A process that is sampled from outside and from inside has the fuller of both.
            match of_process.iter_mut().find(|known| known.memory == layers.memory) {
                Some(known) if known.parts.len() < layers.parts.len() => *known = layers,
                Some(_) => {}
                None => of_process.push(layers),
            }
        }
        found.append(&mut of_process);
    }
    found
}

/// Resident memory when it was highest, where file-backed memory was sampled.
fn of_host(stream: &Stream) -> Option<Layers> {
    let resident = &stream.facts.resident;
    let known = stream.samples.iter().filter(|sample| resident.at(sample.at_ns).is_some());
    let most = known.max_by_key(|sample| sample.used())?;
    let (total, (file_backed, shared)) = (most.used().filter(|used| *used > 0)?, resident.at(most.at_ns)?);
    let (file_backed, shared) = (file_backed.min(total), shared.min(file_backed));
    let parts = vec![
        (ANONYMOUS, Some(total - file_backed)),
        ("files", Some(file_backed - shared)),
        ("shared memory", Some(shared)),
    ];
    Some(layers_of(stream, Memory::Host, most.at_ns, total, parts))
}

/// A device near the end, where the allocator was sampled from inside the process.
fn of_device(stream: &Stream, streams: &[&Stream]) -> Option<Layers> {
    let memory = stream.memory?;
    let outside = outside_allocator(stream, streams)?;
    let parts = vec![
        ("reserved", Some(outside.used - outside.bytes)),
        ("context", Some(outside.context)),
        ("other processes", outside.others),
    ];
    Some(layers_of(stream, memory, outside.at_ns, outside.used, parts))
}

fn layers_of(
    stream: &Stream,
    memory: Memory,
    at_ns: u64,
    total_bytes: u64,
    parts: Vec<(&'static str, Option<u64>)>,
) -> Layers {
    let (pid, session_id) = (stream.head.pid, stream.head.session_id.clone());
    Layers { pid, session_id, memory, at_ns, total_bytes, parts }
}

impl Layers {
    /// Splits anonymous memory by what a capture shows to be alive at that moment. A sampled heap is an estimate, and may be a little above what is resident;
    /// one that is far above it has blocks that were never touched, and splits nothing.
    pub(crate) fn split(&mut self, capture: &Capture) {
        let is_own = capture.memory == Memory::Host
            && self.memory == Memory::Host
            && i64::from(capture.pid) == self.pid;
        let Some(heap) = is_own.then(|| capture.live_at(self.at_ns)).flatten() else { return };
        let Some(at) = self.parts.iter().position(|(name, _)| *name == ANONYMOUS) else { return };
        let Some(anonymous) = self.parts[at].1.filter(|all| heap <= all + all / ESTIMATE_PART) else {
            return;
        };
        let heap = heap.min(anonymous);
        self.parts[at] = ("heap", Some(heap));
        self.parts.insert(at + 1, ("allocator slack, stacks and unrecorded", Some(anonymous - heap)));
    }
}

impl Recording {
    /// The streams of each process, from all its sessions.
    pub(crate) fn by_process(&self) -> Vec<Vec<&Stream>> {
        let mut joined: std::collections::BTreeMap<usize, Vec<&Stream>> = std::collections::BTreeMap::new();
        let mut processes = Vec::new();
        for session in &self.sessions {
            let streams = session.ranks.iter().flat_map(|rank| &rank.streams);
            match session.process {
                Some(process) => joined.entry(process).or_default().extend(streams),
                None => processes.push(streams.collect()),
            }
        }
        processes.extend(joined.into_values());
        processes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{gpu, metadata, sample};
    use crate::{AnalysisOptions, analyze};

    const SECOND: u64 = 1_000_000_000;
    const MI: u64 = 1 << 20;

    fn of(events: impl IntoIterator<Item = stormlog_model::Event>) -> crate::Analysis {
        analyze(crate::testing::finish(events), Vec::new(), &AnalysisOptions::default())
    }

    fn host(at: u64, rss: u64, files: u64, shared: u64) -> stormlog_model::Event {
        let mut event = sample(at, rss);
        event.head = Arc::new(stormlog_model::Head { device_id: -1, pid: 7, ..(*event.head).clone() });
        let map = &mut Arc::make_mut(&mut event.metadata).map;
        map.insert("file_backed_bytes".to_owned(), files.into());
        map.insert("shared_memory_bytes".to_owned(), shared.into());
        event
    }

    #[test]
    fn host_memory_is_split_at_its_peak_and_by_the_capture_of_that_moment() {
        let rss = [100, 900, 400];
        let mut analysis = of((0..3).zip(rss).map(|(at, rss)| host(at * SECOND, rss * MI, 50 * MI, 20 * MI)));
        assert_eq!(analysis.layers.len(), 1);
        let own = analysis.layers[0].clone();
        assert_eq!((own.pid, own.at_ns, own.total_bytes), (7, SECOND, 900 * MI));
        assert_eq!(own.parts.iter().map(|part| part.1.unwrap() / MI).collect::<Vec<_>>(), [850, 30, 20]);
        let capture = Capture {
            pid: 7,
            started_at_ns: SECOND / 2,
            seconds: 3.0,
            live: vec![(0, 10 * MI), (400_000, 600 * MI), (800_000, 70 * MI)],
            ..Capture::default()
        };
        analysis.take_capture(&capture);
        let parts: Vec<(&str, u64)> =
            analysis.layers[0].parts.iter().map(|part| (part.0, part.1.unwrap() / MI)).collect();
        assert_eq!(parts[..2], [("heap", 600), ("allocator slack, stacks and unrecorded", 250)]);
        assert_eq!(parts.iter().map(|part| part.1).sum::<u64>(), 900, "the parts add up");
        let split = |heap: u64| {
            let mut layers = own.clone();
            layers.split(&Capture { live: vec![(0, heap * MI)], ..capture.clone() });
            (layers.parts[0].0, layers.parts[0].1.unwrap() / MI)
        };
        assert_eq!(split(900), ("heap", 850), "an estimate may be a little above what is resident");
        assert_eq!(split(2000), (ANONYMOUS, 850), "blocks that were never touched split nothing");
    }

    #[test]
    fn device_memory_is_split_without_a_finding() {
        let one = |at: u64| {
            let event = gpu(at * SECOND, 900 * MI, 1000 * MI, 1300 * MI, 80_000 * MI);
            metadata(event, &[("backend", "cuda".into())])
        };
        let analysis = of((0..8).map(one));
        assert_eq!(analysis.findings.iter().filter(|found| found.kind == "hidden_gap").count(), 0);
        let own = &analysis.layers[0];
        assert_eq!((own.total_bytes, own.parts[0]), (1300 * MI, ("reserved", Some(1000 * MI))));
        assert_eq!(own.parts[1], ("context", Some(300 * MI)));
        assert_eq!(own.parts[2], ("other processes", None), "the driver's list was not read");
    }
}
