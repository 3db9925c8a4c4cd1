//! `diagnostic_summary.json` of a few seconds of looking from outside: the numbers, which of them are a risk, and what to do.

use serde_json::{Value, json};

use super::HIGH_UTILIZATION;
use crate::frameworks::Framework;

/// What was seen of the device or the process that was requested.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// `cuda`, `rocm`, `cpu`, …
    pub backend: String,
    /// Bytes in use by the program.
    pub allocated: u64,
    /// Bytes its allocator holds.
    pub reserved: u64,
    /// Most bytes in use.
    pub peak: u64,
    /// Size of the device, or the limit of the process; 0 where that is unknown.
    pub total: u64,
    /// Bytes of it that are in use by everyone: a program is near the end when its device is.
    pub filled: u64,
    /// Whom the advice is for.
    pub framework: Option<Framework>,
}

impl Summary {
    /// The part of the whole that is in use; 0 where the whole is unknown.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        if self.total > 0 { self.filled as f64 / self.total as f64 } else { 0.0 }
    }

    /// The flags in 0.4.3's order. An allocator's own failures and its fragmentation are not seen from outside.
    fn flags(&self) -> [(&'static str, bool); 3] {
        [
            ("oom_occurred", false),
            ("high_utilization", self.utilization() >= HIGH_UTILIZATION),
            ("fragmentation_warning", false),
        ]
    }

    /// The names of the flags that are up.
    pub fn raised(&self) -> impl Iterator<Item = &'static str> {
        self.flags().into_iter().filter(|(_, is_up)| *is_up).map(|(name, _)| name)
    }

    /// The content of the file.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let flags = self.flags().into_iter().map(|(name, is_up)| (name.to_owned(), is_up.into()));
        json!({
            "backend": self.backend,
            "allocated_bytes": self.allocated, "reserved_bytes": self.reserved, "peak_bytes": self.peak,
            "total_bytes": self.total, "allocator_gap_bytes": self.reserved.saturating_sub(self.allocated),
            "utilization_ratio": self.utilization(), "fragmentation_ratio": 0.0, "num_ooms": 0,
            "risk_flags": Value::Object(flags.collect()),
            "suggestions": self.suggestions(),
        })
    }

    fn suggestions(&self) -> Vec<&'static str> {
        let mut sentences = Vec::new();
        if self.utilization() >= HIGH_UTILIZATION {
            sentences.push(match self.framework {
                Some(Framework::Tensorflow) => "Memory is nearly all in use: reduce the batch size, use gradient checkpointing (tf.recompute_grad) or mixed precision (tf.keras.mixed_precision).",
                Some(Framework::Jax) => "Memory is nearly all in use, or is JAX's pool: `stormlog run` records how much of the pool is in use and which lines hold it.",
                None => "Memory is nearly all in use: reduce the batch size, use gradient checkpointing or mixed precision, and see what holds it with `stormlog run`.",
            });
        }
        sentences.extend(self.framework.map(|framework| match framework {
            Framework::Tensorflow => {
                "Limit what TensorFlow takes at once with tf.config.experimental.set_memory_growth."
            }
            Framework::Jax => {
                "JAX takes a pool of 75 % of a GPU at the start: XLA_CLIENT_MEM_FRACTION sets its share, XLA_PYTHON_CLIENT_PREALLOCATE=false lets it grow."
            }
        }));
        sentences
    }
}
