//! What was recorded of one process, put together: its end, its bundle, its captures, what the program left at a CUDA out-of-memory error, what keeps
//! its memory, and what the rules found. What is missing or damaged costs its part of the story.

use serde_json::Value;
use stormlog_analyze::rules::outliers;
use stormlog_catalog::cuda_oom::CudaOom;
use stormlog_catalog::retained::{Reason, Retention};
use stormlog_catalog::run::Process;
use stormlog_heap_report::retained::retention;
use stormlog_heap_report::{AT_FAILURE, DeviceDigest, HeapDigest};
use stormlog_model::memory::Memory;
use stormlog_model::{Finding, Record, format_bytes, format_duration};
use stormlog_postmortem::bundle::Bundle;
use stormlog_postmortem::{Cause, Ended};

use crate::during::during;
use crate::gain;
use crate::holder::{self, Growth, Holder};
use crate::process::ProcessStory;
use crate::residual;

/// A variable is named beside a line if it keeps at least a third of what the line holds: most of what an import holds is native.
const KEEPS_AT_LEAST: u64 = 3;
/// A holder of a smaller share of the largest is not shown.
const LEAST_SHARE: f64 = 0.02;
/// A holder that holds less than this share of the largest is not worth changing.
const WORTH: f64 = 0.2;

/// How the sentence about a CUDA out-of-memory error begins.
const CUDA_FAILURE: &str = "CUDA out of memory";

/// The story of a process of a run, or of a recording without one. `digest` is what its capture shows, where that was read; a bundle has it too.
pub(crate) fn of_process(
    process: &Process,
    bundle: Option<&Bundle>,
    digest: Option<&HeapDigest>,
    findings: Vec<Finding>,
) -> ProcessStory {
    let facts = process.end.facts();
    let mut story = ProcessStory::new(process.end.ended(), String::new());
    story.pid = process.pid;
    story.program.clone_from(&process.program);
    story.rank = process.identity().and_then(|summary| u64::try_from(summary.rank).ok());
    story.world_size = process.identity().and_then(|summary| u64::try_from(summary.world_size).ok());
    story.is_root = process.is_root;
    story.cause = facts.and_then(|facts| facts.cause);
    story.confidence = facts.and_then(|facts| facts.confidence);
    story.started_at_ns = process.started_at_ns();
    story.ended_at_ns = process.ended_at_ns();
    story.peak_rss_bytes = process.peak_rss_bytes;
    story.what_happened = match facts.and_then(|facts| facts.verdict.clone()) {
        Some(verdict) => verdict,
        None => plainly(&story),
    };
    story.findings = findings;
    if let Some(bundle) = bundle {
        take_bundle(&mut story, bundle, digest.is_none());
        story.during = during(&process.bundles, bundle);
    }
    if let Some(digest) = digest {
        take_digest(&mut story, digest);
    }
    story.is_capture_only =
        process.sessions.is_empty() && process.run.is_none() && !process.captures.is_empty();
    if let Some(digest) = digest.filter(|_| story.is_capture_only) {
        story.what_happened = of_capture(&story, digest);
    }
    if let Some(retention) = retention(process) {
        take_retention(&mut story, &retention);
    }
    if let Some(bundle) = bundle {
        take_others(&mut story, bundle);
    }
    settle(&mut story);
    story
}

/// The story of a bundle alone, where nothing else is known of its process.
pub(crate) fn of_bundle(bundle: &Bundle) -> ProcessStory {
    let mut story = ProcessStory::new(Ended::Failed, String::new());
    if let Some(session) = &bundle.session {
        story.pid = u32::try_from(session.pid).ok();
        story.rank = u64::try_from(session.rank).ok();
        story.world_size = u64::try_from(session.world_size).ok();
    }
    take_bundle(&mut story, bundle, true);
    take_others(&mut story, bundle);
    settle(&mut story);
    story
}

fn take_bundle(story: &mut ProcessStory, bundle: &Bundle, takes_heap: bool) {
    let evidence = &bundle.evidence;
    let is_end = bundle.ended != Some(Ended::Running);
    story.cause = Some(bundle.cause).filter(|_| is_end).or(story.cause);
    if story.ended == Ended::Unknown || story.pid.is_none() {
        story.ended = bundle.ended.unwrap_or(Ended::Failed);
    }
    story.confidence = evidence.get("confidence").and_then(Value::as_f64).or(story.confidence);
    story.peak_rss_bytes = story.peak_rss_bytes.or(bundle.peak_rss_bytes);
    let verdict = evidence.get("verdict").and_then(Value::as_str).map(str::to_owned);
    story.what_happened = verdict.unwrap_or_else(|| without_verdict(bundle));
    story.raised = raised(&bundle.metadata);
    let tries = evidence.get("try").and_then(Value::as_array).into_iter().flatten();
    story.advice.extend(tries.filter_map(Value::as_str).map(str::to_owned));
    let heap = bundle.metadata.get("custom_metadata").and_then(|metadata| metadata.get("heap"));
    if let Some(heap) = heap.and_then(Value::as_object).filter(|_| takes_heap) {
        take_kept_heap(story, heap);
    }
    if let Some(cuda) = CudaOom::of(bundle) {
        take_cuda(story, &cuda);
    }
    story.residuals.extend(residual::of_map(evidence));
}

/// What a capture showed when the bundle was written.
fn take_kept_heap(story: &mut ProcessStory, heap: &Record) {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let devices = || heap.get("devices").and_then(Value::as_array).into_iter().flatten();
    let rows = heap.get("held").and_then(Value::as_array).into_iter().flatten();
    let is_sampled = heap.get("sample_bytes").is_some_and(Value::is_u64);
    story.held.extend(
        rows.filter_map(Holder::of_value)
            .map(|holder| Holder { is_estimate: is_sampled && holder.memory == Memory::Host, ..holder }),
    );
    story.failed_memory =
        heap.get("failed_memory").and_then(Value::as_str).and_then(|word| word.parse().ok());
    let of_devices = devices().filter_map(|device| text(device, "failed_request"));
    let own = heap.get("failed_request").and_then(Value::as_str).map(str::to_owned);
    story.failed_requests.extend(of_devices.chain(own));
    story.held_when = story.failed_memory.map(|_| AT_FAILURE);
}

fn take_digest(story: &mut ProcessStory, digest: &HeapDigest) {
    story.failed_memory = digest.failed_memory().or(story.failed_memory);
    story.held.retain(|holder| !holder.is_line() && holder.memory == Memory::Host);
    story.held.extend(Holder::of_digest(digest, &digest.holders));
    story.held_at_peak = Holder::of_digest(digest, &digest.peak_holders).collect();
    let of_devices = digest.devices.iter().filter_map(|device| device.failed_request.clone());
    let mut requests: Vec<String> = of_devices.chain(digest.failed.clone()).collect();
    if story.failed_requests.is_empty() {
        story.failed_requests.append(&mut requests);
    }
    story.outsized_request.clone_from(&digest.outsized);
    story.held_when = story.failed_memory.map(|_| AT_FAILURE);
    let failed = digest.devices.iter().find(|device| Some(device.memory) == story.failed_memory);
    // At the end of a program whose exception released its memory they explain nothing.
    let is_there = |device: &&DeviceDigest| device.live_bytes >= device.peak_bytes / 2;
    if let Some(device) = failed.filter(is_there).filter(|_| story.purposes.is_empty()) {
        story.purposes.clone_from(&device.categories);
    }
}

/// What the program itself left when PyTorch's allocator failed: a GPU's death is about its memory.
fn take_cuda(story: &mut ProcessStory, cuda: &CudaOom) {
    let memory = cuda.memory().unwrap_or_default();
    if let Some(sentence) = cuda.sentence() {
        let name = if story.program.is_some() { format!("{}: ", story.name()) } else { String::new() };
        let sentence = sentence.trim_end_matches('.');
        let (happened, why) = match sentence.split_once(": ") {
            Some((happened, why)) if happened.starts_with(CUDA_FAILURE) => (happened, Some(why)),
            _ => (sentence, None),
        };
        // The program's own explanation has figures that its snapshot has not; but it may be the bare message of the exception.
        let kind = |text: &str| text.split(':').next().map(str::to_owned);
        let why = why.filter(|why| cuda.reason().is_none_or(|reason| kind(reason) == kind(why)));
        story.what_happened = format!("{name}{happened}.");
        story.reason = why.or(cuda.reason()).map(str::to_owned);
    } else {
        story.reason = cuda.reason().map(str::to_owned);
    }
    story.failed_memory = cuda.memory().or(story.failed_memory);
    // The sentence has the size already; the line that asked for it is in the request.
    story.failed_requests.retain(|request| request.starts_with("cuda"));
    if story.failed_requests.is_empty() {
        story.failed_requests.extend(cuda.request().map(|request| format!("{memory}: {request}")));
    }
    if !story.held.iter().any(|holder| holder.memory.is_device()) {
        story.held.extend(cuda.held().map(|(place, bytes)| Holder::of_place(memory, bytes, place)));
    }
    if let Some(advice) = cuda.advice() {
        story.advice.insert(0, advice);
    }
    story.purposes = cuda.purposes();
    story.residuals.extend(residual::of_device(memory, &cuda.layers()));
}

/// Holders that no recording has: another process that held more, and where no line is known, what the writer of the bundle found in
/// the program's variables, or the kinds of memory.
fn take_others(story: &mut ProcessStory, bundle: &Bundle) {
    let rows = bundle.evidence.get("held_by").and_then(Value::as_array).into_iter().flatten();
    let row = |row: &Value| {
        let note = row.get("note").and_then(Value::as_str).map(str::to_owned);
        Some((row.get("place")?.as_str()?.to_owned(), row.get("bytes")?.as_u64()?, note))
    };
    let own = story.pid.map(|pid| format!("(pid {pid}"));
    let has_lines = story.held.iter().any(Holder::is_line);
    let most = story.held.iter().map(|holder| holder.bytes).max().unwrap_or(0);
    let memory = memory_of(bundle);
    for (place, bytes, note) in rows.filter_map(row) {
        let is_process = place.contains("(pid ");
        let is_own = own.as_ref().is_some_and(|own| place.contains(own.as_str()));
        let is_kind = place.starts_with('[');
        let is_memory = story.is_out_of_memory();
        if (is_memory && is_process && !is_own && bytes > most && !place.starts_with("GPU"))
            || (is_kind && !has_lines && story.failed_memory.is_none())
        {
            story.held.push(Holder::named(Memory::Host, bytes, place));
        } else if let (Some(memory), false) = (memory, is_process || is_kind || has_lines) {
            // The answer has its own advice about a holder.
            story.advice.retain(|advice| !advice.starts_with(&place));
            story.held.push(of_variable(memory, bytes, &place, note));
        }
    }
}

/// `train.py:31 forward: batches` with the note `list of 8`: the line, kept by the variable.
fn of_variable(memory: Memory, bytes: u64, place: &str, note: Option<String>) -> Holder {
    let Some((line, name)) = place.rsplit_once(": ") else { return Holder::of_place(memory, bytes, place) };
    let article =
        |note: &str| if note.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O']) { "an" } else { "a" };
    let kind = note.map_or_else(String::new, |note| format!(", {} {note}", article(&note)));
    Holder { kept_by: Some(format!("`{name}`{kind}")), ..Holder::of_place(memory, bytes, line) }
}

/// The memory that ran out, as the writer of a bundle has it.
fn memory_of(bundle: &Bundle) -> Option<Memory> {
    match bundle.backend.as_deref()? {
        "cpu" => Some(Memory::Host),
        device => {
            let details = bundle.metadata.get("custom_metadata");
            let number = details.and_then(|details| details.get("sample_device_id")).and_then(Value::as_u64);
            format!("{device}:{}", number.unwrap_or(0)).parse().ok()
        }
    }
}

/// What keeps the lines, by file and line: the row that keeps most of a line first.
fn take_retention(story: &mut ProcessStory, retention: &Retention) {
    for row in &retention.held {
        let Ok(memory) = row.memory.parse::<Memory>() else { continue };
        let line = row.line.and_then(|line| u32::try_from(line).ok());
        let is_it = |holder: &&mut Holder| {
            holder.kept_by.is_none()
                && holder.memory == memory
                && line == Some(holder.line)
                && row.file.as_deref().is_some_and(|file| same_file(file, &holder.file))
        };
        let keeps_enough = |holder: &&mut Holder| row.bytes >= holder.bytes / KEEPS_AT_LEAST;
        if let Some(holder) = story.held.iter_mut().find(is_it).filter(keeps_enough) {
            holder.kept_by = Some(row.kept_by.clone());
            holder.is_kept_at_forecast = retention.reason == Reason::Forecast;
        }
    }
}

fn same_file(a: &str, b: &str) -> bool {
    a == b || a.ends_with(&format!("/{b}")) || b.ends_with(&format!("/{a}"))
}

/// What follows from all of it together: growth of lines, the order, the reason, and what to change.
fn settle(story: &mut ProcessStory) {
    if is_about_peak(story) {
        story.held = story.held_at_peak.clone();
        story.held_when = Some("at the peak");
    }
    for finding in &story.findings {
        let Some(place) = &finding.holder else { continue };
        let number = |key: &str| finding.metrics.get(key).and_then(Value::as_f64);
        let Some(bytes_per_second) = number("bytes_per_second") else { continue };
        let began_ns = finding.evidence.iter().find_map(|evidence| evidence.start_ns);
        let after_ns = (number("after_seconds").unwrap_or(0.0).max(0.0) * 1e9) as u64;
        let since_ns = began_ns.map(|began| began.saturating_add(after_ns));
        let started = story.started_at_ns.and_then(|started| u64::try_from(started).ok());
        let after_start = since_ns.zip(started).map(|(since, started)| since.saturating_sub(started));
        let growth = Growth {
            bytes_per_second,
            since_ns,
            since: since_ns.and_then(moment),
            after_start_seconds: after_start.map(|ns| ns as f64 / 1e9),
            seconds: number("seconds"),
        };
        let memory = finding.memory.unwrap_or_default();
        let is_it = |holder: &&mut Holder| {
            holder.memory == memory && holder.line == place.line && same_file(&holder.file, &place.file)
        };
        match story.held.iter_mut().find(is_it) {
            Some(holder) => {
                holder.growth = holder.growth.take().or(Some(growth));
                let count = finding.metrics.get("allocations").and_then(Value::as_u64);
                holder.count = holder.count.or(count);
            }
            // The program gave it back before it ended; it is what grew all the same.
            None if finding.kind == "leak" => {
                let bytes = number("kept_bytes").or(number("growth_bytes")).unwrap_or(0.0).max(0.0);
                let mut holder = Holder::named(memory, bytes as u64, place.function.clone());
                (holder.file, holder.line, holder.growth) = (place.file.clone(), place.line, Some(growth));
                story.held.push(holder);
            }
            None => {}
        }
    }
    let short = short_memory(story);
    holder::sort(&mut story.held, short);
    // What the interpreter itself needs is left out where a line of the program is known.
    let most = story.held.iter().map(|holder| holder.bytes).max().unwrap_or(0);
    let least = (most as f64 * LEAST_SHARE) as u64;
    story.held.retain(|holder| holder.bytes >= least);
    if story.reason.is_none() && story.ended == Ended::Failed {
        let cause = story.findings.iter().find(|finding| finding.kind == "leak");
        story.reason = cause.filter(|_| story.is_out_of_memory()).map(|finding| finding.title.clone());
    }
    let purpose = story.failed_memory.and_then(|memory| {
        gain::of_categories(memory, &story.purposes, story.world_size).filter(|_| memory.is_device())
    });
    let after_first = usize::from(!story.advice.is_empty());
    if let Some(purpose) = purpose {
        story.advice.insert(after_first, purpose);
    }
    let has_failed = story.is_out_of_memory() || story.findings.iter().any(|finding| finding.kind == "oom");
    if let Some(advice) = story.outsized_request.clone().filter(|_| has_failed) {
        story.advice.retain(|other| !other.starts_with("cap what"));
        story.advice.insert(0, advice);
    } else if let Some(advice) = of_holder(story) {
        // The verdict names its largest holder in the same way.
        story.advice.retain(|other| !other.starts_with("cap what"));
        // What keeps it is known: that says more than what it is for.
        let is_kept = story.held.first().is_some_and(|holder| holder.kept_by.is_some());
        let before = if is_kept || story.purposes.is_empty() { after_first } else { 2 };
        let is_device = story.failed_memory.is_some_and(Memory::is_device);
        let at = if is_device { story.advice.len().min(before) } else { 0 };
        story.advice.insert(at, advice);
    }
}

/// Whether what is wrong with a process that ended well is its peak: then what it still held at the end explains nothing.
fn is_about_peak(story: &ProcessStory) -> bool {
    story.ended == Ended::Completed
        && story.failed_memory.is_none()
        && !story.held_at_peak.is_empty()
        && story.findings.first().is_some_and(|finding| finding.id == outliers::ID)
}

/// A moment as scripts and reports write it.
fn moment(at_ns: u64) -> Option<String> {
    let at = jiff::Timestamp::from_nanosecond(i128::from(at_ns)).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// The memory that the trouble is about: the one that failed, or that leaks.
fn short_memory(story: &ProcessStory) -> Option<Memory> {
    let leak = || story.findings.iter().find(|finding| finding.kind == "leak");
    story.failed_memory.or_else(|| leak()?.memory)
}

/// How a retention report begins where tensors keep the graphs they were computed by (`hook::retention::report`).
const BY_GRAPH: &str = "the autograd graph of ";

/// What to do about the largest holder, and what that gains. To release host memory helps no device.
fn of_holder(story: &ProcessStory) -> Option<String> {
    let is_wanted = story.is_out_of_memory() || story.findings.iter().any(|finding| finding.kind == "leak");
    let first = story.held.first().filter(|holder| is_wanted && holder.is_line())?;
    if short_memory(story).is_some_and(|short| short.is_device() != first.memory.is_device()) {
        return None;
    }
    let total: u64 = story.held.iter().filter(|one| one.memory == first.memory).map(|one| one.bytes).sum();
    let is_worth = first.bytes as f64 >= WORTH * total as f64;
    // One variable may keep what several lines allocated; to release it frees all of that.
    let kept = story
        .held
        .iter()
        .filter(|one| one.memory == first.memory && one.kept_by == first.kept_by && first.kept_by.is_some());
    let bytes = kept.map(|one| one.bytes).sum::<u64>().max(first.bytes);
    let gain = Holder { bytes, ..first.clone() }.size();
    let whose = match &first.kept_by {
        Some(kept_by) => {
            // The operations are with the holder above it.
            let kept_by = kept_by.split(" (grad_fn").next().unwrap_or(kept_by);
            match kept_by.strip_prefix(BY_GRAPH) {
                Some(tensors) => {
                    format!("keep {tensors} without autograd graphs (no_grad(), detach() or item())")
                }
                None => format!("release or cap {kept_by}"),
            }
        }
        None => format!("release or cap what {} allocates", first.place()),
    };
    is_worth.then(|| format!("{whose}: frees up to {gain} of {} memory", first.memory))
}

/// The sentence of a process whose end left no verdict.
fn plainly(story: &ProcessStory) -> String {
    let span = story.started_at_ns.zip(story.ended_at_ns).map(|(start, end)| end.saturating_sub(start));
    let after = span.filter(|ns| *ns > 0).map(|ns| format!(" after {}", format_duration(ns as f64 / 1e9)));
    let how = match story.ended {
        Ended::Running => return format!("{} is running.", story.name()),
        Ended::Completed => "exited 0",
        Ended::Deliberate => "was stopped",
        Ended::Failed => "failed",
        Ended::Unknown => "ended",
    };
    let doubt = if story.ended == Ended::Unknown { "; the cause is unknown" } else { "" };
    format!("{} {how}{}{doubt}.", story.name(), after.unwrap_or_default())
}

/// The sentence of a process of which a capture is all that is known: how much its memories held.
fn of_capture(story: &ProcessStory, digest: &HeapDigest) -> String {
    let about = digest.about();
    let part = |memory: &str, about: &str, peak: u64, live: u64| {
        format!(
            "{memory} peaked at {about}{} and held {about}{} at the end",
            format_bytes(peak),
            format_bytes(live)
        )
    };
    let host = digest.has_host.then(|| part("its heap", about, digest.peak_bytes, digest.live_bytes));
    let devices = digest.devices.iter();
    let devices = devices.map(|one| part(&one.memory.to_string(), "", one.peak_bytes, one.live_bytes));
    let parts: Vec<String> = host.into_iter().chain(devices).collect();
    format!("{}: {}.", story.name(), parts.join("; "))
}

/// The first line of a bundle whose writer kept no verdict.
fn without_verdict(bundle: &Bundle) -> String {
    let text = |key: &str| bundle.metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let context = text("context").and_then(|context| context.lines().next());
    match (text("exception_type"), context) {
        (Some(exception), Some(context)) => format!("A program raised {exception} ({context})."),
        (Some(exception), None) => format!("A program raised {exception}."),
        (None, Some(context)) => format!("A program ended here ({context})."),
        (None, None) => "A program ended here.".to_owned(),
    }
}

/// `ValueError: boom, at train.py:3 main`: the exception that the program reported, and the line that raised it.
pub(crate) fn raised(metadata: &Record) -> Option<String> {
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let kind = text("exception_type")?;
    let message = text("exception_message").and_then(|message| message.lines().next());
    let frames =
        metadata.get("custom_metadata").and_then(|own| own.get("traceback")).and_then(Value::as_array);
    let place = frames.and_then(|frames| frames.last()).and_then(|frame| {
        let part = |key: &str| frame.get(key).and_then(Value::as_str).unwrap_or_default();
        let line = frame.get("line").and_then(Value::as_u64)?;
        let name = part("file").rsplit('/').next().unwrap_or_default();
        Some(format!(", at {name}:{line} {}", part("function")))
    });
    let message = message.map(|message| format!(": {message}")).unwrap_or_default();
    Some(format!("{kind}{message}{}", place.unwrap_or_default()))
}

/// Whether what held the memory when a request failed is requested, and not what lived at the end.
pub(crate) fn is_of_failure(cause: Option<Cause>) -> bool {
    matches!(cause, Some(Cause::MemoryError | Cause::OomException))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_not_to_be_released_for_a_device() {
        let gpu: Memory = "cuda:0".parse().unwrap();
        let mut story = ProcessStory::new(Ended::Failed, "train.py ran out of memory.".to_owned());
        story.cause = Some(Cause::OomException);
        story.failed_memory = Some(gpu);
        story.held = vec![Holder::of_place(Memory::Host, 1 << 30, "train.py:1 <module>")];
        assert_eq!(of_holder(&story), None);
        story.held.insert(0, Holder::of_place(gpu, 1 << 30, "train.py:9 collect"));
        assert!(of_holder(&story).unwrap().contains("train.py:9"));
        let kept = "the autograd graph of `losses`, a list of 4 tensors, local of evaluate() (grad_fn MeanBackward0)";
        story.held[0].kept_by = Some(kept.to_owned());
        assert_eq!(
            of_holder(&story).unwrap(),
            "keep `losses`, a list of 4 tensors, local of evaluate() without autograd graphs (no_grad(), detach() or item()): \
            frees up to 1.00 GiB of cuda:0 memory"
        );
    }
}
