//! The tables of a lake, version 1: names, types and order of their columns.
//!
//! A version only ever gains columns at the end of a table; none is renamed, removed or given another type, so that files of every release are read
//! together (`union_by_name`, Delta). Types are those that Spark, Trino, Delta and DuckDB share: signed 64-bit integers, doubles, text, booleans, UTC
//! microseconds. Must never hold a type that an engine maps to something else (unsigned integers, nanoseconds).

/// Version of the tables; in the metadata of every file as `stormlog.schema_version`.
pub const SCHEMA_VERSION: u32 = 1;

/// A table of a lake, which is a directory of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One row for each event of a session: the counters of a process and of its devices over time.
    Samples,
    /// One row for each process that has ended, with its peaks.
    Processes,
    /// One row for each process whose end was a failure.
    Deaths,
    /// What the rules found in a run that is over.
    Findings,
    /// The lines that held host memory, of each process.
    HeapHolders,
    /// The lines that held device memory, of each process.
    GpuHolders,
}

impl Table {
    /// All of them. The order is that of publication: `processes` is last, because its rows mark a run as published.
    pub const ALL: [Table; 6] = [
        Table::Samples,
        Table::Deaths,
        Table::Findings,
        Table::HeapHolders,
        Table::GpuHolders,
        Table::Processes,
    ];

    /// The name of the table and of its directory.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Table::Samples => "samples",
            Table::Processes => "processes",
            Table::Deaths => "deaths",
            Table::Findings => "findings",
            Table::HeapHolders => "heap_holders",
            Table::GpuHolders => "gpu_holders",
        }
    }

    /// The table of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Its columns in the order of its files. The partitions' `date` is in the path only.
    #[must_use]
    pub fn columns(self) -> &'static [Column] {
        match self {
            Table::Samples => &SAMPLES,
            Table::Processes => &PROCESSES,
            Table::Deaths => &DEATHS,
            Table::Findings => &FINDINGS,
            Table::HeapHolders | Table::GpuHolders => &HOLDERS,
        }
    }

    /// The number of a column.
    #[must_use]
    pub fn column(self, name: &str) -> Option<usize> {
        self.columns().iter().position(|column| column.name == name)
    }
}

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Signed, 64 bits.
    Integer,
    /// Double precision.
    Float,
    /// Text, most of it repeated: dictionaries.
    Text,
    /// A moment: microseconds since 1970, UTC.
    Time,
    /// True or false.
    Boolean,
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What its cells are.
    pub kind: Kind,
    /// Whether a cell may be unknown.
    pub is_optional: bool,
}

const fn required(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_optional: false }
}

const fn optional(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_optional: true }
}

/// The columns that every table begins with: whose row it is.
pub(crate) const COMMON: [Column; 19] = [
    required("ts", Kind::Time),
    required("job_id", Kind::Text),
    optional("rank", Kind::Integer),
    optional("device", Kind::Integer),
    optional("job_name", Kind::Text),
    optional("job_version", Kind::Text),
    optional("local_rank", Kind::Integer),
    optional("world_size", Kind::Integer),
    optional("attempt", Kind::Integer),
    optional("host", Kind::Text),
    optional("run_id", Kind::Text),
    optional("session_id", Kind::Text),
    optional("pid", Kind::Integer),
    optional("program", Kind::Text),
    optional("role", Kind::Text),
    optional("device_uuid", Kind::Text),
    optional("step", Kind::Integer),
    optional("phase", Kind::Text),
    optional("metadata", Kind::Text),
];

const fn with_common<const N: usize, const M: usize>(own: [Column; M]) -> [Column; N] {
    let mut all = [COMMON[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < COMMON.len() { COMMON[at] } else { own[at - COMMON.len()] };
        at += 1;
    }
    all
}

const SAMPLES: [Column; 19 + 19] = with_common([
    required("timestamp_ns", Kind::Integer),
    required("event_type", Kind::Text),
    optional("viewpoint", Kind::Text),
    optional("collector", Kind::Text),
    optional("interval_ms", Kind::Integer),
    optional("allocator_allocated_bytes", Kind::Integer),
    optional("allocator_reserved_bytes", Kind::Integer),
    optional("allocator_active_bytes", Kind::Integer),
    optional("allocator_inactive_bytes", Kind::Integer),
    optional("allocator_change_bytes", Kind::Integer),
    optional("device_used_bytes", Kind::Integer),
    optional("device_free_bytes", Kind::Integer),
    optional("device_total_bytes", Kind::Integer),
    optional("process_device_used_bytes", Kind::Integer),
    optional("swap_bytes", Kind::Integer),
    optional("pressure_some", Kind::Float),
    optional("pressure_full", Kind::Float),
    optional("retries", Kind::Integer),
    optional("context", Kind::Text),
]);

const PROCESSES: [Column; 19 + 21] = with_common([
    required("started_at_ns", Kind::Integer),
    optional("ended_ts", Kind::Time),
    required("ended", Kind::Text),
    optional("cause", Kind::Text),
    optional("exit_code", Kind::Integer),
    optional("signal", Kind::Integer),
    optional("is_root", Kind::Boolean),
    required("sample_count", Kind::Integer),
    optional("peak_host_bytes", Kind::Integer),
    optional("peak_host_ts", Kind::Time),
    optional("peak_heap_bytes", Kind::Integer),
    optional("peak_device_bytes", Kind::Integer),
    optional("peak_device_ts", Kind::Time),
    optional("peak_allocated_bytes", Kind::Integer),
    optional("peak_reserved_bytes", Kind::Integer),
    optional("waste_bytes", Kind::Integer),
    optional("device_total_bytes", Kind::Integer),
    optional("peak_phase", Kind::Text),
    optional("peak_step", Kind::Integer),
    optional("retries", Kind::Integer),
    optional("recorder_version", Kind::Text),
]);

const DEATHS: [Column; 19 + 17] = with_common([
    required("cause", Kind::Text),
    required("ended", Kind::Text),
    required("is_memory", Kind::Boolean),
    required("signature", Kind::Text),
    optional("what_happened", Kind::Text),
    optional("reason", Kind::Text),
    optional("raised", Kind::Text),
    optional("confidence", Kind::Float),
    optional("exit_code", Kind::Integer),
    optional("signal", Kind::Integer),
    optional("memory", Kind::Text),
    optional("peak_host_bytes", Kind::Integer),
    optional("holder_file", Kind::Text),
    optional("holder_line", Kind::Integer),
    optional("holder_function", Kind::Text),
    optional("holder_bytes", Kind::Integer),
    optional("advice", Kind::Text),
]);

const FINDINGS: [Column; 19 + 15] = with_common([
    required("finding_id", Kind::Text),
    required("kind", Kind::Text),
    required("severity", Kind::Text),
    optional("confidence", Kind::Float),
    required("title", Kind::Text),
    optional("message", Kind::Text),
    optional("memory", Kind::Text),
    optional("bytes", Kind::Integer),
    optional("holder_file", Kind::Text),
    optional("holder_line", Kind::Integer),
    optional("holder_function", Kind::Text),
    optional("start_ts", Kind::Time),
    optional("end_ts", Kind::Time),
    optional("undecided", Kind::Boolean),
    optional("advice", Kind::Text),
]);

const HOLDERS: [Column; 19 + 11] = with_common([
    required("memory", Kind::Text),
    required("bytes", Kind::Integer),
    optional("count", Kind::Integer),
    optional("file", Kind::Text),
    optional("line", Kind::Integer),
    optional("function", Kind::Text),
    optional("kept_by", Kind::Text),
    optional("growth_bytes_per_second", Kind::Float),
    optional("growth_since_ts", Kind::Time),
    required("is_estimate", Kind::Boolean),
    required("position", Kind::Integer),
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_names_of_a_table_are_unique_and_begin_with_the_common_ones() {
        for table in Table::ALL {
            let names: Vec<&str> = table.columns().iter().map(|column| column.name).collect();
            let unique: std::collections::BTreeSet<&&str> = names.iter().collect();
            assert_eq!(unique.len(), names.len(), "{table:?}");
            assert!(names.iter().zip(&COMMON).all(|(name, common)| *name == common.name));
            assert_eq!(Table::of_name(table.name()), Some(table));
        }
    }
}
