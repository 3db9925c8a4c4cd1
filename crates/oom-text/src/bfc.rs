//! The dump of the BFC allocator ("best fit with coalescing"), which TensorFlow and JAX share: one line that it ran out of memory, then at log
//! level INFO its bins, its chunks by address, a summary of the sizes in use and its counters, then a picture of a hundred cells.
//!
//! Versions differ in the words between the figures (2017: `Chunk at 0x…`, since 2019: `InUse at …`) and in their units (TensorFlow 2.21
//! and XLA of 2026 write `2.80GiB`, older ones count bytes); all are read.

use crate::failure::{Bin, Chunk, Failure, Framework, Holder, SizeCount};
use crate::failure_list::FailureList;
use crate::line::{Line, after, between, name, number, size};

/// The bounds of one failure. The allocator has 21 bins.
const MAX_BINS: usize = 64;
const MAX_CHUNKS: usize = 16 << 10;
pub(crate) const MAX_SIZES: usize = 4 << 10;
pub(crate) const MAX_HOLDERS: usize = 1 << 10;
/// Cells of the picture.
const CELLS: usize = 100;

/// Follows one dump.
#[derive(Default)]
pub(crate) struct Reader {
    in_dump: bool,
    in_stats: bool,
}

impl Reader {
    /// Whether the line belongs to a dump.
    pub fn line(&mut self, line: &Line<'_>, failures: &mut FailureList) -> bool {
        if let Some(failure) = began(line) {
            self.in_dump = true;
            self.in_stats = false;
            failures.begin(failure);
            return true;
        }
        let Some(failure) = failures.last().filter(|_| self.in_dump) else { return false };
        if let Some(cells) = picture(line.message) {
            failure.free_cells = Some(cells);
            // The picture is the last line of a report.
            self.in_dump = false;
            return true;
        }
        if self.in_stats && stat(line.raw, failure) {
            return true;
        }
        let text = line.message;
        if let Some(rest) = text.strip_prefix("Stats:") {
            self.in_stats = true;
            return stat(rest, failure) || rest.trim().is_empty();
        }
        bin(text, failure)
            || chunk(text, failure)
            || size_count(text, failure)
            || pool(text, failure)
            || line.is_bfc
    }
}

/// `Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)requested by op X`.
fn began(line: &Line<'_>) -> Option<Failure> {
    let text = after(line.raw, "Allocator (")?;
    let (allocator, rest) = text.split_once(") ran out of memory trying to allocate ")?;
    let framework = if line.raw.contains("external/local_xla") || line.raw.contains("tensorflow/") {
        Some(Framework::TensorFlow)
    } else {
        None
    };
    // The words without a size are the format string, in a program or in its source.
    let requested = between(rest, "(rounded to ", ")").and_then(number).or_else(|| size(rest))?;
    Some(Failure {
        line: line.number,
        framework,
        allocator: name(allocator),
        requested: Some(requested),
        requester: after(rest, "requested by op ")
            .and_then(|text| name(text.split('\n').next().unwrap_or(""))),
        is_harmless: rest.contains("this is not a failure"),
        ..Failure::default()
    })
}

/// `Bin (256): Total Chunks: 3, Chunks in use: 2. 1.0KiB allocated for chunks. 512B in use in bin. …`.
fn bin(text: &str, failure: &mut Failure) -> bool {
    let parse = || {
        let (size_text, rest) = text.strip_prefix("Bin (")?.split_once("):")?;
        let (before_allocated, rest_after) = rest.split_once(" allocated for chunks.")?;
        let in_use_text = rest_after.split_once(" in use in bin.")?.0;
        let last = |text: &str| text.rsplit([' ', '\t']).next().and_then(size);
        Some(Bin {
            size: number(size_text)?,
            chunks: after(rest, "Total Chunks:").and_then(number)?,
            chunks_in_use: after(rest, "Chunks in use:").and_then(number)?,
            bytes: last(before_allocated)?,
            bytes_in_use: last(in_use_text)?,
        })
    };
    let Some(bin) = parse() else { return false };
    if failure.bins.len() < MAX_BINS {
        failure.bins.push(bin);
    }
    true
}

/// `InUse at 7f1d4c16bf00 of size 1441792 next 402`, `Free  at …`, `Chunk at 0xb05e40000 of size 1280`.
fn chunk(text: &str, failure: &mut Failure) -> bool {
    let parse = || {
        let (kind, rest) = text.split_once(" at ")?;
        let in_use = match kind.trim() {
            "InUse" | "Chunk" => true,
            "Free" => false,
            _ => return None,
        };
        let (address, rest) = rest.split_once(" of size ")?;
        let address = u64::from_str_radix(address.trim().trim_start_matches("0x"), 16).ok()?;
        let op = between(rest, " by op ", " action_count ").or_else(|| annotation(rest));
        Some((Chunk { address, size: number(rest)?, in_use }, op.and_then(name)))
    };
    let Some((chunk, op)) = parse() else { return false };
    if chunk.in_use { &mut failure.in_use } else { &mut failure.free }.add(chunk.size);
    if failure.chunks.len() < MAX_CHUNKS {
        failure.chunks.push(chunk);
    } else {
        failure.chunks_not_kept += 1;
    }
    if let Some(op) = op.filter(|_| chunk.in_use) {
        hold(failure, chunk.size, op);
    }
    true
}

/// XLA's note on a chunk, `allocation_annotation xla.execute{executable=jit_step} next 3`: the executable where it is one.
fn annotation(text: &str) -> Option<&str> {
    let note = after(text, " allocation_annotation ")?;
    let note = note.split_once(" next ").map_or(note, |(note, _)| note);
    Some(between(note, "executable=", "}").unwrap_or(note))
}

/// Adds to what an operation holds.
fn hold(failure: &mut Failure, bytes: u64, op: String) {
    if let Some(holder) = failure.holders.iter_mut().find(|holder| holder.name == op) {
        holder.bytes = holder.bytes.saturating_add(bytes);
    } else if failure.holders.len() < MAX_HOLDERS {
        failure.holders.push(Holder { bytes, name: op, ..Holder::default() });
    }
}

/// `58 Chunks of size 256 totalling 14.5KiB`.
fn size_count(text: &str, failure: &mut Failure) -> bool {
    let parse = || {
        let (count, rest) = text.split_once(" Chunks of size ")?;
        Some(SizeCount { size: number(rest)?, chunks: count.trim().parse().ok()? })
    };
    let Some(count) = parse() else { return false };
    if failure.in_use_sizes.len() < MAX_SIZES {
        failure.in_use_sizes.push(count);
    }
    true
}

/// `Next region of size 2097152`, `Total bytes in pool: 1148427008 memory_limit_: 1843986432 available bytes: 695559424 …`, the same as
/// `Total size in pool: 1.07GiB memory_limit_: 1.72GiB available size: 663.34MiB …`, and XLA's summary.
fn pool(text: &str, failure: &mut Failure) -> bool {
    if text.starts_with("Next region of size ") {
        failure.pool.regions = failure.pool.regions.saturating_add(1);
        return true;
    }
    if let Some(summary) = text.strip_prefix("Allocator memory summary:") {
        xla_summary(summary, failure);
        return true;
    }
    let of = |keys: &[&str]| keys.iter().find_map(|key| after(text, key));
    let taken = of(&["Total bytes in pool:", "Total size in pool:", "total_region_allocated_bytes_:"]);
    let Some(taken) = taken else { return false };
    failure.pool.taken = size(taken);
    failure.pool.limit = of(&["memory_limit_:"]).and_then(size);
    failure.pool.growable = of(&["available bytes:", "available size:"]).and_then(size);
    true
}

/// `rounded request 1.00TiB, total free in pool 2.55GiB, largest free chunk usable by lower end 2.55GiB, unallocated bytes 0B, pool size 2.80GiB, pool
/// limit 2.80GiB`. A chunk at the other end of the pool is free and cannot be used.
fn xla_summary(text: &str, failure: &mut Failure) {
    let of = |key: &str| after(text, key).and_then(size);
    failure.pool.taken = of(", pool size ");
    failure.pool.limit = of(", pool limit ");
    failure.pool.growable = of(", unallocated bytes ");
    failure.pool.largest_usable = of(" usable by lower end ").or_else(|| of(" usable by upper end "));
}

/// `Limit:      1843986432`, with or without something before it.
pub(crate) fn stat(text: &str, failure: &mut Failure) -> bool {
    let mut words = text.split_whitespace().rev();
    let (Some(value), Some(key)) = (words.next().and_then(size), words.next()) else {
        return false;
    };
    let stats = &mut failure.stats;
    let field = match key {
        "Limit:" => &mut stats.limit,
        "InUse:" => &mut stats.in_use,
        "MaxInUse:" => &mut stats.max_in_use,
        "NumAllocs:" => &mut stats.allocations,
        "MaxAllocSize:" => &mut stats.largest_allocation,
        "LargestFreeBlock:" => &mut stats.largest_free,
        "Reserved:" | "PeakReserved:" | "PeakAllocated:" => return true,
        _ => return false,
    };
    *field = Some(value);
    true
}

/// A hundred cells: `*` holds memory in use, `x` only the rounding of a request, `_` nothing. The free ones.
fn picture(text: &str) -> Option<u32> {
    let cells = text.trim();
    let is_picture = cells.len() == CELLS && cells.bytes().all(|cell| matches!(cell, b'*' | b'x' | b'_'));
    is_picture.then(|| cells.bytes().map(|cell| u32::from(cell == b'_')).sum())
}
