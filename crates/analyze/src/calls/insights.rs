//! Insights over profiled calls: what is slow, what varies, what takes much memory, and whether memory grows with time.

use serde_json::{Value, json};

use super::{Call, CallThresholds, by_function, once, quantile};
use crate::series::{mean, sample_deviation, slope_of_line, student_t_two_sided};

/// Fewer calls say nothing about a correlation…
const LEAST_FOR_CORRELATION: usize = 10;
/// …or a trend.
const LEAST_FOR_TREND: usize = 5;

/// Every insight, in 0.4.3's order.
pub fn insights(calls: &[Call], thresholds: &CallThresholds) -> Vec<Value> {
    let times: Vec<(&str, Vec<f64>)> = by_function(calls, |call| call.seconds)
        .into_iter()
        .filter(|(_, times)| times.len() as f64 >= thresholds.least_calls)
        .collect();
    let found = [
        slow(&times, thresholds),
        unsteady(&times),
        hungry(calls, thresholds),
        time_with_memory(calls),
        growth(calls),
    ];
    found.into_iter().flatten().collect()
}

fn slow(times: &[(&str, Vec<f64>)], thresholds: &CallThresholds) -> Option<Value> {
    let mut averages: Vec<(&str, f64)> = times.iter().map(|(name, times)| (*name, mean(times))).collect();
    let values: Vec<f64> = averages.iter().map(|(_, average)| *average).collect();
    let limit = quantile(&values, thresholds.slow);
    averages.sort_by(|a, b| b.1.total_cmp(&a.1));
    let slow: Vec<&str> =
        averages.iter().filter(|(_, average)| *average > limit).map(|(name, _)| *name).collect();
    let (slowest, seconds) = averages.first().filter(|_| !slow.is_empty())?;
    Some(json!({
        "category": "execution_time",
        "title": "Slow Function Detection",
        "description": format!("Identified {} functions with high execution times", slow.len()),
        "impact": if slow.len() > 3 { "high" } else { "medium" },
        "confidence": 0.8,
        "data": {
            "slow_functions": slow.iter().take(5).collect::<Vec<_>>(),
            "slowest_function": slowest,
            "slowest_time": seconds,
            "threshold": limit,
        },
        "recommendations": [
            "Profile slow functions in detail",
            "Consider algorithmic optimizations",
            "Look for GPU/CPU synchronization issues",
            "Check for unnecessary memory transfers",
        ],
    }))
}

fn unsteady(times: &[(&str, Vec<f64>)]) -> Option<Value> {
    let mut varying: Vec<(&str, f64)> = Vec::new();
    for (name, times) in times {
        let average = mean(times);
        let spread = sample_deviation(times, average) / average;
        if average > 0.0 && spread > 0.5 {
            varying.push((name, spread));
        }
    }
    let first = *varying.first()?;
    let most = varying.iter().fold(first, |most, next| if next.1 > most.1 { *next } else { most });
    Some(json!({
        "category": "execution_time",
        "title": "Inconsistent Execution Times",
        "description": "Functions with highly variable execution times detected",
        "impact": "medium",
        "confidence": 0.7,
        "data": {
            "variable_functions": varying.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            "highest_variance": [most.0, most.1],
        },
        "recommendations": [
            "Investigate causes of execution time variance",
            "Check for resource contention",
            "Look for input size dependencies",
            "Consider warming up functions before timing",
        ],
    }))
}

fn hungry(calls: &[Call], thresholds: &CallThresholds) -> Option<Value> {
    let rates: Vec<(&str, f64)> = calls
        .iter()
        .filter(|call| call.seconds > 0.0)
        .map(|call| (call.function.as_str(), call.allocated as f64 / call.seconds))
        .collect();
    let values: Vec<f64> = rates.iter().map(|(_, rate)| *rate).collect();
    let limit = quantile(&values, thresholds.intensive);
    let above = once(rates.iter().filter(|(_, rate)| *rate > limit).map(|(name, _)| *name).collect());
    if above.is_empty() {
        return None;
    }
    Some(json!({
        "category": "memory_efficiency",
        "title": "Memory-Intensive Functions",
        "description": format!("Identified {} memory-intensive functions", above.len()),
        "impact": "medium",
        "confidence": 0.75,
        "data": {
            "memory_intensive_functions": above.iter().take(5).collect::<Vec<_>>(),
            "threshold_ratio": limit,
        },
        "recommendations": [
            "Optimize memory usage in intensive functions",
            "Consider using smaller data types",
            "Implement memory streaming for large operations",
            "Use gradient accumulation to reduce memory peaks",
        ],
    }))
}

fn time_with_memory(calls: &[Call]) -> Option<Value> {
    if calls.len() < LEAST_FOR_CORRELATION {
        return None;
    }
    let seconds: Vec<f64> = calls.iter().map(|call| call.seconds).collect();
    let sizes: Vec<f64> = calls.iter().map(|call| call.allocated as f64).collect();
    let (_, correlation) = slope_of_line(&seconds, &sizes)?;
    if correlation.abs() <= 0.7 {
        return None;
    }
    Some(json!({
        "category": "correlation",
        "title": "Time-Memory Correlation",
        "description": format!("Strong correlation ({correlation:.2}) between execution time and memory"),
        "impact": "medium",
        "confidence": 0.8,
        "data": {
            "correlation_coefficient": correlation,
            "interpretation": if correlation > 0.0 { "positive" } else { "negative" },
        },
        "recommendations": [
            "Memory allocation is a significant factor in execution time",
            "Consider memory pre-allocation strategies",
            "Optimize memory access patterns",
            "Monitor memory bandwidth utilization",
        ],
    }))
}

fn growth(calls: &[Call]) -> Option<Value> {
    if calls.len() < LEAST_FOR_TREND {
        return None;
    }
    let mut in_order: Vec<&Call> = calls.iter().collect();
    in_order.sort_by(|a, b| a.started.total_cmp(&b.started));
    let first = in_order.first()?.started;
    let since: Vec<f64> = in_order.iter().map(|call| call.started - first).collect();
    let sizes: Vec<f64> = in_order.iter().map(|call| call.after as f64).collect();
    let (slope, correlation) = slope_of_line(&since, &sizes)?;
    let freedom = since.len() as f64 - 2.0;
    let tiny = 1e-20;
    let t = correlation * (freedom / ((1.0 - correlation + tiny) * (1.0 + correlation + tiny))).sqrt();
    let chance = student_t_two_sided(t, freedom);
    if slope <= 0.0 || correlation.abs() <= 0.5 || chance >= 0.05 {
        return None;
    }
    Some(json!({
        "category": "temporal",
        "title": "Memory Growth Trend",
        "description": "Detected upward trend in memory usage over time",
        "impact": if slope > 1e6 { "high" } else { "medium" },
        "confidence": correlation.abs(),
        "data": {
            "growth_rate": slope,
            "correlation": correlation,
            "p_value": chance,
            "time_span": since.last(),
        },
        "recommendations": [
            "Investigate potential memory leaks",
            "Implement periodic memory cleanup",
            "Monitor long-running processes",
            "Consider memory usage limits",
        ],
    }))
}
