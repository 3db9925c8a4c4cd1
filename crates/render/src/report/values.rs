//! What a report shows, as the caller knows it. Times are milliseconds since the report's first moment.

use serde::Serialize;

use crate::flamegraph::FlameGraph;

/// Names and values.
pub type Rows = Vec<(String, String)>;
/// Parts of a memory and their bytes, where they are known.
pub type Parts = Vec<(String, Option<u64>)>;

/// A report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Head line: the program.
    pub title: String,
    /// Line below it: when, where, how long.
    pub subtitle: String,
    /// The answer, at most eight lines.
    pub headline: Vec<String>,
    /// How bad it is: `critical`, `warning`, `info` or empty.
    pub severity: String,
    /// Short facts, name and value.
    pub facts: Vec<(String, String)>,
    /// Sentences that must be seen: damaged input, what is left out.
    pub notes: Vec<String>,
    /// The run that this one is compared with.
    pub baseline: Option<String>,
    /// The process that is shown first.
    pub start: usize,
    /// The last moment of the axis.
    pub end_ms: u64,
    /// The processes.
    pub processes: Vec<Process>,
    /// Memory over time.
    pub lanes: Vec<Lane>,
    /// Alerts, forecasts and deaths.
    pub marks: Vec<Mark>,
    /// Phases and steps.
    pub stretches: Vec<Stretch>,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    /// Groups of names and values: the command, versions, variables.
    pub environment: Vec<(String, Rows)>,
    /// Stacks over time.
    #[serde(skip)]
    pub graphs: Vec<Graph>,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Process {
    /// `train.py`.
    pub name: String,
    /// Its number.
    pub pid: Option<u32>,
    /// Its rank, in a job of several.
    pub rank: Option<u64>,
    /// `running`, `completed`, `deliberate`, `failed` or `unknown`.
    pub ended: String,
    /// One sentence: what happened.
    pub what_happened: String,
    /// Most bytes resident, or the most of its lanes.
    pub peak_bytes: Option<u64>,
    /// Most bytes of its devices, by name.
    pub devices: Vec<(String, u64)>,
    /// What held the memory.
    pub held: Vec<Held>,
    /// Why it stands out among the ranks; empty where it does not.
    pub outlier: String,
    /// What its memory consists of, by memory: name and parts.
    pub parts: Vec<(String, Parts)>,
}

/// A line that holds memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Held {
    /// `host`, `cuda:0`.
    pub memory: String,
    /// Bytes.
    pub bytes: u64,
    /// `dataset.py:88 Cache.put · kept by …`.
    pub words: String,
}

/// Lines on one pair of axes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Lane {
    /// Place of its process in [`Report::processes`].
    pub process: usize,
    /// `host`, `cuda:0`.
    pub memory: String,
    /// `host memory`.
    pub title: String,
    /// The lines.
    pub lines: Vec<Line>,
    /// A level that must not be passed.
    pub limit: Option<Rule>,
    /// Points that were left out on the way here.
    pub thinned: u64,
}

/// What a line is, which decides how it is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineKind {
    /// The one that is looked at.
    #[default]
    Main,
    /// One beside it.
    Other,
    /// What nothing accounts for.
    Hidden,
    /// The same of the run that this one is compared with.
    Before,
}

/// One counter over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Line {
    /// `RSS`, `allocated`.
    pub name: String,
    /// What it is.
    pub kind: LineKind,
    /// When, ascending.
    pub time: Vec<u64>,
    /// How much.
    pub bytes: Vec<u64>,
}

/// A named level.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rule {
    /// What it is.
    pub name: String,
    /// Where.
    pub bytes: u64,
}

/// A moment at which something happened.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Mark {
    /// Place of its process in [`Report::processes`].
    pub process: usize,
    /// When.
    pub at: u64,
    /// `forecast`, `warning`, `out of memory`, `died`.
    pub name: String,
    /// `critical`, `warning` or `info`.
    pub severity: String,
    /// The sentence.
    pub text: String,
    /// Of a forecast: when the limit is reached.
    pub limit_at: Option<u64>,
}

/// A stretch of time with a name.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stretch {
    /// Place of its process in [`Report::processes`].
    pub process: usize,
    /// `train / forward`.
    pub name: String,
    /// It is one of many alike.
    pub is_step: bool,
    /// Its start.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

/// What a rule found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Finding {
    /// `critical`, `warning` or `info`.
    pub severity: String,
    /// `leak`, `oom`.
    pub kind: String,
    /// One line.
    pub title: String,
    /// The explanation.
    pub message: String,
    /// 0 to 1.
    pub confidence: f64,
    /// It cannot be judged yet.
    pub undecided: bool,
    /// Which process and memory, in words; may be empty.
    pub place: String,
    /// `train.py:31 collect`; may be empty.
    pub holder: String,
    /// Where to look, a line each.
    pub evidence: Vec<String>,
    /// What to do, the best first.
    pub advice: Vec<String>,
    /// The stretch of time it is about.
    pub span: Option<(u64, u64)>,
}

/// The stacks of one memory of one process.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Place of its process in [`Report::processes`].
    pub process: usize,
    /// `host`, `cuda:0`.
    pub memory: String,
    /// When its recording began.
    pub offset_ms: u64,
    /// It shows what changed since another run.
    pub is_difference: bool,
    /// Stacks, and when their memory came and went.
    pub flame: FlameGraph,
}
