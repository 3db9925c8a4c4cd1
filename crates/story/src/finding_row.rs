//! A finding as one row of a list: beside what the rule found, the process it is about by name and rank, and the moment to look at.

use stormlog_analyze::report::is_worth_a_line;
use stormlog_model::Finding;
use stormlog_model::memory::Memory;

use crate::holder::Holder;
use crate::judged::Judged;

/// A finding in a list. `None` is not known.
#[derive(Debug, Clone, PartialEq)]
pub struct FindingRow {
    /// What was found.
    pub finding: Finding,
    /// What the user would call the program.
    pub program: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
    /// Its rank, where it is one of several.
    pub rank: Option<u64>,
    /// The memory it is about.
    pub memory: Option<Memory>,
    /// How many bytes of it; of an end, the most that the process had.
    pub bytes: Option<u64>,
    /// The line that holds the memory; of an end, what held most of it then.
    pub held_by: Option<String>,
    /// The moment at which the evidence shows it, nanoseconds since 1970.
    pub at_ns: Option<u64>,
}

impl Judged {
    /// The findings that `stormlog analyze` prints, the worst first.
    #[must_use]
    pub fn finding_rows(&self) -> Vec<FindingRow> {
        self.analysis
            .findings
            .iter()
            .filter(|finding| is_worth_a_line(finding))
            .map(|one| self.row(one))
            .collect()
    }

    fn row(&self, finding: &Finding) -> FindingRow {
        let pid = finding.process.and_then(|pid| u32::try_from(pid).ok());
        let processes = &self.story.processes;
        let process = match pid {
            Some(_) => processes.iter().find(|process| process.pid == pid),
            // A finding of no process, in a recording of one.
            None => processes.first().filter(|_| processes.len() == 1),
        };
        // The end of a process is about what it held.
        let ended = process.filter(|_| matches!(finding.kind.as_str(), "oom" | "crash" | "end"));
        let own = finding.holder.as_ref().map(|holder| match holder.line {
            0 => holder.function.clone(),
            line => format!("{}:{line}", holder.file),
        });
        FindingRow {
            memory: finding.memory.or(ended.map(|process| process.failed_memory.unwrap_or_default())),
            bytes: finding.size_bytes().or(ended.and_then(|process| process.peak_rss_bytes)),
            held_by: own.or_else(|| ended.and_then(|process| process.held.first()).map(Holder::place)),
            program: process.and_then(|process| process.program.clone()),
            rank: process.filter(|process| process.is_of_several()).and_then(|process| process.rank),
            pid: pid.or(process.and_then(|process| process.pid)),
            // The end: what held the memory is held there.
            at_ns: finding.evidence.iter().find_map(|evidence| evidence.end_ns.or(evidence.start_ns)),
            finding: finding.clone(),
        }
    }
}
