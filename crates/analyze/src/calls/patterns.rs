//! Patterns of memory over profiled calls: leaks, fragmentation, waste, spikes, many small allocations.

use serde_json::{Value, json};

use super::{Call, CallThresholds, by_function, once, quantile};
use crate::rules::gap::GapClass;
use crate::series::{mean, median};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

/// Every pattern, in 0.4.3's order.
pub fn patterns(calls: &[Call], thresholds: &CallThresholds) -> Vec<Value> {
    let mut found = leaks(calls, thresholds);
    found.extend(fragmentation(calls, thresholds));
    found.extend(inefficient(calls, thresholds));
    found.extend(spikes(calls));
    found.extend(repeated(calls));
    found
}

fn leaks(calls: &[Call], thresholds: &CallThresholds) -> Vec<Value> {
    let mut found = Vec::new();
    for (name, changes) in by_function(calls, |call| call.change) {
        let count = changes.len() as f64;
        let total: i64 = changes.iter().sum();
        let positive = changes.iter().filter(|change| **change > 0).count() as f64 / count;
        if count < thresholds.least_calls || positive <= thresholds.leak || total <= 100 * MIB {
            continue;
        }
        found.push(json!({
            "pattern_type": "memory_leak",
            "description": format!("Function '{name}' shows potential memory leak pattern"),
            "severity": if total > GIB { "critical" } else { "warning" },
            "affected_functions": [name],
            "metrics": {
                "total_memory_growth": total,
                "average_growth_per_call": total as f64 / count,
                "positive_growth_ratio": positive,
                "call_count": changes.len(),
            },
            "suggestions": [
                format!("Review memory management in '{name}'"),
                "Check for uncleaned tensors or variables",
                "Use torch.cuda.empty_cache() if appropriate",
                "Consider using context managers for tensor lifecycle",
            ],
        }));
    }
    found
}

fn fragmentation(calls: &[Call], thresholds: &CallThresholds) -> Option<Value> {
    let shares: Vec<(&str, f64)> = calls
        .iter()
        .filter(|call| call.reserved > 0)
        .map(|call| (call.function.as_str(), call.inactive as f64 / call.reserved as f64))
        .collect();
    let ratios: Vec<f64> = shares.iter().map(|(_, ratio)| *ratio).collect();
    let average = mean(&ratios);
    if ratios.is_empty() || average <= thresholds.fragmentation {
        return None;
    }
    let high = shares.iter().filter(|(_, ratio)| *ratio > thresholds.fragmentation);
    let high = once(high.map(|(name, _)| *name).collect());
    Some(json!({
        "pattern_type": "fragmentation",
        "description": "High memory fragmentation detected across operations",
        "severity": if average > 0.5 { "critical" } else { "warning" },
        "affected_functions": high,
        "metrics": {
            "average_fragmentation": average,
            "max_fragmentation": ratios.iter().copied().fold(f64::MIN, f64::max),
            "high_fragmentation_functions": high.len(),
        },
        "suggestions": GapClass::FragmentationLike.remediation(),
    }))
}

fn inefficient(calls: &[Call], thresholds: &CallThresholds) -> Option<Value> {
    let wasteful: Vec<Call> = calls
        .iter()
        .filter(|call| {
            let used = call.peak - call.before;
            call.allocated > 0 && used > 0 && share(call) < thresholds.inefficient
        })
        .cloned()
        .collect();
    let always: Vec<(&str, f64)> = by_function(&wasteful, share)
        .into_iter()
        .filter(|(_, ratios)| ratios.len() as f64 >= thresholds.least_calls)
        .map(|(name, ratios)| (name, mean(&ratios)))
        .collect();
    if always.is_empty() {
        return None;
    }
    let means: Vec<f64> = always.iter().map(|(_, ratio)| *ratio).collect();
    Some(json!({
        "pattern_type": "inefficient_allocation",
        "description": "Functions with inefficient memory allocation patterns detected",
        "severity": "warning",
        "affected_functions": always.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        "metrics": { "inefficient_function_count": always.len(), "average_efficiency": mean(&means) },
        "suggestions": [
            "Review allocation patterns in inefficient functions",
            "Consider using in-place operations where possible",
            "Pre-allocate tensors to avoid repeated allocations",
            "Use tensor views instead of copies when appropriate",
        ],
    }))
}

/// What a call held at its peak, of all it asked for.
fn share(call: &Call) -> f64 {
    (call.peak - call.before) as f64 / call.allocated as f64
}

fn spikes(calls: &[Call]) -> Option<Value> {
    let mut allocations: Vec<f64> =
        calls.iter().filter(|call| call.allocated > 0).map(|call| call.allocated as f64).collect();
    if allocations.len() < 3 {
        return None;
    }
    let (low, high) = (quantile(&allocations, 0.25), quantile(&allocations, 0.75));
    let limit = high + 1.5 * (high - low);
    let spiky: Vec<&str> = calls
        .iter()
        .filter(|call| call.allocated as f64 > limit)
        .map(|call| call.function.as_str())
        .collect();
    if spiky.is_empty() {
        return None;
    }
    let count = spiky.len();
    let middle = median(&mut allocations);
    // Python's median of an odd number of integers is one of them.
    let middle = if allocations.len() % 2 == 1 { Value::from(middle as i64) } else { Value::from(middle) };
    Some(json!({
        "pattern_type": "memory_spikes",
        "description": format!("Detected {count} memory allocation spikes"),
        "severity": if count < 5 { "warning" } else { "critical" },
        "affected_functions": once(spiky),
        "metrics": {
            "spike_count": count,
            "spike_threshold": limit,
            "max_allocation": calls.iter().map(|call| call.allocated).max(),
            "median_allocation": middle,
        },
        "suggestions": [
            "Investigate functions causing memory spikes",
            "Consider batch processing to reduce peak memory",
            "Use gradient checkpointing for large models",
            "Implement memory monitoring in spike-prone functions",
        ],
    }))
}

fn repeated(calls: &[Call]) -> Option<Value> {
    let mut small: Vec<(&str, i64)> = by_function(calls, |call| call.allocated)
        .into_iter()
        .map(|(name, sizes)| (name, sizes.len(), sizes.iter().sum::<i64>()))
        .filter(|(_, count, total)| *count >= 10 && (*total as f64) < 50.0 * MIB as f64 * *count as f64)
        .map(|(name, _, total)| (name, total))
        .collect();
    if small.is_empty() {
        return None;
    }
    small.sort_by_key(|(_, total)| std::cmp::Reverse(*total));
    let top: Vec<&str> = small.iter().take(5).map(|(name, _)| *name).collect();
    Some(json!({
        "pattern_type": "repeated_allocations",
        "description": "Functions with frequent small allocations detected",
        "severity": "info",
        "affected_functions": top,
        "metrics": {
            "function_count": small.len(),
            "total_impact_functions": top,
            "total_memory_from_repeated": small.iter().map(|(_, total)| total).sum::<i64>(),
        },
        "suggestions": [
            "Consider pre-allocating memory for frequently called functions",
            "Use tensor pools or memory buffers for repeated allocations",
            "Batch operations to reduce allocation overhead",
            "Cache tensors between function calls when possible",
        ],
    }))
}
