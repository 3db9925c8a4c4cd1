//! What every view of a capture must say besides its numbers: short facts, and sentences that must be shown.

use serde_json::Value;
use stormlog_capture::file::Sample;
use stormlog_capture::layout::flags;
use stormlog_heap::{DeviceFigures, DistinctFailure, Heap};
use stormlog_model::format_bytes;
use stormlog_model::memory::{Memory, Selection, Source};
use stormlog_model::text::{grouped, nanoseconds_in_words, short_name};

use crate::exit_state::End;
use crate::heap_query::HeapQuery;
use crate::reading::{Reading, command, is_python};
use crate::text::{asked, when};

/// A sample farther from its moment than this says nothing about it.
const NEAR_US: u64 = 2_000_000;
/// Heaps that differ by less than one part of this many are the same.
const SAME: u64 = 50;

impl Reading {
    /// Name and value, for the head of a page.
    #[must_use]
    pub fn facts(&self) -> Vec<(String, String)> {
        let stats = self.stats();
        let about = if stats.sample_bytes.is_some() { "about " } else { "" };
        let mut peak = format!("{about}{}", format_bytes(stats.peak_bytes));
        if stats.has_totals && stats.has_blocks {
            peak += &format!(" after {}", nanoseconds_in_words(stats.peak_time_ns));
        }
        let allocated = match stats.has_totals {
            true => format!(
                "{about}{} ({})",
                grouped(stats.total_allocations),
                format_bytes(stats.total_allocated_bytes)
            ),
            false => "not counted".to_owned(),
        };
        let left = format!("{about}{}", format_bytes(stats.leaked_bytes));
        let facts = [("peak", peak), ("allocations", allocated), (self.left(), left), ("end", self.ended())];
        let mut facts: Vec<(String, String)> = facts.map(|(name, value)| (name.to_owned(), value)).into();
        if let Some(reserved) = self.device().and_then(|device| device.peak_reserved_bytes) {
            facts.insert(1, ("reserved".to_owned(), format!("at most {}", format_bytes(reserved))));
        }
        facts
    }

    /// Which process, what it ran, when, and by which versions: the line below the title of a page.
    #[must_use]
    pub fn header(&self) -> String {
        let command = stormlog_model::scrub::command(&command(&self.heap)).join(" ");
        let started = i128::from(self.heap.header.start_realtime_ns);
        let started = jiff::Timestamp::from_nanosecond(started).ok().filter(|_| started > 0);
        let python = self.heap.python().and_then(|text| text.split(' ').next());
        let parts = [
            Some(format!("process {}", self.heap.header.pid)).filter(|_| self.heap.header.pid > 0),
            self.heap.imported.as_ref().map(|imported| imported.format.name().to_owned()),
            Some(short_name(&command)).filter(|command| !command.is_empty()),
            started.map(|started| format!("started {}", started.strftime("%Y-%m-%d %H:%M:%SZ"))),
            python.map(|version| format!("Python {}", short_name(version))),
            Some(format!("Stormlog {}", env!("CARGO_PKG_VERSION"))),
            Some(short_name(&self.chosen.path.display().to_string())),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }

    /// The device whose memory is shown.
    fn device(&self) -> Option<DeviceFigures> {
        let memory = self.heap.memory();
        self.heap.devices().into_iter().find(|device| device.memory == memory)
    }

    /// What the bytes are called that lived last.
    fn left(&self) -> &'static str {
        match self.end {
            End::Running => "held now",
            End::Exited(_) | End::Finished | End::Stopped | End::NotRecorded => match self.heap.code_end() {
                Some(_) => "left by the program's code",
                None => "left at the end",
            },
            End::Killed(_) => "held at death",
            End::Cut(_) | End::Unseen => "held last",
        }
    }

    /// Sentences that must be seen.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let stats = self.stats();
        let failures = stats.distinct_failures();
        let last = stats.failed_requests.last();
        let is_last =
            |failure: &&DistinctFailure<'_>| last.is_some_and(|last| std::ptr::eq(last, failure.last));
        let mut notes: Vec<String> = failures.iter().find(is_last).map(failed).into_iter().collect();
        if stats.failed_request_count > 1 {
            let count = grouped(stats.failed_request_count);
            notes.push(format!("{count} requests failed in all; the last one is shown."));
        }
        notes.extend(self.beyond_the_heap());
        notes.extend(self.device().and_then(|device| before_recording(&device)));
        if stats.lost_events > 0 {
            let reason = match self.heap.header.flags & flags::BOUNDED {
                0 => "the disk was full",
                _ => "--max-size was reached and no compactor was running",
            };
            notes.push(format!(
                "{} records could not be written ({reason}): totals are too low by the size of those records.",
                grouped(stats.lost_events)
            ));
        }
        notes.extend(self.end.cut());
        notes.extend(not_recorded(&self.heap));
        if self.query == HeapQuery::Leaks && !self.knows_when() && self.heap.has_blocks() {
            notes.push(
                "Individual records are not stored in this capture (--aggregate, --max-size), so when memory was allocated and whether it grows is unknown: this is everything that was live at the end."
                    .to_owned(),
            );
        }
        if let (Some(mean), Some(error)) = (stats.sample_bytes, stats.standard_error_bytes) {
            notes.push(format!(
                "One allocation about every {} was recorded; the numbers are estimates, and the total is accurate to about {}.",
                format_bytes(mean),
                format_bytes(error)
            ));
        }
        notes
    }

    /// What resident memory has that the heap does not explain, at the moment of the query. Both are of one moment: where the nearest sample of
    /// resident memory is of another, it is that one's heap.
    fn beyond_the_heap(&self) -> Option<String> {
        let (time, bytes) =
            self.moment().filter(|_| self.heap.selection() == Selection::One(Memory::Host))?;
        let curve = self.heap.curve();
        let heap_at = |time: u64| {
            let after = curve.partition_point(|point| point.time_us <= time);
            after.checked_sub(1).map_or(0, |index| curve[index].bytes)
        };
        // The heap was mostly the same a while before or after the moment: a sample from then is as good as one of the moment.
        let near = samples(&self.heap).filter(|sample| sample.time_us.abs_diff(time) <= NEAR_US);
        let distance = |sample: &&Sample| {
            (heap_at(sample.time_us).abs_diff(bytes) / (bytes / SAME + 1), sample.time_us.abs_diff(time))
        };
        // A block counts from its first byte, the process from the first touch of each page: of samples in the same state of the heap, one that
        // came after the touch is right.
        let is_touched = |sample: &Sample| distance(&sample).0 == 0 && sample.rss >= bytes;
        let near: Vec<&Sample> = near.collect();
        let near = || near.iter().copied();
        let touched = near().filter(|sample| is_touched(sample)).min_by_key(distance);
        let sample = touched.or_else(|| near().min_by_key(distance))?;
        let (moment, heap_bytes) = match distance(&sample) {
            (0, _) => ("then".to_owned(), bytes),
            _ => (format!("after {}", when(sample.time_us)), heap_at(sample.time_us)),
        };
        let (heap_words, rss_words) = (format_bytes(heap_bytes), format_bytes(sample.rss));
        if self.stats().sample_bytes.is_some() && sample.rss < heap_bytes {
            return None;
        }
        Some(match sample.rss.checked_sub(heap_bytes) {
            Some(rest) => format!(
                "The process had {rss_words} resident {moment}, of which the heap explains {heap_words}: {} is allocator overhead and fragmentation, \
                 code and file mappings, stacks, and memory from before the recording.",
                format_bytes(rest)
            ),
            None => format!(
                "The process had {rss_words} resident {moment}, less than the {heap_words} it had requested: {} had not been touched by then, or was swapped out.",
                format_bytes(heap_bytes - sample.rss)
            ),
        })
    }

    /// When the memory of the query was held, and how much there was in all.
    fn moment(&self) -> Option<(u64, u64)> {
        let at = |time: u64| {
            let curve = self.heap.curve();
            let after = curve.partition_point(|point| point.time_us <= time);
            after.checked_sub(1).map(|index| curve[index].bytes)
        };
        match self.query {
            // The sentence about the request says what was resident.
            _ if self.is_at_failure() => None,
            HeapQuery::Peak => Some((self.stats().peak_time_ns / 1000, self.stats().peak_bytes)),
            HeapQuery::Leaks | HeapQuery::AtDeath => {
                let time = self.heap.code_end().map_or(self.heap.duration_us(), |(time, _)| time);
                Some((time, self.stats().leaked_bytes))
            }
            HeapQuery::At(time) | HeapQuery::Span(_, time) => at(time).map(|bytes| (time, bytes)),
            HeapQuery::Temporary(_) => None,
        }
    }

    /// How it ended, in a few words.
    #[must_use]
    pub fn ended(&self) -> String {
        self.end.words(self.heap.duration_us())
    }
}

/// What a recording could not see: the stacks of a program, or its `new` and `delete`. A sentence each.
#[must_use]
pub fn not_recorded(heap: &Heap) -> Vec<String> {
    if let Some(imported) = &heap.imported {
        return imported.notes.clone();
    }
    if !heap.records_host() {
        let host = "The host heap was not recorded (--no-heap): this capture has GPU memory only.".to_owned();
        return std::iter::once(host).chain(missing_reports(heap)).collect();
    }
    let missing = [missing_stacks(heap), missing_operators(heap), missing_reports(heap)];
    missing.into_iter().flatten().collect()
}

fn missing_stacks(heap: &Heap) -> Option<String> {
    if heap.has_python_stacks() || heap.header.flags & flags::NATIVE != 0 {
        return None;
    }
    let stacks =
        "stacks are recorded for CPython 3.11 to 3.14 with the GIL; --native names C functions instead.";
    match heap.python() {
        Some(version) if !is_supported(version) => {
            Some(format!("Stacks of Python {} are unknown: {stacks}", short_name(words_before(version, '('))))
        }
        Some(_) => None,
        None if is_python(&command(heap)) => Some(format!("Python stacks are unknown: {stacks}")),
        None => Some(
            "Stacks are unknown: this is not a Python program; --native records those of C, C++ and Rust."
                .to_owned(),
        ),
    }
}

fn words_before(text: &str, end: char) -> &str {
    text.split(end).next().unwrap_or(text).trim_end()
}

/// Whether the stacks of a Python are recorded, by what it says of itself (`3.11.7 (main, ...`).
fn is_supported(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let minor = (numbers.next(), numbers.next());
    matches!(minor, (Some(3), Some(11..=14))) && !version.contains("free-threading")
}

fn missing_reports(heap: &Heap) -> Option<String> {
    let memories: Vec<Memory> = heap.devices().iter().map(|device| device.memory).collect();
    reports_note(heap.device_reports(), &memories).map(str::to_owned)
}

/// What to say of an allocator that does not report: by whether the framework has the functions for it, and the memories that there are records of.
fn reports_note(has_functions: Option<bool>, devices: &[Memory]) -> Option<&'static str> {
    let is_drivers =
        |memory: &Memory| matches!(memory, Memory::Device(device) if device.source == Source::Driver);
    match has_functions? {
        false if devices.is_empty() => Some(
            "GPU memory is not recorded: this PyTorch does not report it; --cuda-driver records what is allocated from the driver.",
        ),
        true if !devices.is_empty() && devices.iter().all(is_drivers) => Some(
            "PyTorch's allocator did not report any block (cudaMallocAsync and pluggable allocators do not report theirs): GPU memory is known by \
             the driver's events.",
        ),
        _ => None,
    }
}

fn missing_operators(heap: &Heap) -> Option<String> {
    let about: Value = serde_json::from_slice(&heap.header.metadata).unwrap_or_default();
    let library = about["operator_new"].as_str()?;
    let name = library.rsplit('/').next().unwrap_or(library);
    Some(format!(
        "`new` and `delete` of C++ are not recorded: {} has its own, which do not call malloc; run the program without it to record them.",
        short_name(name)
    ))
}

/// Resident bytes near a time.
pub(crate) fn rss_at(heap: &Heap, time_us: u64) -> Option<u64> {
    let nearest = samples(heap).min_by_key(|sample| sample.time_us.abs_diff(time_us))?;
    (nearest.time_us.abs_diff(time_us) <= NEAR_US).then_some(nearest.rss)
}

/// A process that has just ended has nothing resident any more, and that says nothing about its heap.
fn samples(heap: &Heap) -> impl Iterator<Item = &Sample> {
    heap.samples.iter().filter(|sample| sample.rss > 0)
}

fn failed(DistinctFailure { last: request, frame, .. }: &DistinctFailure<'_>) -> String {
    let place = frame.map_or_else(String::new, |frame| {
        format!(" by {} ({}:{})", short_name(&frame.function), short_name(&frame.file), frame.line)
    });
    let resident = request
        .resident_bytes
        .map_or_else(String::new, |bytes| format!(" The process had {} resident.", format_bytes(bytes)));
    let limit = match (request.limit_bytes, request.address_space_bytes) {
        _ if request.allocated_bytes.is_some() => {
            let (allocated, reserved) = (request.allocated_bytes, request.reserved_bytes);
            let [allocated, reserved] = [allocated, reserved].map(|bytes| format_bytes(bytes.unwrap_or(0)));
            format!(" Its allocator had handed out {allocated} and held {reserved} from the device.")
        }
        (Some(limit), Some(used)) => format!(
            " The limit of its address space was {}, {} was in use.",
            format_bytes(limit),
            format_bytes(used)
        ),
        (Some(limit), None) => format!(" The limit of its address space was {}.", format_bytes(limit)),
        _ => String::new(),
    };
    format!(
        "A request for {} failed after {}: {}{place}.{limit}{resident}",
        asked(request.bytes),
        nanoseconds_in_words(request.time_ns),
        request.allocator
    )
}

fn before_recording(device: &DeviceFigures) -> Option<String> {
    let bytes = device.before_recording_bytes;
    (bytes > 0).then(|| {
        format!(
            "{} of {} were allocated before the recording began: their lines are unknown.",
            format_bytes(bytes),
            device.memory
        )
    })
}

#[cfg(test)]
mod tests {
    use stormlog_model::memory::{Device, Memory, Source};

    use super::reports_note;

    #[test]
    fn an_allocator_that_does_not_report_is_named_where_only_the_driver_does() {
        let device = |source| Memory::Device(Device { kind: 1, index: 0, source });
        let (allocator, driver) = (device(Source::Allocator), device(Source::Driver));
        assert!(reports_note(Some(true), &[driver]).is_some_and(|note| note.contains("cudaMallocAsync")));
        assert!(reports_note(Some(false), &[]).is_some_and(|note| note.contains("--cuda-driver")));
        assert_eq!(reports_note(Some(true), &[allocator, driver]), None);
        assert_eq!((reports_note(Some(true), &[]), reports_note(None, &[driver])), (None, None));
    }
}
