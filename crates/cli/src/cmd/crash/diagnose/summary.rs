//! The numbers of `diagnostic_summary.json`, from what the trackers saw; what they mean is `catalog::diagnose`'s.

use serde_json::Value;
use stormlog_catalog::diagnose::Summary;
use stormlog_track::Statistics;

use crate::Program;
use crate::cmd::record::watch::Part;

pub(crate) fn summary(part: &Part, seen: &Statistics, facts: &Value, program: Program) -> Summary {
    let sample = seen.last_sample;
    let in_use = part.bytes(seen).unwrap_or(0);
    let total = sample.and_then(|sample| sample.total).or(seen.total_bytes);
    let total = total.or_else(|| if part.is_gpu() { None } else { limit(facts) });
    Summary {
        backend: part.backend.clone(),
        allocated: in_use,
        reserved: sample.and_then(|sample| sample.reserved).unwrap_or(in_use),
        peak: part.peak(seen).unwrap_or(in_use),
        total: total.unwrap_or(0),
        // Of a GPU the driver counts everyone.
        filled: sample.and_then(|sample| sample.used).filter(|_| part.is_gpu()).unwrap_or(in_use),
        framework: program.framework(),
    }
}

/// The least of the limits a process on the host has: its control group's, or all memory.
fn limit(facts: &Value) -> Option<u64> {
    let memory = facts.get("memory");
    let total =
        memory.and_then(|memory| memory.get("total").or(memory.get("total_bytes"))).and_then(Value::as_u64);
    let group =
        facts.pointer("/cgroup/limit").or(facts.pointer("/cgroup/limit_bytes")).and_then(Value::as_u64);
    [total, group].into_iter().flatten().min()
}
