//! `diagnostic_summary.json`: the numbers, which of them are a risk, and what to do.

use serde_json::{Value, json};
use stormlog_catalog::diagnose::HIGH_UTILIZATION;
use stormlog_track::Statistics;

use crate::Program;
use crate::cmd::record::watch::Part;

#[derive(Debug, Default)]
pub(crate) struct Summary {
    backend: String,
    allocated: u64,
    reserved: u64,
    peak: u64,
    total: u64,
    /// The part of the whole that is in use.
    pub(crate) utilization: f64,
    is_tensorflow: bool,
}

impl Summary {
    pub(crate) fn of(part: &Part, seen: &Statistics, facts: &Value, program: Program) -> Self {
        let sample = seen.last_sample;
        let in_use = part.bytes(seen).unwrap_or(0);
        let total = sample.and_then(|sample| sample.total).or(seen.total_bytes);
        let total = total.or_else(|| if part.is_gpu() { None } else { limit(facts) }).unwrap_or(0);
        // Of a GPU the driver counts everyone; a program is near the end when the device is.
        let filled =
            if part.is_gpu() { sample.and_then(|sample| sample.used).unwrap_or(in_use) } else { in_use };
        Summary {
            backend: part.backend.clone(),
            allocated: in_use,
            reserved: sample.and_then(|sample| sample.reserved).unwrap_or(in_use),
            peak: part.peak(seen).unwrap_or(in_use),
            total,
            utilization: if total > 0 { filled as f64 / total as f64 } else { 0.0 },
            is_tensorflow: program == Program::Tfmemprof,
        }
    }

    /// The flags in 0.4.3's order. An allocator's own failures and its fragmentation are not seen from outside.
    fn flags(&self) -> [(&'static str, bool); 3] {
        [
            ("oom_occurred", false),
            ("high_utilization", self.utilization >= HIGH_UTILIZATION),
            ("fragmentation_warning", false),
        ]
    }

    /// The names of the flags that are up.
    pub(crate) fn raised(&self) -> impl Iterator<Item = &'static str> {
        self.flags().into_iter().filter(|(_, is_up)| *is_up).map(|(name, _)| name)
    }

    pub(crate) fn metrics(&self) -> Value {
        json!({
            "allocated_bytes": self.allocated, "reserved_bytes": self.reserved, "peak_bytes": self.peak,
            "total_bytes": self.total, "allocator_gap_bytes": self.reserved.saturating_sub(self.allocated),
            "utilization_ratio": self.utilization, "fragmentation_ratio": 0.0, "num_ooms": 0,
        })
    }

    pub(crate) fn risk(&self) -> Value {
        let flags = self.flags().into_iter().map(|(name, is_up)| (name.to_owned(), is_up.into()));
        json!({"backend": self.backend, "risk_flags": Value::Object(flags.collect())})
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut all = json!({"backend": self.backend});
        let parts = [self.metrics(), self.risk(), json!({"suggestions": self.suggestions()})];
        if let Value::Object(all) = &mut all {
            for part in parts {
                if let Value::Object(part) = part {
                    all.extend(part);
                }
            }
        }
        all
    }

    pub(crate) fn suggestions(&self) -> Vec<&'static str> {
        let mut sentences = Vec::new();
        if self.utilization >= HIGH_UTILIZATION {
            sentences.push(match self.is_tensorflow {
                true => "Memory is nearly all in use: reduce the batch size, use gradient checkpointing (tf.recompute_grad) or mixed precision (tf.keras.mixed_precision).",
                false => "Memory is nearly all in use: reduce the batch size, use gradient checkpointing or mixed precision, and see who holds it with `stormlog run`.",
            });
        }
        if self.is_tensorflow {
            sentences
                .push("Limit what TensorFlow takes at once with tf.config.experimental.set_memory_growth.");
        }
        sentences
    }
}

/// The least of the limits a process on the host has: its control group's, or all memory.
fn limit(facts: &Value) -> Option<u64> {
    let memory = facts.get("memory");
    let total =
        memory.and_then(|memory| memory.get("total").or(memory.get("total_bytes"))).and_then(Value::as_u64);
    let group =
        facts.pointer("/cgroup/limit").or(facts.pointer("/cgroup/limit_bytes")).and_then(Value::as_u64);
    match (total, group) {
        (Some(total), Some(group)) => Some(total.min(group)),
        (total, group) => total.or(group),
    }
}
