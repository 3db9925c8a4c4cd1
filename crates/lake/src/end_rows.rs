//! Rows that are known once a process or its run has ended: the process with its peaks, its death, findings, holders of memory.

use std::sync::Arc;

use stormlog_model::memory::Memory;
use stormlog_model::{Counter, Finding};
use stormlog_postmortem::{Cause, Ended};
use stormlog_story::Holder;

use crate::row::{COMMON, Cell, ProcessFacts, Row, SampleRow, cell_of_process, time};
use crate::schema::Table;

/// The highest values of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Peaks {
    /// Events of all its sessions.
    pub samples: u64,
    /// Most bytes resident, and when.
    pub host: Option<(u64, i64)>,
    /// Most bytes that it held of one device (by the driver, else reserved by its allocator), and when.
    pub device: Option<(u64, i64)>,
    /// The device of that peak, and its id.
    pub device_id: Option<(i64, Option<Arc<str>>)>,
    /// Most bytes that its allocator handed out on one device.
    pub allocated: Option<u64>,
    /// Most bytes that its allocator reserved on one device.
    pub reserved: Option<u64>,
    /// Most bytes that were reserved and not handed out.
    pub waste: Option<u64>,
    /// Bytes of the largest device it used.
    pub device_total: Option<u64>,
    /// Phase and step at the peak of the device, or of the host where it used none.
    pub at: (Option<Arc<str>>, Option<i64>),
    /// Allocations that were tried again.
    pub retries: Option<i64>,
}

impl Peaks {
    /// Takes in a sample of the process.
    pub fn observe(&mut self, row: &SampleRow) {
        self.samples += 1;
        let (event, at_ns) = (&row.event, row.at_ns());
        let used = event.counter(Counter::Used);
        if event.head.device_id < 0 {
            let is_higher = used.is_some_and(|used| self.host.is_none_or(|(most, _)| used > most));
            if is_higher {
                self.host = used.map(|used| (used, at_ns));
                if self.device.is_none() {
                    self.at = (row.phase.clone(), row.step);
                }
            }
            return;
        }
        let (allocated, reserved) = (event.counter(Counter::Allocated), event.counter(Counter::Reserved));
        self.allocated = self.allocated.max(allocated);
        self.reserved = self.reserved.max(reserved);
        let unused = allocated.zip(reserved).map(|(allocated, reserved)| reserved.saturating_sub(allocated));
        self.waste = self.waste.max(unused);
        self.device_total = self.device_total.max(event.counter(Counter::Total));
        self.retries = self.retries.max(row.facts.retries);
        let of_driver = row.facts.process_device_used_bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let held = of_driver.or(reserved);
        if held.is_some_and(|held| self.device.is_none_or(|(most, _)| held > most)) {
            self.device = held.map(|held| (held, at_ns));
            self.device_id = Some((event.head.device_id, row.facts.device_uuid.clone()));
            self.at = (row.phase.clone(), row.step);
        }
    }
}

/// A process that has ended.
#[derive(Debug, Clone)]
pub struct ProcessRow {
    /// Which.
    pub process: Arc<ProcessFacts>,
    /// Start and end, nanoseconds since 1970.
    pub started_at_ns: i64,
    /// When its last session ended.
    pub ended_at_ns: Option<i64>,
    /// How it ended.
    pub ended: Ended,
    /// What ended it.
    pub cause: Option<Cause>,
    /// Exit status, where it was seen.
    pub exit_code: Option<i64>,
    /// The signal, where there was one.
    pub signal: Option<i64>,
    /// Whether it is the process that the run started.
    pub is_root: bool,
    /// Its highest values.
    pub peaks: Peaks,
    /// Most bytes on its heap.
    pub heap_peak_bytes: Option<u64>,
    /// The release that recorded it.
    pub recorder_version: Option<Arc<str>>,
}

impl Row for ProcessRow {
    fn table(&self) -> Table {
        Table::Processes
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        let peaks = &self.peaks;
        match column.checked_sub(COMMON) {
            None => match column {
                0 => time(Some(self.started_at_ns)),
                3 => self.device().into(),
                15 => peaks.device_id.as_ref().and_then(|(_, uuid)| uuid.as_deref()).into(),
                _ => cell_of_process(&self.process, column),
            },
            Some(0) => Cell::Integer(self.started_at_ns),
            Some(1) => time(self.ended_at_ns),
            Some(2) => Cell::Text(self.ended.as_str()),
            Some(3) => self.cause.map(Cause::as_str).into(),
            Some(4) => self.exit_code.into(),
            Some(5) => self.signal.into(),
            Some(6) => Cell::Boolean(self.is_root),
            Some(7) => Some(peaks.samples).into(),
            Some(8) => peaks.host.map(|(bytes, _)| bytes).into(),
            Some(9) => time(peaks.host.map(|(_, at_ns)| at_ns)),
            Some(10) => self.heap_peak_bytes.into(),
            Some(11) => peaks.device.map(|(bytes, _)| bytes).into(),
            Some(12) => time(peaks.device.map(|(_, at_ns)| at_ns)),
            Some(13) => peaks.allocated.into(),
            Some(14) => peaks.reserved.into(),
            Some(15) => peaks.waste.into(),
            Some(16) => peaks.device_total.into(),
            Some(17) => peaks.at.0.as_deref().into(),
            Some(18) => peaks.at.1.into(),
            Some(19) => peaks.retries.into(),
            _ => self.recorder_version.as_deref().into(),
        }
    }

    fn at_ns(&self) -> i64 {
        self.started_at_ns
    }

    fn last_ns(&self) -> i64 {
        self.ended_at_ns.unwrap_or(self.started_at_ns).max(self.started_at_ns)
    }

    fn process(&self) -> &Arc<ProcessFacts> {
        &self.process
    }

    fn device(&self) -> Option<i64> {
        self.peaks.device_id.as_ref().map(|(device, _)| *device)
    }
}

/// The failure of a process.
#[derive(Debug, Clone)]
pub struct DeathRow {
    /// Which process.
    pub process: Arc<ProcessFacts>,
    /// When, nanoseconds since 1970.
    pub at_ns: i64,
    /// What ended it.
    pub cause: Cause,
    /// Judged as.
    pub ended: Ended,
    /// The same death in other jobs has the same one.
    pub signature: String,
    /// One sentence.
    pub what_happened: String,
    /// Why, where more is known.
    pub reason: Option<String>,
    /// The exception, and the line that raised it.
    pub raised: Option<String>,
    /// 0 to 1.
    pub confidence: Option<f64>,
    /// Exit status.
    pub exit_code: Option<i64>,
    /// Signal.
    pub signal: Option<i64>,
    /// The memory whose request failed.
    pub memory: Option<Memory>,
    /// The same as text.
    pub memory_name: Option<String>,
    /// Most bytes resident.
    pub peak_host_bytes: Option<u64>,
    /// What held most of that memory.
    pub holder: Option<Holder>,
    /// What to change first.
    pub advice: Option<String>,
    /// The phase that was open.
    pub phase: Option<Arc<str>>,
    /// The step.
    pub step: Option<i64>,
}

impl Row for DeathRow {
    fn table(&self) -> Table {
        Table::Deaths
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        let holder = self.holder.as_ref();
        match column.checked_sub(COMMON) {
            None => match column {
                0 => time(Some(self.at_ns)),
                3 => self.device().into(),
                16 => self.step.into(),
                17 => self.phase.as_deref().into(),
                _ => cell_of_process(&self.process, column),
            },
            Some(0) => Cell::Text(self.cause.as_str()),
            Some(1) => Cell::Text(self.ended.as_str()),
            Some(2) => Cell::Boolean(self.cause.is_memory()),
            Some(3) => Cell::Text(&self.signature),
            Some(4) => Cell::Text(&self.what_happened),
            Some(5) => self.reason.as_deref().into(),
            Some(6) => self.raised.as_deref().into(),
            Some(7) => self.confidence.into(),
            Some(8) => self.exit_code.into(),
            Some(9) => self.signal.into(),
            Some(10) => self.memory_name.as_deref().into(),
            Some(11) => self.peak_host_bytes.into(),
            Some(12) => holder.map(|holder| holder.file.as_str()).filter(|file| !file.is_empty()).into(),
            Some(13) => holder.map(|holder| i64::from(holder.line)).filter(|line| *line > 0).into(),
            Some(14) => holder.map(|holder| holder.function.as_str()).into(),
            Some(15) => holder.map(|holder| holder.bytes).into(),
            _ => self.advice.as_deref().into(),
        }
    }

    fn at_ns(&self) -> i64 {
        self.at_ns
    }

    fn process(&self) -> &Arc<ProcessFacts> {
        &self.process
    }

    fn device(&self) -> Option<i64> {
        self.memory.and_then(device_of)
    }
}

/// What a rule found.
#[derive(Debug, Clone)]
pub struct FindingRow {
    /// The process it is about; where it is about the run, the run's first.
    pub process: Arc<ProcessFacts>,
    /// The moment at which the evidence shows it, nanoseconds since 1970.
    pub at_ns: i64,
    /// What was found.
    pub finding: Finding,
    /// The memory as text.
    pub memory_name: Option<String>,
    /// How many bytes it is about.
    pub bytes: Option<u64>,
    /// The advice, one a line.
    pub advice: Option<String>,
    /// The numbers that the rule decided by, as a JSON object.
    pub metrics: Option<String>,
}

impl Row for FindingRow {
    fn table(&self) -> Table {
        Table::Findings
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        let finding = &self.finding;
        let holder = finding.holder.as_ref();
        let moment = |at_ns: Option<u64>| time(at_ns.and_then(|at_ns| i64::try_from(at_ns).ok()));
        match column.checked_sub(COMMON) {
            None => match column {
                0 => time(Some(self.at_ns)),
                3 => self.device().into(),
                18 => self.metrics.as_deref().into(),
                _ => cell_of_process(&self.process, column),
            },
            Some(0) => Cell::Text(&finding.id),
            Some(1) => Cell::Text(&finding.kind),
            Some(2) => Cell::Text(finding.severity.as_str()),
            Some(3) => Some(finding.confidence).into(),
            Some(4) => Cell::Text(&finding.title),
            Some(5) => finding.message.as_deref().into(),
            Some(6) => self.memory_name.as_deref().into(),
            Some(7) => self.bytes.into(),
            Some(8) => holder.map(|holder| holder.file.as_str()).filter(|file| !file.is_empty()).into(),
            Some(9) => holder.map(|holder| i64::from(holder.line)).filter(|line| *line > 0).into(),
            Some(10) => holder.map(|holder| holder.function.as_str()).into(),
            Some(11) => moment(finding.evidence.iter().find_map(|evidence| evidence.start_ns)),
            Some(12) => moment(finding.evidence.iter().find_map(|evidence| evidence.end_ns)),
            Some(13) => Cell::Boolean(finding.undecided),
            _ => self.advice.as_deref().into(),
        }
    }

    fn at_ns(&self) -> i64 {
        self.at_ns
    }

    fn process(&self) -> &Arc<ProcessFacts> {
        &self.process
    }

    fn device(&self) -> Option<i64> {
        self.finding.memory.and_then(device_of)
    }
}

/// A line that held memory when it mattered: at the end, or at the failed request.
#[derive(Debug, Clone)]
pub struct HolderRow {
    /// Whose.
    pub process: Arc<ProcessFacts>,
    /// When, nanoseconds since 1970.
    pub at_ns: i64,
    /// What.
    pub holder: Holder,
    /// The memory as text.
    pub memory_name: String,
    /// 1 is the first in the order of every view.
    pub position: i64,
}

impl Row for HolderRow {
    fn table(&self) -> Table {
        match self.holder.memory {
            Memory::Host => Table::HeapHolders,
            _ => Table::GpuHolders,
        }
    }

    fn cell(&self, column: usize) -> Cell<'_> {
        let holder = &self.holder;
        let growth = holder.growth.as_ref();
        match column.checked_sub(COMMON) {
            None => match column {
                0 => time(Some(self.at_ns)),
                3 => self.device().into(),
                _ => cell_of_process(&self.process, column),
            },
            Some(0) => Cell::Text(&self.memory_name),
            Some(1) => Some(holder.bytes).into(),
            Some(2) => holder.count.into(),
            Some(3) => Some(holder.file.as_str()).filter(|file| !file.is_empty()).into(),
            Some(4) => Some(i64::from(holder.line)).filter(|line| *line > 0).into(),
            Some(5) => Some(holder.function.as_str()).filter(|function| !function.is_empty()).into(),
            Some(6) => holder.kept_by.as_deref().into(),
            Some(7) => growth.map(|growth| growth.bytes_per_second).into(),
            Some(8) => time(growth.and_then(|growth| i64::try_from(growth.since_ns?).ok())),
            Some(9) => Cell::Boolean(holder.is_estimate),
            _ => Cell::Integer(self.position),
        }
    }

    fn at_ns(&self) -> i64 {
        self.at_ns
    }

    fn process(&self) -> &Arc<ProcessFacts> {
        &self.process
    }

    fn device(&self) -> Option<i64> {
        device_of(self.holder.memory)
    }
}

/// The number of a memory in the column `device`; -1 is the host.
fn device_of(memory: Memory) -> Option<i64> {
    Some(match memory {
        Memory::Host => -1,
        Memory::Device(device) => device.index.into(),
    })
}
