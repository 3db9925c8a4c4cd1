//! massif's profiles: how large the heap was over time, and at some moments by stack. The peak is mostly one of those; the end seldom is.

use std::rc::Rc;

use stormlog_model::memory::Memory;
use stormlog_model::stacks::{FrameKind, Weight};

use crate::error::{ImportError, Position};
use crate::input::{ENDS_EARLY, File, Kept, Lines};
use crate::sink::{About, Held, ROOT, Sink, Site, Step};

const MOST_DEPTH: usize = 4096;
/// Rows of one tree.
const MOST_ROWS: usize = 1 << 20;

/// Trees that are held at a time: the peak's, the last one and the next.
const TREES: usize = 3;

/// One snapshot.
#[derive(Default)]
struct Snapshot {
    time: u64,
    bytes: u64,
    /// Depth, bytes and place of each row; none of a snapshot without its tree.
    tree: Vec<(usize, u64, String)>,
}

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let mut lines = file.lines()?;
    let (mut command, mut unit) = (String::new(), String::new());
    let (mut peak, mut last): (Option<Rc<Snapshot>>, Option<Rc<Snapshot>>) = (None, None);
    let (mut levels, mut kept): (Vec<(u64, u64)>, Kept) = Default::default();
    let mut now: Option<Snapshot> = None;
    loop {
        let next = lines.next()?.filter(|(_, is_whole)| *is_whole);
        let line = next.as_ref().map(|(line, _)| line.as_str());
        let is_new = line.is_none_or(|line| line.starts_with("snapshot="));
        if is_new && let Some(done) = now.take() {
            levels.push((done.time, done.bytes));
            kept.add(size_of::<(u64, u64)>());
            kept.check(file)?;
            let done = Rc::new(done);
            // The largest of those with a tree, which is the one that massif calls the peak.
            let rank = |one: &Snapshot| (!one.tree.is_empty(), one.bytes);
            if peak.as_ref().is_none_or(|peak| rank(&done) > rank(peak)) {
                peak = Some(Rc::clone(&done));
            }
            last = Some(done);
        }
        let Some(line) = line else { break };
        if line.starts_with("snapshot=") {
            now = Some(Snapshot::default());
        } else if let Some(snapshot) = &mut now {
            let number = |text: &str| {
                text.parse().map_err(|_| file.damaged("an amount is not a number", lines.position()))
            };
            match line.split_once('=') {
                Some(("time", text)) => snapshot.time = number(text)?,
                Some(("mem_heap_B", text)) => snapshot.bytes = number(text)?,
                Some(("heap_tree", kind)) if kind != "empty" => snapshot.tree = tree(file, &mut lines)?,
                _ => {}
            }
        } else if let Some(text) = line.strip_prefix("cmd: ") {
            text.clone_into(&mut command);
        } else if let Some(text) = line.strip_prefix("time_unit: ") {
            text.clone_into(&mut unit);
        }
    }
    let (Some(peak), Some(last)) = (peak, last) else {
        return Err(file.damaged("it has no whole snapshot", Position::End));
    };
    let command = command.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    sink.about(About { command, ..About::default() });
    let most = levels.iter().map(|(_, bytes)| *bytes).max().unwrap_or(peak.bytes);
    hold(&peak, most, sink, |peak| Held { peak, ..Held::default() });
    hold(&last, last.bytes, sink, |live| Held { live, ..Held::default() });
    if unit == "ms" {
        levels.iter().for_each(|(time, bytes)| sink.level(time.saturating_mul(1000), *bytes));
    } else {
        sink.note("massif counted instructions or bytes instead of time: record with --time-unit=ms for memory over time.".to_owned());
    }
    sink.note("massif stores no block counts, and only a total for small sites.".to_owned());
    if !peak.tree.is_empty() && most > peak.bytes {
        sink.note(
            "massif marks a peak only where memory is freed: what the heap grew beyond it is known only as a sum."
                .to_owned(),
        );
    }
    if lines.is_cut() {
        sink.note(ENDS_EARLY.to_owned());
    }
    if last.tree.is_empty() {
        sink.note(
            "What was held at the end is known only as a sum: record with --detailed-freq=1 for its stacks."
                .to_owned(),
        );
    }
    Ok(())
}

/// The rows of a tree: `n3: 138752 0x109207: keep (demo.cpp:7)`, each one blank deeper than its caller's callee. Ends with its last row.
fn tree(file: &File<'_>, lines: &mut Lines<'_>) -> Result<Vec<(usize, u64, String)>, ImportError> {
    let (mut rows, mut kept) = (Vec::new(), Kept::default());
    // Rows that are announced and have not come.
    let mut missing = 1u64;
    while missing > 0 && rows.len() < MOST_ROWS {
        let Some((line, true)) = lines.next()? else { break };
        let text = line.trim_start_matches(' ');
        let depth = (line.len() - text.len()).min(MOST_DEPTH);
        let row = text.strip_prefix('n').and_then(|text| {
            let (children, rest) = text.split_once(": ")?;
            let (bytes, place) = rest.split_once(' ')?;
            Some((children.parse::<u64>().ok()?, bytes.parse().ok()?, place.to_owned()))
        });
        let (children, bytes, place) =
            row.ok_or_else(|| file.damaged("a row of a tree is damaged", lines.position()))?;
        missing = (missing - 1).saturating_add(children);
        kept.add(TREES * (size_of::<(usize, u64, String)>() + place.len()));
        kept.check(file)?;
        rows.push((depth, bytes, place));
    }
    Ok(rows)
}

/// Hands over what each stack held, of `bytes` in all. A row holds what its callers hold together: what is left over is its own.
fn hold(snapshot: &Snapshot, bytes: u64, sink: &mut dyn Sink, held: impl Fn(Weight) -> Held) {
    let put = |sink: &mut dyn Sink, stack: &[Step<'_>], bytes: u64| {
        // massif's trees begin at the allocation; stacks begin at the outermost frame.
        let node = stack.iter().rev().fold(ROOT, |node, step| sink.node(node, *step));
        sink.hold(Site::of(Memory::Host, node), held(Weight { bytes, count: 0 }));
    };
    let remark = |function| Step::Code { kind: FrameKind::Remark, function, file: "", line: 0 };
    if snapshot.tree.is_empty() {
        return put(sink, &[remark("<stack not recorded>")], bytes);
    }
    let rows = &snapshot.tree;
    let own = own_bytes(rows);
    let mut stack: Vec<Step<'_>> = Vec::new();
    for ((depth, _, place), own) in rows.iter().zip(own) {
        stack.truncate(depth.saturating_sub(1));
        if *depth > 0 {
            stack.push(step(place));
        }
        if own > 0 {
            put(sink, &stack, own);
        }
    }
    let known = rows.first().map_or(0, |(_, bytes, _)| *bytes);
    if bytes > known {
        put(sink, &[remark("<stack not recorded>")], bytes - known);
    }
}

/// What each row holds beyond the rows below it.
fn own_bytes(rows: &[(usize, u64, String)]) -> Vec<u64> {
    let mut below = vec![0u64; MOST_DEPTH + 2];
    let mut own = vec![0; rows.len()];
    for (at, (depth, bytes, _)) in rows.iter().enumerate().rev() {
        own[at] = bytes.saturating_sub(std::mem::take(&mut below[depth + 1]));
        below[*depth] = below[*depth].saturating_add(*bytes);
    }
    own
}

/// `0x109207: keep(unsigned long) (demo.cpp:7)`, `0x48F97B9: ??? (in /usr/lib/libstdc++.so.6)`, or a remark.
fn step(place: &str) -> Step<'_> {
    let remark = Step::Code { kind: FrameKind::Remark, function: place, file: "", line: 0 };
    let Some((address, rest)) = place.split_once(": ").filter(|(address, _)| address.starts_with("0x"))
    else {
        return remark;
    };
    let Some((function, at)) = rest.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (")) else {
        return Step::Code { kind: FrameKind::Native, function: rest, file: "", line: 0 };
    };
    let function = if function == "???" { address } else { function };
    let (file, line) = match at.strip_prefix("in ") {
        Some(library) => (library, 0),
        None => at.rsplit_once(':').map_or((at, 0), |(file, line)| (file, line.parse().unwrap_or(0))),
    };
    Step::Code { kind: FrameKind::Native, function, file, line }
}
