//! How many processes of a run died, of what, and when the last one did.
//!
//! A death is an end that was a failure by its evidence: deliberate and completed ends are none, and neither is the exit code of a tool that a program
//! started for a moment. The supervisor, which saw the end, decides it once ([`is_death`]); readers count what it wrote. Must never read a file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stormlog_postmortem::{Cause, Ended};

use super::record::RunRecord;

/// In the metadata of a process's last event: the cause it died of.
pub const DEATH: &str = "death";

/// Deaths of one cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeathCount {
    /// How many.
    pub count: u64,
    /// When the last one was, nanoseconds since 1970.
    pub last_at_ns: i64,
    /// The bundle it left.
    pub bundle: Option<String>,
}

impl DeathCount {
    /// One more.
    pub fn add(&mut self, at_ns: i64, bundle: Option<String>) {
        self.count = self.count.saturating_add(1);
        if at_ns >= self.last_at_ns {
            (self.last_at_ns, self.bundle) = (at_ns, bundle);
        }
    }

    /// Takes in what another count of the same deaths knows more of.
    pub fn raise(&mut self, other: &DeathCount) {
        self.count = self.count.max(other.count);
        if other.last_at_ns > self.last_at_ns
            || (other.last_at_ns == self.last_at_ns && self.bundle.is_none())
        {
            (self.last_at_ns, self.bundle) = (other.last_at_ns, other.bundle.clone());
        }
    }
}

/// Deaths by cause.
pub type Deaths = BTreeMap<Cause, DeathCount>;

/// Whether an end is a death. `is_tool`: a process that was there for a moment and left nothing but an exit code.
#[must_use]
pub fn is_death(ended: Ended, cause: Cause, is_tool: bool) -> bool {
    ended == Ended::Failed && !(is_tool && cause == Cause::Exit)
}

impl RunRecord {
    /// Deaths of its processes, as its supervisor counted them. Of a run of an older version, or one whose supervisor was killed, by what is known of
    /// its processes: there a tool cannot be distinguished from a worker, and only the program's own exit code counts.
    #[must_use]
    pub fn deaths(&self) -> Deaths {
        let mut deaths = Deaths::new();
        if let Some(counted) = &self.deaths {
            let known =
                counted.iter().filter_map(|(word, count)| Some((Cause::of_word(word)?, count.clone())));
            deaths.extend(known.filter(|(_, count)| count.count > 0));
            return deaths;
        }
        let at_ns = self.ended_at_ns.or(self.started_at_ns).unwrap_or(0);
        for row in &self.processes {
            let cause = row.cause.as_deref().and_then(Cause::of_word).unwrap_or(Cause::Unknown);
            let ended = row.ended.as_deref().and_then(Ended::of_word);
            // Older versions judged no end: there every cause was a failure.
            let ended = ended.unwrap_or(if row.cause.is_some() { Ended::Failed } else { Ended::Unknown });
            if is_death(ended, cause, self.pid != Some(row.pid)) {
                deaths.entry(cause).or_default().add(at_ns, None);
            }
        }
        deaths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> RunRecord {
        serde_json::from_str(text).unwrap_or_default()
    }

    #[test]
    fn deaths_are_those_that_the_supervisor_counted() {
        let counted = record(
            r#"{"deaths": {"sigkill": {"count": 300, "last_at_ns": 7, "bundle": "b"}, "signal": {"count": 0}, "else": {"count": 1}},
                "processes": [{"pid": 1, "cause": "sigkill", "ended": "failed"}]}"#,
        );
        let expected = DeathCount { count: 300, last_at_ns: 7, bundle: Some("b".to_owned()) };
        assert_eq!(counted.deaths(), Deaths::from([(Cause::SigKill, expected)]));
    }

    #[test]
    fn deaths_of_a_run_without_a_count_are_its_failed_processes() {
        let rows = record(
            r#"{"pid": 1, "ended_at_ns": 9, "processes": [
                {"pid": 1, "cause": "exit", "ended": "failed"}, {"pid": 2, "cause": "exit", "ended": "failed"},
                {"pid": 3, "cause": "signal", "ended": "deliberate"}, {"pid": 4, "cause": "cgroup_oom_kill"},
                {"pid": 5, "ended": "completed"}, {"pid": 6, "cause": "unknown", "ended": "unknown"}]}"#,
        );
        let counts: Vec<(Cause, u64)> =
            rows.deaths().into_iter().map(|(cause, count)| (cause, count.count)).collect();
        assert_eq!(
            counts,
            [(Cause::CgroupOomKill, 1), (Cause::Exit, 1)],
            "one's own exit code, not a tool's"
        );
    }

    #[test]
    fn two_counts_of_the_same_deaths_are_not_added() {
        let mut seen = DeathCount { count: 3, last_at_ns: 5, bundle: None };
        seen.raise(&DeathCount { count: 2, last_at_ns: 5, bundle: Some("b".to_owned()) });
        assert_eq!(seen, DeathCount { count: 3, last_at_ns: 5, bundle: Some("b".to_owned()) });
    }
}
