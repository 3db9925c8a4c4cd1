//! What an allocator's report says, for the program it is about: TensorFlow's and JAX's exceptions, and the log beside them.

use pyo3::prelude::*;
use stormlog_model::format_bytes;
use stormlog_oom_text::{Failure, advice, decisive, page, read, summary};

/// Rows of holders that a bundle gets.
const HOLDERS: usize = 8;

/// The failure that decided, out of all that a text reports.
#[pyclass(frozen, get_all, module = "stormlog._native.oom")]
struct AllocationFailure {
    /// `too_large`, `fragmented`, `driver_refused` or `unknown`.
    verdict: String,
    sentence: String,
    page: String,
    allocator: Option<String>,
    device: Option<String>,
    requester: Option<String>,
    requested_bytes: Option<u64>,
    free_bytes: Option<u64>,
    largest_free_bytes: Option<u64>,
    limit_bytes: Option<u64>,
    in_use_bytes: Option<u64>,
    /// What holds memory by name, its bytes, and what more is known.
    holders: Vec<(String, u64, Option<String>)>,
    /// The same by the size of chunks, which have no name.
    chunk_sizes: Vec<(String, u64, Option<String>)>,
    remedies: Vec<String>,
    /// How many failures the text reports.
    failures: usize,
}

/// What a text reports of failed allocations; `None` where it reports none.
#[pyfunction]
fn explain_allocation_failure(py: Python<'_>, text: &str) -> Option<AllocationFailure> {
    py.detach(|| {
        let failures = read(text);
        let failure = decisive(&failures)?;
        Some(AllocationFailure {
            verdict: failure.verdict().name().to_owned(),
            sentence: summary(&failures).unwrap_or_default(),
            page: page(&failures),
            allocator: failure.allocator.clone(),
            device: failure.device.clone(),
            requester: failure.requester.clone(),
            requested_bytes: failure.requested,
            free_bytes: failure.free().total(),
            largest_free_bytes: failure.free().largest,
            limit_bytes: failure.pool.limit.or(failure.stats.limit),
            in_use_bytes: failure.stats.in_use,
            holders: holders(failure),
            chunk_sizes: chunk_sizes(failure),
            remedies: advice(failure).into_iter().map(str::to_owned).collect(),
            failures: failures.len(),
        })
    })
}

fn holders(failure: &Failure) -> Vec<(String, u64, Option<String>)> {
    let named = failure.holders.iter().map(|holder| {
        let note = holder.source.clone().or_else(|| holder.shape.clone());
        (holder.name.clone(), holder.bytes, note)
    });
    named.take(HOLDERS).collect()
}

fn chunk_sizes(failure: &Failure) -> Vec<(String, u64, Option<String>)> {
    let sizes = failure.largest_sizes().into_iter().take(HOLDERS);
    sizes
        .map(|size| {
            let place = format!("chunks of {}", format_bytes(size.size));
            (place, size.bytes(), Some(format!("{} in use", size.chunks)))
        })
        .collect()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<AllocationFailure>()?;
    module.add_function(wrap_pyfunction!(explain_allocation_failure, module)?)
}
