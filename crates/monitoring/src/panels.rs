//! What the dashboard shows: rows, panels and their queries. How Grafana wants it written is in `dashboard.rs`.
//!
//! Samples have no host: `stormlog_run_info` knows it, and a query that is filtered by host is joined with it.

/// A row of panels under one title.
pub(crate) struct Row {
    pub(crate) title: &'static str,
    pub(crate) panels: &'static [Panel],
}

/// One panel.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// What a reader should know of it.
    pub(crate) help: &'static str,
    pub(crate) shape: Shape,
    pub(crate) unit: &'static str,
    /// Columns of 24.
    pub(crate) width: u64,
    pub(crate) queries: &'static [Query],
}

/// How values are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Lines over time.
    Lines,
    /// Areas over time that add up.
    Stack,
    /// One row a series, at the present moment.
    Table,
    /// One row a rank over time, coloured by value.
    HeatMap,
    /// Bars at the present moment, the longest first.
    Bars,
    /// One number a series.
    Stat,
}

/// One query and the name of its series.
pub(crate) struct Query {
    pub(crate) expr: &'static str,
    pub(crate) legend: &'static str,
}

macro_rules! rank {
    ($metric:literal) => {
        concat!(
            $metric,
            "{job_id=~\"$job_id\", rank=~\"$rank\"}",
            " and on (instance, job_id, rank, slot) stormlog_run_info{host=~\"$host\"}"
        )
    };
    ($metric:literal, $label:literal) => {
        concat!(
            $metric,
            "{job_id=~\"$job_id\", rank=~\"$rank\", ",
            $label,
            "} and on (instance, job_id, rank, slot) stormlog_run_info{host=~\"$host\"}"
        )
    };
}
macro_rules! node {
    ($expr:expr) => {
        concat!($expr, " and on (instance) stormlog_run_info{host=~\"$host\"}")
    };
}

const RANK: &str = "{{job_id}} rank {{rank}} {{slot}}";
const RANK_DEVICE: &str = "{{job_id}} rank {{rank}} {{device}}";

const fn query(expr: &'static str, legend: &'static str) -> Query {
    Query { expr, legend }
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        title: "Near the limit",
        panels: &[
            Panel {
                title: "Time to limit",
                help: "Ranks whose memory grows towards a limit, the soonest first. Empty: none grows.",
                shape: Shape::Table,
                unit: "s",
                width: 12,
                queries: &[query(
                    concat!("sort(", rank!("stormlog_time_to_limit_seconds"), ")"),
                    "{{job_id}} rank {{rank}} {{limit}} {{device}}",
                )],
            },
            Panel {
                title: "Share of the limit in use",
                help: "Memory that counts against each limit, of this rank and of others.",
                shape: Shape::Lines,
                unit: "percentunit",
                width: 12,
                queries: &[query(
                    concat!(
                        "stormlog_limit_used_bytes{job_id=~\"$job_id\", rank=~\"$rank\"} / stormlog_limit_bytes",
                        " and on (instance, job_id, rank, slot) stormlog_run_info{host=~\"$host\"}"
                    ),
                    "{{job_id}} rank {{rank}} {{limit}} {{device}}",
                )],
            },
        ],
    },
    Row {
        title: "Host",
        panels: &[
            Panel {
                title: "Resident memory by role",
                help: "All processes of a rank: the program itself, its workers, others.",
                shape: Shape::Lines,
                unit: "bytes",
                width: 12,
                queries: &[query(
                    rank!("stormlog_process_resident_bytes"),
                    "{{job_id}} rank {{rank}} {{role}}",
                )],
            },
            Panel {
                title: "Cgroup",
                help: "The working set is the memory that the kernel cannot reclaim at once.",
                shape: Shape::Lines,
                unit: "bytes",
                width: 12,
                queries: &[
                    query(node!("stormlog_cgroup_usage_bytes"), "usage {{cgroup}}"),
                    query(node!("stormlog_cgroup_working_set_bytes"), "working set {{cgroup}}"),
                    query(node!("stormlog_cgroup_limit_bytes"), "limit {{cgroup}}"),
                ],
            },
            Panel {
                title: "Machine",
                help: "Memory of the machine, and what it can give without swapping.",
                shape: Shape::Lines,
                unit: "bytes",
                width: 12,
                queries: &[
                    query(node!("stormlog_host_memory_available_bytes"), "available {{instance}}"),
                    query(node!("stormlog_host_memory_total_bytes"), "total {{instance}}"),
                ],
            },
            Panel {
                title: "Pressure",
                help: "Share of the time in which all tasks waited for memory.",
                shape: Shape::Lines,
                unit: "percentunit",
                width: 12,
                queries: &[query(
                    node!("rate(stormlog_pressure_seconds_total{kind=\"full\"}[$__rate_interval])"),
                    "{{scope}} {{cgroup}}",
                )],
            },
        ],
    },
    Row {
        title: "Device split",
        panels: &[
            Panel {
                title: "Device memory",
                help: "Adds up to the device: allocated, stranded in the allocator, outside the allocator, other processes, free.",
                shape: Shape::Stack,
                unit: "bytes",
                width: 16,
                queries: &[
                    query(rank!("stormlog_allocator_allocated_bytes"), "allocated {{device}} rank {{rank}}"),
                    query(
                        concat!(
                            "stormlog_allocator_reserved_bytes{job_id=~\"$job_id\", rank=~\"$rank\"}",
                            " - stormlog_allocator_allocated_bytes",
                            " and on (instance, job_id, rank, slot) stormlog_run_info{host=~\"$host\"}"
                        ),
                        "stranded {{device}} rank {{rank}}",
                    ),
                    query(
                        rank!("stormlog_hidden_bytes", "part=\"process\""),
                        "hidden {{device}} rank {{rank}}",
                    ),
                    query(
                        rank!("stormlog_hidden_bytes", "part=\"others\""),
                        "other processes {{device}} rank {{rank}}",
                    ),
                    query(node!("stormlog_device_free_bytes"), "free {{device}}"),
                ],
            },
            Panel {
                title: "Allocator retries",
                help: "Requests that succeeded only after the allocator gave its cache back: fragmentation, just before an error.",
                shape: Shape::Lines,
                unit: "ops",
                width: 8,
                queries: &[query(
                    concat!(
                        "rate(stormlog_allocator_retries_total{job_id=~\"$job_id\", rank=~\"$rank\"}[$__rate_interval])",
                        " and on (instance, job_id, rank, slot) stormlog_run_info{host=~\"$host\"}"
                    ),
                    RANK_DEVICE,
                )],
            },
            Panel {
                title: "Device memory by rank",
                help: "Memory that the driver counts for each rank, also where ranks share a device.",
                shape: Shape::Lines,
                unit: "bytes",
                width: 12,
                queries: &[query(rank!("stormlog_device_process_bytes"), RANK_DEVICE)],
            },
            Panel {
                title: "Devices",
                help: "Memory in use on each device by all processes, and its size.",
                shape: Shape::Lines,
                unit: "bytes",
                width: 12,
                queries: &[
                    query(node!("stormlog_device_used_bytes"), "used {{device}} {{instance}}"),
                    query(node!("stormlog_device_total_bytes"), "total {{device}} {{instance}}"),
                ],
            },
        ],
    },
    Row {
        title: "Ranks",
        panels: &[
            Panel {
                title: "Peak by rank and time",
                help: "Highest sample of each minute, by rank: a rank that differs has another colour.",
                shape: Shape::HeatMap,
                unit: "bytes",
                width: 12,
                queries: &[query(rank!("stormlog_window_max_bytes", "what=\"resident\""), RANK)],
            },
            Panel {
                title: "Against the median of the job",
                help: "Resident memory of a rank over the median of its job.",
                shape: Shape::Lines,
                unit: "percentunit",
                width: 12,
                queries: &[query(
                    concat!(
                        "sum without (role) (stormlog_process_resident_bytes{job_id=~\"$job_id\", rank=~\"$rank\"})",
                        " / on (job_id) group_left () quantile by (job_id) (0.5, sum without (role) (stormlog_process_resident_bytes))",
                        " and on (instance, job_id, rank, slot) stormlog_run_info{host=~\"$host\"}"
                    ),
                    RANK,
                )],
            },
            Panel {
                title: "Growth",
                help: "How fast memory grows, by the forecast towards its limit.",
                shape: Shape::Lines,
                unit: "Bps",
                width: 12,
                queries: &[query(
                    rank!("stormlog_growth_bytes_per_second"),
                    "{{job_id}} rank {{rank}} {{what}} {{device}}",
                )],
            },
            Panel {
                title: "Identity",
                help: "Running ranks: host, run, attempt.",
                shape: Shape::Table,
                unit: "none",
                width: 12,
                queries: &[query(
                    "stormlog_run_info{job_id=~\"$job_id\", rank=~\"$rank\", host=~\"$host\"}",
                    RANK,
                )],
            },
        ],
    },
    Row {
        title: "Deaths",
        panels: &[
            Panel {
                title: "Deaths by cause",
                help: "Processes that died, also workers and those that died before the first scrape.",
                shape: Shape::Stat,
                unit: "none",
                width: 12,
                queries: &[query("sum by (cause) (stormlog_deaths_total)", "{{cause}}")],
            },
            Panel {
                title: "Since the last death",
                help: "By node and cause.",
                shape: Shape::Table,
                unit: "s",
                width: 12,
                queries: &[query(
                    "sort(time() - stormlog_last_death_timestamp_seconds)",
                    "{{instance}} {{cause}}",
                )],
            },
        ],
    },
    Row {
        title: "What holds it",
        panels: &[Panel {
            title: "Lines that hold the most",
            help: "Live heap memory by source line. Needs `stormlog serve --holders` and a token.",
            shape: Shape::Bars,
            unit: "bytes",
            width: 24,
            queries: &[query(
                concat!("topk(10, ", rank!("stormlog_heap_line_bytes"), ")"),
                "{{line}}  rank {{rank}}",
            )],
        }],
    },
    Row {
        title: "Reader",
        panels: &[
            Panel {
                title: "Runs by state",
                help: "Runs in the directories that are read.",
                shape: Shape::Lines,
                unit: "none",
                width: 12,
                queries: &[query("sum by (instance, state) (stormlog_runs)", "{{instance}} {{state}}")],
            },
            Panel {
                title: "Time of a scrape",
                help: "Time that the reader took for its answer.",
                shape: Shape::Lines,
                unit: "s",
                width: 12,
                queries: &[query("stormlog_scrape_duration_seconds", "{{instance}}")],
            },
        ],
    },
];
