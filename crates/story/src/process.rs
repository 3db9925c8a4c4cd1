//! The story of one process: plain values, filled by [`crate::evidence`] from what was recorded.

use serde_json::{Value, json};
use stormlog_model::Finding;
use stormlog_model::memory::Memory;
use stormlog_postmortem::{Cause, Ended};

use crate::holder::Holder;
use crate::residual::Residual;

/// Everything that matters about one process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessStory {
    /// Its number.
    pub pid: Option<u32>,
    /// What the user would call it: `train.py`.
    pub program: Option<String>,
    /// Its rank in the job.
    pub rank: Option<u64>,
    /// Ranks in the job.
    pub world_size: Option<u64>,
    /// Whether it is the process that the run started.
    pub is_root: bool,
    /// Nothing but a heap capture of it is known.
    pub is_capture_only: bool,
    /// How it ended.
    pub ended: Ended,
    /// What ended it, where something did.
    pub cause: Option<Cause>,
    /// One sentence: what happened.
    pub what_happened: String,
    /// Why, where more is known than what happened: what the allocator was short of, what grew.
    pub reason: Option<String>,
    /// The exception that the program reported, and the line that raised it.
    pub raised: Option<String>,
    /// What it was doing then, in the words of its tracker: `epoch 1, step 5`.
    pub during: Option<String>,
    /// How sure that is, 0 to 1; `None` where it was recorded by a version that did not keep it.
    pub confidence: Option<f64>,
    /// The memory whose request failed.
    pub failed_memory: Option<Memory>,
    /// The requests that got no memory, a sentence each, those of devices first.
    pub failed_requests: Vec<String>,
    /// What to do about the last of them, where no release of other memory could have helped.
    pub outsized_request: Option<String>,
    /// What held the memory at the moment that matters, in the order of every view.
    pub held: Vec<Holder>,
    /// The lines that held most when each memory was fullest, as its capture shows them.
    pub held_at_peak: Vec<Holder>,
    /// When that was, where it was not the end.
    pub held_when: Option<&'static str>,
    /// The layers of its memories.
    pub residuals: Vec<Residual>,
    /// What is wrong with it, the worst first.
    pub findings: Vec<Finding>,
    /// What to change, the best first.
    pub advice: Vec<String>,
    /// What the memory of the device whose request failed was for: category and bytes.
    pub purposes: Vec<(String, u64)>,
    /// First sample, nanoseconds since 1970.
    pub started_at_ns: Option<i64>,
    /// Last sample of an ended process, nanoseconds since 1970.
    pub ended_at_ns: Option<i64>,
    /// Most bytes resident.
    pub peak_rss_bytes: Option<u64>,
}

impl ProcessStory {
    /// The memory that was held at a moment other than the end, and when that was.
    pub(crate) fn held_moment(&self) -> Option<(Memory, &'static str)> {
        let memory = self.failed_memory.or_else(|| self.held.first().map(|holder| holder.memory));
        memory.zip(self.held_when)
    }

    /// A process of which nothing is known but its end.
    #[must_use]
    pub fn new(ended: Ended, what_happened: String) -> Self {
        ProcessStory {
            pid: None,
            program: None,
            rank: None,
            world_size: None,
            is_root: false,
            is_capture_only: false,
            ended,
            cause: None,
            what_happened,
            reason: None,
            raised: None,
            during: None,
            confidence: None,
            failed_memory: None,
            failed_requests: Vec::new(),
            outsized_request: None,
            held: Vec::new(),
            held_at_peak: Vec::new(),
            held_when: None,
            residuals: Vec::new(),
            findings: Vec::new(),
            advice: Vec::new(),
            purposes: Vec::new(),
            started_at_ns: None,
            ended_at_ns: None,
            peak_rss_bytes: None,
        }
    }

    /// `train.py (pid 7)`, as far as it is known.
    #[must_use]
    pub fn name(&self) -> String {
        let program = self.program.as_deref().unwrap_or("the program");
        self.pid.map_or_else(|| program.to_owned(), |pid| format!("{program} (pid {pid})"))
    }

    /// Whether it is one rank of several.
    #[must_use]
    pub fn is_of_several(&self) -> bool {
        self.rank.is_some() && self.world_size.is_some_and(|ranks| ranks > 1)
    }

    /// `rank 2, pid 7`; without the rank where there is one only.
    #[must_use]
    pub fn number(&self) -> String {
        let rank = self.rank.filter(|_| self.is_of_several()).map(|rank| format!("rank {rank}"));
        let pid = self.pid.map(|pid| format!("pid {pid}"));
        rank.into_iter().chain(pid).collect::<Vec<String>>().join(", ")
    }

    /// Whether it ended because memory ran out.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.cause.is_some_and(Cause::is_memory)
    }

    /// `held` for scripts, the largest first.
    #[must_use]
    pub fn held_values(&self) -> Vec<Value> {
        let mut held: Vec<&Holder> = self.held.iter().collect();
        held.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        held.into_iter().filter_map(|holder| serde_json::to_value(holder).ok()).collect()
    }

    /// The object in `processes[]`: the keys are a promise to scripts.
    #[must_use]
    pub fn to_value(&self) -> Value {
        json!({
            "pid": self.pid, "program": self.program, "rank": self.rank, "world_size": self.world_size, "ended": self.ended,
            "what_happened": self.what_happened, "during": self.during, "cause": self.cause.map(Cause::as_str),
            "confidence": self.confidence, "failed_memory": self.failed_memory,
            "failed_requests": self.failed_requests, "held": self.held, "residuals": self.residuals,
            "peak_rss_bytes": self.peak_rss_bytes,
        })
    }
}
