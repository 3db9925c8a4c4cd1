//! Every family that is served: name, type, unit, labels and help. The alert rules, the dashboard and the page in docs/serve.md use these names;
//! a family that is not in [`ALL`] cannot be served.
//!
//! A sample has the labels of its rank (`job_id`, `rank`, and `slot` where two living runs have the same) and never a process number or a run's id:
//! those change at every start, and each would be a new series. Identity is in `stormlog_run_info`. The machine, a cgroup and a device have one
//! series each, however many ranks use them.

/// What the numbers of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rises and falls.
    Gauge,
    /// Only rises.
    Counter,
    /// Always 1; the labels are what it is about.
    Info,
}

/// The unit at the end of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
        }
    }
}

/// One family.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// The name of its series, with `_total` or `_info` where its type has that.
    pub name: &'static str,
    /// What its numbers are.
    pub kind: Kind,
    /// Their unit, where the name ends in one.
    pub unit: Option<Unit>,
    /// One sentence for the people who read the series.
    pub help: &'static str,
    /// The labels that its series may have; one that is empty is left out.
    pub labels: &'static [&'static str],
}

const fn gauge(
    name: &'static str,
    unit: Option<Unit>,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind: Kind::Gauge, unit, help, labels }
}

const fn bytes(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    gauge(name, Some(Unit::Bytes), labels, help)
}

const fn seconds(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    gauge(name, Some(Unit::Seconds), labels, help)
}

const fn counter(
    name: &'static str,
    unit: Option<Unit>,
    labels: &'static [&'static str],
    help: &'static str,
) -> Family {
    Family { name, kind: Kind::Counter, unit, help, labels }
}

const fn info(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Family {
    Family { name, kind: Kind::Info, unit: None, help, labels }
}

const RANK: &[&str] = &["job_id", "rank", "slot"];
const ROLE: &[&str] = &["job_id", "rank", "slot", "role"];
const OF_DEVICE: &[&str] = &["job_id", "rank", "slot", "device"];
const LIMIT: &[&str] = &["job_id", "rank", "slot", "limit", "device"];
const CGROUP: &[&str] = &["cgroup"];
const DEVICE: &[&str] = &["device", "uuid"];

/// The version that serves.
pub const BUILD_INFO: Family = info("stormlog_build_info", &["version"], "Version of this reader.");
/// Identity, once a living rank.
pub const RUN_INFO: Family = info(
    "stormlog_run_info",
    &[
        "job_id",
        "rank",
        "slot",
        "run_id",
        "local_rank",
        "world_size",
        "attempt",
        "host",
        "cgroup",
        "command",
        "version",
    ],
    "Identity of each running rank; join on job_id, rank and slot.",
);
/// Runs by state.
pub const RUNS: Family = gauge("stormlog_runs", None, &["state"], "Runs in the directories that are read.");

/// Number of processes.
pub const PROCESSES: Family = gauge("stormlog_processes", None, ROLE, "Running processes of a rank.");
/// RSS.
pub const RESIDENT: Family =
    bytes("stormlog_process_resident_bytes", ROLE, "Resident memory of a rank's processes, summed by role.");
/// RSS without files and shared memory.
pub const ANONYMOUS: Family =
    bytes("stormlog_process_anonymous_bytes", ROLE, "Resident memory that no file backs, summed by role.");
/// Swap.
pub const SWAP: Family =
    bytes("stormlog_process_swap_bytes", ROLE, "Memory of a rank's processes that is swapped out.");

/// The machine's memory.
pub const HOST_TOTAL: Family = bytes("stormlog_host_memory_total_bytes", &[], "Memory of the machine.");
/// What the machine can still give.
pub const HOST_AVAILABLE: Family =
    bytes("stormlog_host_memory_available_bytes", &[], "Memory that the machine can give without swapping.");
/// Use of a cgroup.
pub const CGROUP_USAGE: Family =
    bytes("stormlog_cgroup_usage_bytes", CGROUP, "Memory that the cgroup is charged for.");
/// Use without what can be taken back at once.
pub const CGROUP_WORKING_SET: Family = bytes(
    "stormlog_cgroup_working_set_bytes",
    CGROUP,
    "Usage of the cgroup without inactive pages of files.",
);
/// The limit.
pub const CGROUP_LIMIT: Family =
    bytes("stormlog_cgroup_limit_bytes", CGROUP, "Limit of the cgroup; absent where it has none.");
/// The most there was.
pub const CGROUP_PEAK: Family =
    bytes("stormlog_cgroup_peak_bytes", CGROUP, "Highest usage that the kernel counted for the cgroup.");
/// The kernel's counters.
pub const CGROUP_EVENTS: Family = counter(
    "stormlog_cgroup_memory_events_total",
    None,
    &["cgroup", "event"],
    "The kernel's memory events of the cgroup: low, high, max, oom, oom_kill, oom_group_kill.",
);
/// PSI.
pub const PRESSURE: Family = counter(
    "stormlog_pressure_seconds_total",
    Some(Unit::Seconds),
    &["scope", "kind", "cgroup"],
    "Time in which tasks waited for memory, of the host or of a cgroup; kind is some or full.",
);

/// Use of a device.
pub const DEVICE_USED: Family =
    bytes("stormlog_device_used_bytes", DEVICE, "Memory in use on the device, by all processes.");
/// What is free.
pub const DEVICE_FREE: Family = bytes("stormlog_device_free_bytes", DEVICE, "Free memory of the device.");
/// Its size.
pub const DEVICE_TOTAL: Family = bytes("stormlog_device_total_bytes", DEVICE, "Memory of the device.");
/// Use of a device by a rank.
pub const DEVICE_PROCESS: Family = bytes(
    "stormlog_device_process_bytes",
    OF_DEVICE,
    "Memory that a rank's processes hold on the device, by the driver.",
);
/// Handed out.
pub const ALLOCATED: Family = bytes(
    "stormlog_allocator_allocated_bytes",
    OF_DEVICE,
    "Memory that the framework's allocator handed out.",
);
/// Held.
pub const RESERVED: Family = bytes(
    "stormlog_allocator_reserved_bytes",
    OF_DEVICE,
    "Memory that the framework's allocator holds from the driver.",
);
/// In active blocks.
pub const ACTIVE: Family =
    bytes("stormlog_allocator_active_bytes", OF_DEVICE, "Memory in active blocks of the allocator.");
/// In inactive parts of split blocks.
pub const INACTIVE_SPLIT: Family = bytes(
    "stormlog_allocator_inactive_split_bytes",
    OF_DEVICE,
    "Memory in free parts of split blocks, which cannot be given back.",
);
/// Attempts after freeing the cache.
pub const RETRIES: Family = counter(
    "stormlog_allocator_retries_total",
    None,
    OF_DEVICE,
    "Allocations that succeeded only after the allocator gave its cache back.",
);
/// Failed requests.
pub const OOMS: Family = counter(
    "stormlog_allocator_ooms_total",
    None,
    OF_DEVICE,
    "Out-of-memory errors that the allocator raised.",
);
/// Outside the allocator.
pub const HIDDEN: Family = bytes(
    "stormlog_hidden_bytes",
    &["job_id", "rank", "slot", "device", "part"],
    "Device memory outside the framework's allocator: part is process (of this rank: context, NCCL, other libraries) or others (other processes).",
);

/// Rolling maxima.
pub const WINDOW_MAX: Family = bytes(
    "stormlog_window_max_bytes",
    &["job_id", "rank", "slot", "what", "device", "window"],
    "Highest sample of the last minute: what is resident (all processes of the rank), allocated, reserved or device_process.",
);
/// Slope.
pub const GROWTH: Family = gauge(
    "stormlog_growth_bytes_per_second",
    None,
    &["job_id", "rank", "slot", "what", "device"],
    "Growth rate of the memory floor; label what as in stormlog_window_max_bytes; 0 without steady growth.",
);
/// The nearest limits.
pub const LIMIT_BYTES: Family =
    bytes("stormlog_limit_bytes", LIMIT, "Limit on a rank's memory: limit is cgroup, host or device.");
/// What counts against a limit.
pub const LIMIT_USED: Family = bytes(
    "stormlog_limit_used_bytes",
    LIMIT,
    "Memory that counts against the limit, of this rank and of others.",
);
/// Forecast.
pub const TIME_TO_LIMIT: Family = seconds(
    "stormlog_time_to_limit_seconds",
    LIMIT,
    "Time until the limit is reached if growth continues; absent where memory does not grow.",
);
/// Holders.
pub const HEAP_LINE: Family = bytes(
    "stormlog_heap_line_bytes",
    &["job_id", "rank", "slot", "line"],
    "Live heap memory of the lines that hold most; only with --holders.",
);

/// Deaths.
pub const DEATHS: Family = counter(
    "stormlog_deaths_total",
    None,
    &["cause"],
    "Processes that died, by cause; completed and deliberate ends are not counted.",
);
/// When the last one was.
pub const LAST_DEATH: Family = seconds(
    "stormlog_last_death_timestamp_seconds",
    &["cause"],
    "Time of the last death by this cause. Alert on this: increase() misses a counter that starts at 1.",
);
/// The newest sample.
pub const LAST_SAMPLE: Family =
    seconds("stormlog_last_sample_timestamp_seconds", RANK, "Time of the rank's newest sample.");
/// Lost records.
pub const DROPPED: Family =
    counter("stormlog_dropped_records_total", None, RANK, "Lost records of a running rank.");

/// Time of this scrape.
pub const SCRAPE_DURATION: Family =
    seconds("stormlog_scrape_duration_seconds", &[], "Time that the reader took for this answer.");
/// What there was no time for.
pub const SCRAPE_UNREAD: Family = gauge(
    "stormlog_scrape_unread_runs",
    None,
    &[],
    "Runs skipped because reading them exceeded the time or memory budget; their series are absent.",
);
/// What could not be read.
pub const SCRAPE_ERRORS: Family = counter(
    "stormlog_scrape_errors_total",
    None,
    &["reason"],
    "Directories and files that could not be read: reason is directory, run or state.",
);

/// Pushes that were not taken.
pub const PUSH_FAILURES: Family = counter(
    "stormlog_push_failures_total",
    None,
    &["receiver"],
    "Pushes that the receiver rejected: receiver is otlp or pyroscope.",
);

/// All families, in the order in which they are served.
pub const ALL: [&Family; 40] = [
    &BUILD_INFO,
    &RUN_INFO,
    &RUNS,
    &PROCESSES,
    &RESIDENT,
    &ANONYMOUS,
    &SWAP,
    &HOST_TOTAL,
    &HOST_AVAILABLE,
    &CGROUP_USAGE,
    &CGROUP_WORKING_SET,
    &CGROUP_LIMIT,
    &CGROUP_PEAK,
    &CGROUP_EVENTS,
    &PRESSURE,
    &DEVICE_USED,
    &DEVICE_FREE,
    &DEVICE_TOTAL,
    &DEVICE_PROCESS,
    &ALLOCATED,
    &RESERVED,
    &ACTIVE,
    &INACTIVE_SPLIT,
    &RETRIES,
    &OOMS,
    &HIDDEN,
    &WINDOW_MAX,
    &GROWTH,
    &LIMIT_BYTES,
    &LIMIT_USED,
    &TIME_TO_LIMIT,
    &HEAP_LINE,
    &DEATHS,
    &LAST_DEATH,
    &LAST_SAMPLE,
    &DROPPED,
    &SCRAPE_DURATION,
    &SCRAPE_UNREAD,
    &SCRAPE_ERRORS,
    &PUSH_FAILURES,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn is_name(text: &str) -> bool {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    }

    #[test]
    fn names_follow_the_rules_of_the_formats() {
        let mut seen = std::collections::BTreeSet::new();
        for family in ALL {
            let Family { name, kind, unit, help, labels } = family;
            assert!(seen.insert(name), "{name} is there twice");
            assert!(name.starts_with("stormlog_") && is_name(name), "{name}");
            assert!(help.ends_with('.') && !help.contains(['\n', '\\', '"']), "{name}: {help}");
            assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert_eq!(*kind == Kind::Info, name.ends_with("_info"), "{name}");
            let stem = name.trim_end_matches("_total");
            assert_eq!(*unit == Some(Unit::Bytes), stem.ends_with("_bytes"), "{name}");
            assert_eq!(*unit == Some(Unit::Seconds), stem.ends_with("_seconds"), "{name}");
            assert!(labels.iter().all(|label| is_name(label)), "{name}");
            let forbidden = |label: &&str| ["pid", "path"].contains(label);
            assert!(!labels.iter().any(forbidden), "{name}");
        }
    }

    #[test]
    fn only_the_info_has_the_id_of_a_run() {
        let with: Vec<&str> =
            ALL.iter().filter(|family| family.labels.contains(&"run_id")).map(|family| family.name).collect();
        assert_eq!(with, ["stormlog_run_info"]);
    }
}
