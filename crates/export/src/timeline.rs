//! What happened over time, as formats of traces take it: counters, slices and instants of each process on one axis.

/// Everything, in nanoseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The processes.
    pub processes: Vec<TimelineProcess>,
}

/// What is known of one process over time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimelineProcess {
    /// Its number.
    pub pid: u32,
    /// What the user would call the program.
    pub name: String,
    /// Bytes over time.
    pub counters: Vec<Counter>,
    /// Stretches with a name. Those of one track nest; an outer one is before those in it.
    pub slices: Vec<Slice>,
    /// Alerts and deaths.
    pub instants: Vec<Instant>,
}

/// A number of bytes over time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counter {
    /// `host RSS`, `cuda:0 allocated`.
    pub name: String,
    /// When and how much, in order of time.
    pub points: Vec<(u64, u64)>,
}

/// A phase.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slice {
    /// Where it is drawn: `phases`, `phases: loader`.
    pub track: String,
    /// Its start.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// Its name.
    pub name: String,
}

/// A moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    /// When.
    pub at_ns: u64,
    /// `warning`, `out of memory`.
    pub name: String,
    /// The sentence.
    pub text: String,
}

impl Timeline {
    /// The first moment of all; 0 where nothing happened.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        let of = |process: &TimelineProcess| {
            let counters =
                process.counters.iter().filter_map(|counter| counter.points.first()).map(|point| point.0);
            let slices = process.slices.iter().map(|slice| slice.from_ns);
            let instants = process.instants.iter().map(|instant| instant.at_ns);
            counters.chain(slices).chain(instants).min()
        };
        self.processes.iter().filter_map(of).min().unwrap_or(0)
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_empty = |process: &TimelineProcess| {
            process.counters.is_empty() && process.slices.is_empty() && process.instants.is_empty()
        };
        self.processes.iter().all(is_empty)
    }
}

/// A format that shows things over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceFormat {
    /// Perfetto's protobuf.
    Perfetto,
    /// Chrome's JSON.
    Chrome,
    /// TensorBoard's event file.
    TensorBoard,
}

impl TraceFormat {
    /// By the word a user types.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "perfetto" => Some(TraceFormat::Perfetto),
            "chrome" => Some(TraceFormat::Chrome),
            "tensorboard" => Some(TraceFormat::TensorBoard),
            _ => None,
        }
    }

    /// By the name of the file: `run.pftrace`, `run.trace.json`, `events.out.tfevents.run`.
    #[must_use]
    pub fn of_file(name: &str) -> Option<Self> {
        match name {
            name if name.ends_with(".pftrace") || name.ends_with(".perfetto-trace") => {
                Some(TraceFormat::Perfetto)
            }
            name if name.ends_with(".trace.json") => Some(TraceFormat::Chrome),
            name if name.contains("tfevents") => Some(TraceFormat::TensorBoard),
            _ => None,
        }
    }

    /// The bytes of the file.
    #[must_use]
    pub fn write(self, timeline: &Timeline) -> Vec<u8> {
        match self {
            TraceFormat::Perfetto => crate::perfetto::perfetto(timeline),
            TraceFormat::Chrome => crate::chrome::chrome(timeline),
            TraceFormat::TensorBoard => crate::tensorboard::tensorboard(timeline),
        }
    }
}
