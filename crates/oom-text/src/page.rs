//! A failure in words, answer first: what asked, what was free, why that was not enough, what holds the rest, what to change.

use std::fmt::Write as _;

use stormlog_model::text::format_bytes;

use crate::failure::{Failure, Framework};
use crate::judge::Verdict;
use crate::{cuda_async, xla};

/// Rows of a list in a page.
const ROWS: usize = 8;
/// TensorFlow's name for the pool that it keeps of the host's memory with oneDNN.
const HOST_POOL: &str = "mklcpu";

/// The failure that ended the program as far as the text shows: the last one that its caller did not survive.
#[must_use]
pub fn decisive(failures: &[Failure]) -> Option<&Failure> {
    failures.iter().rev().find(|failure| !failure.is_harmless).or(failures.last())
}

/// One sentence about the failure that decided.
#[must_use]
pub fn summary(failures: &[Failure]) -> Option<String> {
    let failure = decisive(failures)?;
    Some(format!("{} {}", asked(failure), why(failure)))
}

/// The page about all failures of a text. Texts out of the log are in it as they are: the caller makes them inert.
#[must_use]
pub fn page(failures: &[Failure]) -> String {
    let Some(failure) = decisive(failures) else { return String::new() };
    let mut text = format!("{}\n{}\n", asked(failure), why(failure));
    if let Some(advice) = advice(failure) {
        let _ = writeln!(text, "Try: {advice}");
    }
    if !failure.is_mixed() {
        holders(failure, &mut text);
        program(failure, &mut text);
        pool(failure, &mut text);
        bins(failure, &mut text);
    }
    others(failures, failure, &mut text);
    text
}

/// What requested how much.
fn asked(failure: &Failure) -> String {
    let requester = failure.requester.as_deref().unwrap_or("A program");
    let size = failure.requested.map_or_else(|| "memory".to_owned(), format_bytes);
    let mut text = format!("{requester} requested {size}");
    if let Some(tensor) = &failure.tensor {
        let _ = write!(text, " (shape [{}], type {})", tensor.shape, tensor.dtype);
    }
    if let Some(allocator) = &failure.allocator {
        let _ = write!(text, " from the allocator {allocator}");
    }
    if let Some(device) = &failure.device {
        let _ = write!(text, " on {device}");
    }
    text.push_str(if failure.is_harmless { " and continued with less." } else { " and failed." });
    text
}

/// Why it was not served, with the figures that show it.
fn why(failure: &Failure) -> String {
    let free = failure.free();
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "an unknown size".to_owned(), format_bytes);
    match failure.verdict() {
        Verdict::TooLarge => match free.total() {
            Some(total) => {
                format!("Too large: {} was free in total{}.", format_bytes(total), of_limit(failure))
            }
            None => format!("Too large: more than could be given out{}.", of_limit(failure)),
        },
        Verdict::Fragmented => format!(
            "Fragmentation: {} was free in total, but the largest free block was {}.",
            size(free.total()),
            size(free.largest)
        ),
        Verdict::DriverRefused if is_host(failure) => format!(
            "The system refused: the pool could grow by {} more, but a limit of the process, its container or the machine was reached.",
            size(free.growable)
        ),
        Verdict::DriverRefused => format!(
            "The driver refused: the pool could grow by {} more, but the device had no memory left; other processes or libraries hold it.",
            size(free.growable)
        ),
        Verdict::Unknown => unknown(failure),
    }
}

fn of_limit(failure: &Failure) -> String {
    let limit = failure.pool.limit.or(failure.stats.limit);
    limit.map_or_else(String::new, |limit| format!(", of a limit of {}", format_bytes(limit)))
}

/// Whether the memory is the host's: by TensorFlow's names for plain `malloc` and for its pool, or from XLA's CPU client.
fn is_host(failure: &Failure) -> bool {
    let is_xla = failure.message.as_deref().is_some_and(|message| message.starts_with(xla::ON_HOST));
    match failure.allocator.as_deref() {
        Some(allocator) => matches!(allocator, "cpu" | HOST_POOL),
        None => is_xla,
    }
}

/// Memory inside a core of a TPU, which a kernel uses while it runs.
fn is_vmem(failure: &Failure) -> bool {
    failure.device.as_deref() == Some("vmem")
}

/// Why the text does not decide.
fn unknown(failure: &Failure) -> String {
    if failure.is_mixed() {
        return "Undecided: the dumps of several processes are mixed in this log.".to_owned();
    }
    if is_host(failure) && failure.allocator.as_deref() != Some(HOST_POOL) {
        return "The host allocator failed; it keeps no pool, so fragmentation is not the cause.".to_owned();
    }
    if let Some(free) = failure.free().total() {
        return format!(
            "Undecided: {} was free in total; the log has no size of the largest free block.",
            format_bytes(free)
        );
    }
    match failure.free_cells {
        Some(0) => {
            "Undecided: none of the 100 cells of the pool map is free; the log has no sizes.".to_owned()
        }
        Some(cells) => {
            format!("Undecided: {cells} of 100 cells of the pool map are free; the log has no sizes.")
        }
        None => "Undecided: the log has the request, but not the state of the allocator.".to_owned(),
    }
}

/// What to change, for this verdict and library.
#[must_use]
pub fn advice(failure: &Failure) -> Option<&'static str> {
    let is_jax = failure.framework == Some(Framework::Jax);
    if failure.is_autotuning {
        return Some(
            "let the compiler try less: XLA_FLAGS=--xla_gpu_autotune_level=0 (slower kernels), or --xla_gpu_strict_conv_algorithm_picker=false for convolutions; free or delete arrays before the function is compiled; or a smaller batch.",
        );
    }
    match failure.verdict() {
        _ if failure.is_mixed() => {
            Some("let each process write to a log of its own, and explain one of them.")
        }
        Verdict::Fragmented if is_host(failure) => {
            Some("set TF_ENABLE_ONEDNN_OPTS=0, which keeps no pool; keep tensor shapes fixed.")
        }
        _ if is_host(failure) => {
            Some("a smaller batch or smaller tensors; stormlog info shows the limits that hold here.")
        }
        Verdict::TooLarge if is_vmem(failure) => Some(
            "smaller blocks in the Pallas kernel, or a higher limit: LIBTPU_INIT_ARGS=--xla_tpu_scoped_vmem_limit_kib=N.",
        ),
        Verdict::TooLarge if is_jax => Some(
            "a smaller batch; jax.checkpoint (remat) on the operations with the largest buffers; bfloat16; donate arguments (jax.jit, donate_argnums); or shard over more devices.",
        ),
        Verdict::TooLarge => Some(
            "a smaller batch or shorter sequences; lower precision; gradient checkpointing; or raise the allocator's limit if the device has more memory.",
        ),
        Verdict::Fragmented if is_jax => Some(
            "allocate the largest arrays first, keep shapes fixed, or set XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async, which moves free memory together.",
        ),
        Verdict::Fragmented if failure.pool.regions > 1 => Some(
            "turn memory growth off (its regions never merge) or set TF_GPU_ALLOCATOR=cuda_malloc_async; keep tensor shapes fixed.",
        ),
        Verdict::Fragmented => Some("set TF_GPU_ALLOCATOR=cuda_malloc_async; keep tensor shapes fixed."),
        Verdict::DriverRefused => Some(
            "look for other processes on the device (nvidia-smi, stormlog top); let each take a part (memory limit of the logical device, XLA_PYTHON_CLIENT_MEM_FRACTION).",
        ),
        // This allocator has no chunks to list.
        Verdict::Unknown
            if failure.allocator.as_deref().is_some_and(|name| name.starts_with(cuda_async::NAME)) =>
        {
            None
        }
        Verdict::Unknown if failure.bins.is_empty() && failure.chunks.is_empty() => Some(
            "run once with TF_CPP_MIN_LOG_LEVEL=0 (TensorFlow and JAX): the allocator then lists its chunks in the log.",
        ),
        Verdict::Unknown => None,
    }
}

fn holders(failure: &Failure, text: &mut String) {
    if !failure.holders.is_empty() {
        text.push_str("\nLargest holders\n");
        for holder in failure.holders.iter().take(ROWS) {
            let _ = write!(text, "  {:>11}  {}", format_bytes(holder.bytes), holder.name);
            for detail in [&holder.shape, &holder.source].into_iter().flatten() {
                let _ = write!(text, "  {detail}");
            }
            text.push('\n');
        }
    }
    let sizes = failure.largest_sizes();
    if !sizes.is_empty() {
        text.push_str("\nChunks in use by size\n");
        for size in sizes.iter().take(ROWS) {
            let _ = writeln!(
                text,
                "  {:>11}  {} × {}",
                format_bytes(size.bytes()),
                size.chunks,
                format_bytes(size.size)
            );
        }
        let rest = sizes.iter().skip(ROWS).map(|size| size.bytes()).fold(0, u64::saturating_add);
        if rest > 0 {
            let _ = writeln!(text, "  {:>11}  in {} other sizes", format_bytes(rest), sizes.len() - ROWS);
        }
    }
}

/// What the compiler planned, which is known before a program runs.
fn program(failure: &Failure, text: &mut String) {
    let program = &failure.program;
    let rows = [
        ("arguments", program.arguments),
        ("constants", program.constants),
        ("outputs", program.outputs),
        ("temporaries", program.temporaries),
        ("in total", program.total),
        ("of it between buffers", program.fragmentation),
    ];
    if rows.iter().any(|(_, bytes)| bytes.is_some()) {
        text.push_str("\nCompiled program\n");
    }
    for (name, bytes) in rows.iter().filter_map(|(name, bytes)| bytes.map(|bytes| (name, bytes))) {
        let _ = writeln!(text, "  {:>11}  {name}", format_bytes(bytes));
    }
}

fn pool(failure: &Failure, text: &mut String) {
    let (stats, free) = (&failure.stats, failure.free());
    let rows = [
        ("limit", failure.pool.limit.or(stats.limit)),
        ("taken from the driver", failure.pool.taken),
        ("in use", stats.in_use),
        ("most in use at once", stats.max_in_use),
        ("free in the pool", free.in_pool),
        ("largest free block", free.largest),
        ("may still be taken", free.growable),
        ("largest allocation so far", stats.largest_allocation),
    ];
    if rows.iter().any(|(_, bytes)| bytes.is_some()) {
        text.push_str("\nAllocator\n");
    }
    for (name, bytes) in rows.iter().filter_map(|(name, bytes)| bytes.map(|bytes| (name, bytes))) {
        let _ = writeln!(text, "  {:>11}  {name}", format_bytes(bytes));
    }
    if failure.pool.regions > 1 {
        let _ = writeln!(
            text,
            "  {:>11}  regions (the pool grew; a chunk never spans two)",
            failure.pool.regions
        );
    }
}

fn bins(failure: &Failure, text: &mut String) {
    let mut used = failure.bins.iter().filter(|bin| bin.chunks > 0).peekable();
    if used.peek().is_none() {
        return;
    }
    text.push_str("\nBins (chunks from this size)\n");
    for bin in used {
        let free = bin.bytes.saturating_sub(bin.bytes_in_use);
        let _ = writeln!(
            text,
            "  {:>11}  {} in use ({}), {} free ({})",
            format_bytes(bin.size),
            bin.chunks_in_use,
            format_bytes(bin.bytes_in_use),
            bin.chunks.saturating_sub(bin.chunks_in_use),
            format_bytes(free)
        );
    }
}

fn others(failures: &[Failure], shown: &Failure, text: &mut String) {
    let harmless = failures.iter().filter(|failure| failure.is_harmless).count();
    let real = failures.len() - harmless - usize::from(!shown.is_harmless);
    if real > 0 {
        let are = if real == 1 { "allocation is" } else { "allocations are" };
        let _ = writeln!(
            text,
            "\n{real} earlier failed {are} in the text; this is the last one (line {}).",
            shown.line
        );
    }
    if harmless > 0 && !shown.is_harmless {
        let times = if harmless == 1 { "time" } else { "times" };
        let _ = writeln!(
            text,
            "\n{harmless} {times} the allocator ran short and its caller continued with less memory."
        );
    }
}
