//! The overview and the jobs as an object for scripts: the keys are a promise. Sizes are bytes, times nanoseconds since 1970; what is not known is null.

use serde_json::{Value, json};
use stormlog_collect::pressure::Pressure;
use stormlog_postmortem::Cause;

use crate::gpus::GpuRow;
use crate::jobs::JobRow;
use crate::objects::Cgroup;
use crate::overview::{Item, Overview};

const SCHEMA_VERSION: u64 = 1;

/// The object of `stormlog top --json`.
#[must_use]
pub fn fleet_value(overview: &Overview, jobs: &[JobRow]) -> Value {
    let host = &overview.host;
    json!({
        "schema_version": SCHEMA_VERSION,
        "at_ns": overview.at_ns,
        "host": {
            "total_bytes": host.total,
            "available_bytes": host.available,
            "swap_total_bytes": host.swap_total,
            "swap_used_bytes": host.swap_used,
            "pressure": host.pressure.as_ref().map(pressure),
            "cgroup": overview.own_cgroup.as_ref().map(cgroup),
        },
        "cgroups": overview.cgroups.iter().map(cgroup).collect::<Vec<Value>>(),
        "devices": overview.gpus.iter().flatten().map(gpu).collect::<Vec<Value>>(),
        "runs": overview.living.iter().chain(&overview.ended).map(item).collect::<Vec<Value>>(),
        "jobs": jobs.iter().map(job).collect::<Vec<Value>>(),
        "ranks": jobs.iter().flat_map(ranks).collect::<Vec<Value>>(),
        "unread_runs": overview.unread,
    })
}

fn per_hour(rate: Option<f64>) -> Option<f64> {
    rate.map(|rate| rate * 3600.0)
}

fn pressure(pressure: &Pressure) -> Value {
    let (some, full) = (pressure.some.unwrap_or_default(), pressure.full.unwrap_or_default());
    json!({"some_avg10_percent": some.avg10, "full_avg10_percent": full.avg10})
}

fn cgroup(cgroup: &Cgroup) -> Value {
    json!({
        "path": cgroup.path,
        "usage_bytes": cgroup.usage,
        "working_set_bytes": cgroup.working_set,
        "limit_bytes": cgroup.limit,
        "peak_bytes": cgroup.peak,
        "oom_kills": cgroup.events.oom_kill,
        "pressure": cgroup.pressure.as_ref().map(pressure),
    })
}

fn gpu(gpu: &GpuRow) -> Value {
    let processes = gpu.processes.as_ref().map(|all| {
        let row = |process: &crate::gpus::GpuProcess| {
            json!({
                "pid": process.pid,
                "used_bytes": process.used,
                "user": process.user,
                "command": process.command,
            })
        };
        all.iter().map(row).collect::<Vec<Value>>()
    });
    json!({
        "device": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "used_bytes": gpu.used,
        "total_bytes": gpu.total,
        "busy_percent": gpu.busy_percent,
        "processes": processes,
    })
}

fn item(item: &Item) -> Value {
    let limit = match item {
        Item::Run(run) => run.limit,
        Item::Session(_) | Item::Ended(_) => None,
    };
    json!({
        "path": item.path().display().to_string(),
        "kind": if matches!(item, Item::Session(_)) { "session" } else { "run" },
        "program": item.name(),
        "job_id": item.job(),
        "host": item.host(),
        "pid": item.pid(),
        "state": item.state(),
        "resident_bytes": item.resident(),
        "device_bytes": item.device(),
        "peak_bytes": item.peak(),
        "growth_bytes_per_hour": per_hour(item.growth()),
        "time_to_limit_seconds": item.time_to_limit(),
        "limit": limit.map(|limit| json!({"kind": limit.kind, "bytes": limit.bytes, "used_bytes": limit.used})),
        "started_at_ns": item.started_at_ns(),
        "ended_at_ns": item.ended_at_ns(),
        "cause": item.cause().map(Cause::as_str),
        "verdict": item.verdict(),
    })
}

fn job(job: &JobRow) -> Value {
    json!({
        "job": job.key,
        "name": job.name,
        "world_size": job.world_size,
        "is_living": job.is_living,
        "started_at_ns": job.started_at_ns,
        "run_count": job.runs,
        "missing_ranks": job.missing,
        "outlier_ranks": job.ranks.iter().filter(|rank| rank.is_outlier).map(|rank| rank.rank).collect::<Vec<i64>>(),
        "typical_peak_bytes": job.typical_peak,
    })
}

fn ranks(job: &JobRow) -> impl Iterator<Item = Value> {
    job.ranks.iter().map(move |rank| {
        let memory = job.memory(rank);
        json!({
            "job": job.key,
            "rank": rank.rank,
            "host": rank.host.as_deref(),
            "run": rank.run.display().to_string(),
            "pid": rank.pid,
            "state": rank.state,
            "verdict": rank.verdict,
            "attempt": rank.attempt,
            "attempts": rank.attempts,
            "memory": if job.is_of_devices { "device" } else { "host" },
            "now_bytes": memory.now,
            "peak_bytes": memory.peak,
            "growth_bytes_per_hour": per_hour(memory.growth),
            "time_to_limit_seconds": memory.time_to_limit,
            "resident_bytes": rank.host_memory.now,
            "device_bytes": rank.device_memory.now,
            "is_outlier": rank.is_outlier,
        })
    })
}
