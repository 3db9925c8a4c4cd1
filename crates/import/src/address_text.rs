//! Heap profiles as text with addresses: jemalloc's `heap_v2` and gperftools' `heap profile:`. Both end with the memory map.
//!
//! Sampled ones hold what was sampled; each stack is scaled as `jeprof` and `google-pprof` do, so that the numbers are those of their reports.

use stormlog_model::memory::Memory;
use stormlog_model::stacks::Weight;

use crate::error::{ImportError, Position};
use crate::input::{ENDS_EARLY, File, Kept, Lines};
use crate::maps::Maps;
use crate::recognise::Format;
use crate::sink::{About, Held, ROOT, Sink, Site, Step};

const MOST_FRAMES: usize = 4096;
const MAP: &str = "MAPPED_LIBRARIES:";
/// A stack of jemalloc begins in jemalloc itself, which gperftools leaves out of its own.
const ALLOCATOR: &str = "libjemalloc";
/// How the first line of Go's text ends.
const GO: &str = "@ heap/";

/// A stack, the innermost address first, and what it held.
struct Row {
    stack: Vec<u64>,
    live: Weight,
    total: Weight,
}

#[derive(Default)]
struct Rows {
    list: Vec<Row>,
    kept: Kept,
}

impl Rows {
    fn push(&mut self, file: &File<'_>, row: Row) -> Result<(), ImportError> {
        self.kept.add(size_of::<Row>());
        self.kept.add_list::<u64>(row.stack.capacity());
        self.list.push(row);
        self.kept.check(file)
    }
}

pub(crate) fn read(file: &File<'_>, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let mut lines = file.lines()?;
    let Some((head, is_whole)) = lines.next()? else {
        return Err(file.nothing("without content: record again"));
    };
    // Half a line may have half a sampling period.
    if !is_whole {
        return Err(file.damaged("it ends within its first line", Position::End));
    }
    let mut rows = Rows::default();
    let (period, has_map) = match file.format {
        Format::Jemalloc => {
            let period = head.strip_prefix("heap_v2/").and_then(|text| text.trim().parse().ok());
            let period = period
                .ok_or_else(|| file.damaged("its sampling period is not a number", lines.position()))?;
            (Some(period), jemalloc_rows(file, &mut lines, &mut rows)?)
        }
        _ if head.contains(GO) => {
            return Err(file.nothing(
                "that Go wrote as text, which is not read; save it without `debug=1`, as a pprof profile",
            ));
        }
        _ => {
            let period = head.rsplit_once("@ heap_v2/").and_then(|(_, text)| text.trim().parse().ok());
            (period, gperftools_rows(file, &mut lines, &mut rows)?)
        }
    };
    let mut maps = Maps::default();
    // Half a line has half a path.
    while let Some((line, true)) = lines.next()? {
        maps.line(&line);
    }
    sink.about(About::default());
    maps.load(sink);
    // jemalloc counts what was allocated in all only with `prof_accum`.
    let has_totals = rows.list.iter().any(|row| row.total.count > 0);
    for Row { stack, live, total } in rows.list {
        let inner = stack.iter().take_while(|address| maps.is_in(**address, ALLOCATOR)).count();
        // A stack of nothing else is kept as it is.
        let stack = stack.get(inner..).filter(|stack| !stack.is_empty()).unwrap_or(&stack);
        let node = stack.iter().rev().fold(ROOT, |node, address| sink.node(node, Step::Address(*address)));
        let total = has_totals.then(|| scaled(total, period));
        sink.hold(Site::of(Memory::Host, node), Held::at_one_moment(scaled(live, period), total));
    }
    sink.note(format!(
        "A {} is one moment: what was held then is shown as the peak and as the end.",
        file.format
    ));
    if lines.is_cut() || !has_map {
        sink.note(ENDS_EARLY.to_owned());
    }
    if let Some(period) = period.filter(|period| *period > 1) {
        let every = stormlog_model::format_bytes(period);
        sink.note(format!("The profile was sampled about every {every}: the numbers are estimates."));
    }
    Ok(())
}

/// `@ address…`, then one line for all threads (`t*`) and one for each thread. Whether the memory map follows.
fn jemalloc_rows(file: &File<'_>, lines: &mut Lines<'_>, rows: &mut Rows) -> Result<bool, ImportError> {
    while let Some((line, is_whole)) = lines.next()? {
        let text = line.trim();
        if text == MAP || !is_whole {
            return Ok(text == MAP);
        }
        if let Some(addresses) = text.strip_prefix('@') {
            let stack = stack(addresses)
                .ok_or_else(|| file.damaged("an address is not a number", lines.position()))?;
            rows.push(file, Row { stack, live: Weight::default(), total: Weight::default() })?;
        } else if let (Some(numbers), Some(row)) = (text.strip_prefix("t*:"), rows.list.last_mut()) {
            let parsed = amounts(numbers)
                .ok_or_else(|| file.damaged("an amount is not a number", lines.position()))?;
            (row.live, row.total) = parsed;
        }
    }
    Ok(false)
}

/// `objects: bytes [objects: bytes] @ address…`: held, and allocated in all. Whether the memory map follows.
fn gperftools_rows(file: &File<'_>, lines: &mut Lines<'_>, rows: &mut Rows) -> Result<bool, ImportError> {
    while let Some((line, is_whole)) = lines.next()? {
        let text = line.trim();
        if text == MAP || !is_whole {
            return Ok(text == MAP);
        }
        if text.is_empty() {
            continue;
        }
        let row = text.split_once('@').and_then(|(numbers, addresses)| {
            let (live, total) = amounts(numbers)?;
            Some(Row { stack: stack(addresses)?, live, total })
        });
        rows.push(file, row.ok_or_else(|| file.damaged("a stack is damaged", lines.position()))?)?;
    }
    Ok(false)
}

fn stack(text: &str) -> Option<Vec<u64>> {
    let address = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    text.split_whitespace().take(MOST_FRAMES).map(address).collect()
}

/// `objects: bytes [objects: bytes]`.
fn amounts(text: &str) -> Option<(Weight, Weight)> {
    let weight = |text: &str| {
        let (count, bytes) = text.split_once(':')?;
        Some(Weight { bytes: bytes.trim().parse().ok()?, count: count.trim().parse().ok()? })
    };
    let (live, total) = text.split_once('[')?;
    Some((weight(live)?, weight(total.trim().strip_suffix(']')?)?))
}

/// What a sampled amount stands for: a block of `s` bytes was recorded with probability 1 − e^(−s/period).
fn scaled(weight: Weight, period: Option<u64>) -> Weight {
    let Some(period) = period.filter(|period| *period > 1) else { return weight };
    if weight.count == 0 {
        return weight;
    }
    let mean = weight.bytes as f64 / weight.count as f64;
    let chance = -f64::exp_m1(-mean / period as f64);
    let scale = |value: u64| (value as f64 / chance.max(f64::MIN_POSITIVE)).round() as u64;
    Weight { bytes: scale(weight.bytes), count: scale(weight.count) }
}
