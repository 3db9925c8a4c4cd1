//! A CUDA out-of-memory error for the program it happens in: the names of its files, the words for GPU memory, and why a request
//! failed.
//!
//! Called while the error is on its way to the user: imports nothing, calls nothing of Python's but the snapshot's own
//! dictionaries, and keeps none of them.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stormlog_catalog::cuda_oom::{CATEGORIES, FACTS, SNAPSHOT};
use stormlog_torch::{
    AllocatorSettings, BlockState, CUBLAS_WORKSPACE, CUBLAS_WORKSPACE_HOPPER, Category, FailedRequest,
    PoolId, ProcessLimit, StackId, TrackedBlock, TrackedSegment,
};

/// Counters at the failure, beside the snapshot; `None` is unknown.
#[pyclass(frozen, get_all)]
struct CudaCounters {
    segment_bytes: Option<u64>,
    allowed_bytes: Option<u64>,
    device_free_bytes: Option<u64>,
    device_total_bytes: Option<u64>,
    other_processes_bytes: Option<u64>,
    allocated_bytes: Option<u64>,
    reserved_bytes: Option<u64>,
}

#[pymethods]
impl CudaCounters {
    #[new]
    #[pyo3(signature = (*, segment_bytes=None, allowed_bytes=None, device_free_bytes=None, device_total_bytes=None,
        other_processes_bytes=None, allocated_bytes=None, reserved_bytes=None))]
    fn new(
        segment_bytes: Option<u64>,
        allowed_bytes: Option<u64>,
        device_free_bytes: Option<u64>,
        device_total_bytes: Option<u64>,
        other_processes_bytes: Option<u64>,
        allocated_bytes: Option<u64>,
        reserved_bytes: Option<u64>,
    ) -> Self {
        CudaCounters {
            segment_bytes,
            allowed_bytes,
            device_free_bytes,
            device_total_bytes,
            other_processes_bytes,
            allocated_bytes,
            reserved_bytes,
        }
    }
}

/// Why a request failed.
#[pyclass(frozen, get_all)]
struct CudaOomVerdict {
    cause: &'static str,
    sentence: String,
    remedies: Vec<String>,
    requested_bytes: u64,
    largest_usable_free_bytes: u64,
    usable_free_bytes: u64,
}

/// By a snapshot that was taken at the failure; `None` where the size of the request is unknown.
#[pyfunction]
fn explain_cuda_oom(
    snapshot: &Bound<'_, PyDict>,
    device: usize,
    counters: &CudaCounters,
    torch_version: Option<&str>,
) -> PyResult<Option<CudaOomVerdict>> {
    let failed = failed_event(snapshot, device)?;
    let size = failed.as_ref().map(|event| number(event, "size")).transpose()?.flatten();
    let Some(request) = size.filter(|size| *size > 0).or(counters.segment_bytes) else { return Ok(None) };
    let (stream, pool) = match &failed {
        Some(event) => (number(event, "stream")?.unwrap_or(0), pool(event, "pool_id")?),
        None => (0, (0, 0)),
    };
    let settings = settings(snapshot)?;
    let segments = segments(snapshot, device, request)?;
    let mut facts = FailedRequest::new(request, (stream, pool), &segments, &settings);
    facts.segment_bytes = counters.segment_bytes.unwrap_or(facts.segment_bytes);
    facts.device_free_bytes = counters.device_free_bytes;
    facts.other_processes_bytes = counters.other_processes_bytes;
    facts.limit = counters.allowed_bytes.map(ProcessLimit::Exactly);
    if segments.is_empty() {
        // An allocator that does not list its blocks (cudaMallocAsync) still counts them.
        facts.allocated_bytes = counters.allocated_bytes.unwrap_or(0);
        facts.decomposition.reserved_bytes = counters.reserved_bytes.unwrap_or(facts.allocated_bytes);
    }
    let used = counters.device_total_bytes.zip(counters.device_free_bytes);
    let reserved = facts.decomposition.reserved_bytes;
    facts.decomposition.outside_bytes =
        used.map(|(total, free)| total.saturating_sub(free).saturating_sub(reserved));
    Ok(Some(CudaOomVerdict {
        cause: facts.cause().name(),
        sentence: facts.sentence(),
        remedies: facts.remedies(torch_version),
        requested_bytes: request,
        largest_usable_free_bytes: facts.largest_usable_free_bytes,
        usable_free_bytes: facts.usable_free_bytes,
    }))
}

/// The last out-of-memory event of a device's trace.
fn failed_event<'py>(snapshot: &Bound<'py, PyDict>, device: usize) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(traces) = snapshot.get_item("device_traces")?.filter(|traces| !traces.is_none()) else {
        return Ok(None);
    };
    if device >= traces.len()? {
        return Ok(None);
    }
    let trace = traces.get_item(device)?;
    for index in (0..trace.len()?).rev() {
        let event = trace.get_item(index)?.cast_into::<PyDict>()?;
        if text(&event, "action")?.as_deref() == Some("oom") {
            return Ok(Some(event));
        }
    }
    Ok(None)
}

fn segments(snapshot: &Bound<'_, PyDict>, device: usize, request: u64) -> PyResult<Vec<TrackedSegment>> {
    let mut found = Vec::new();
    let Some(segments) = snapshot.get_item("segments")? else { return Ok(found) };
    for segment in segments.try_iter()? {
        let segment = segment?.cast_into::<PyDict>()?;
        if number(&segment, "device")?.is_some_and(|number| number != device as u64) {
            continue;
        }
        let base = number(&segment, "address")?.unwrap_or(0);
        let small = match text(&segment, "segment_type")?.as_deref() {
            Some(kind) => kind == "small",
            None => request <= 1 << 20,
        };
        let expandable = flag(&segment, "is_expandable")?;
        found.push(TrackedSegment {
            stream: number(&segment, "stream")?.unwrap_or(0),
            pool: pool(&segment, "segment_pool_id")?,
            small,
            expandable,
            base,
            blocks: blocks(&segment, base)?,
        });
    }
    Ok(found)
}

fn blocks(segment: &Bound<'_, PyDict>, base: u64) -> PyResult<Vec<TrackedBlock>> {
    let mut found = Vec::new();
    let Some(blocks) = segment.get_item("blocks")? else { return Ok(found) };
    let mut next = base;
    for block in blocks.try_iter()? {
        let block = block?.cast_into::<PyDict>()?;
        let size = number(&block, "size")?.unwrap_or(0);
        let addr = number(&block, "address")?.unwrap_or(next);
        next = addr.saturating_add(size);
        let state = match text(&block, "state")?.as_deref() {
            Some("active_allocated") => BlockState::Allocated,
            Some("active_pending_free" | "active_awaiting_free") => BlockState::PendingFree,
            Some("inactive") => BlockState::Inactive,
            _ => BlockState::Unknown,
        };
        let requested = number(&block, "requested_size")?.unwrap_or(size);
        found.push(TrackedBlock { addr, size, requested, state, event: None, stack: StackId::default() });
    }
    Ok(found)
}

fn settings(snapshot: &Bound<'_, PyDict>) -> PyResult<AllocatorSettings> {
    let mut settings = AllocatorSettings::default();
    let recorded = snapshot.get_item("allocator_settings")?;
    if let Some(recorded) = recorded.and_then(|recorded| recorded.cast_into::<PyDict>().ok()) {
        settings.expandable_segments = flag(&recorded, "expandable_segments")?;
        // -1 is unlimited.
        settings.max_split_size = number(&recorded, "max_split_size")?;
    }
    Ok(settings)
}

/// A number that fits; a missing, negative or foreign one is unknown.
fn number(values: &Bound<'_, PyDict>, key: &str) -> PyResult<Option<u64>> {
    Ok(values.get_item(key)?.and_then(|value| value.extract().ok()))
}

fn text(values: &Bound<'_, PyDict>, key: &str) -> PyResult<Option<String>> {
    Ok(values.get_item(key)?.and_then(|value| value.extract().ok()))
}

fn flag(values: &Bound<'_, PyDict>, key: &str) -> PyResult<bool> {
    Ok(values.get_item(key)?.and_then(|value| value.extract().ok()).unwrap_or(false))
}

fn pool(values: &Bound<'_, PyDict>, key: &str) -> PyResult<PoolId> {
    Ok(values.get_item(key)?.and_then(|value| value.extract().ok()).unwrap_or((0, 0)))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let names = Category::ALL.iter().map(|category| category.name());
    module.add("CUDA_OOM_FILE", FACTS)?;
    module.add("CUDA_CATEGORIES_FILE", CATEGORIES)?;
    module.add("CUDA_SNAPSHOT_FILE", SNAPSHOT)?;
    module.add("GPU_MEMORY_CATEGORIES", PyTuple::new(module.py(), names)?)?;
    module.add("CUBLAS_WORKSPACE_BYTES", CUBLAS_WORKSPACE)?;
    module.add("CUBLAS_WORKSPACE_HOPPER_BYTES", CUBLAS_WORKSPACE_HOPPER)?;
    module.add_class::<CudaCounters>()?;
    module.add_class::<CudaOomVerdict>()?;
    module.add_function(wrap_pyfunction!(explain_cuda_oom, module)?)
}
