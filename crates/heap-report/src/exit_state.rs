//! How the recorded process came to its end, as far as the capture and this machine tell. Must never call a process dead that still runs.

use serde_json::Value;
use stormlog_capture::layout::state;
use stormlog_heap::Heap;
use stormlog_liveness::Life;
use stormlog_model::format_bytes;
use stormlog_model::text::short_name;
use stormlog_postmortem::{Cause, signal_name};

use crate::text::when;

/// What is known of the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It has not come yet.
    Running,
    /// The process ended with this code.
    Exited(i64),
    /// It, or its recording, ended on its own; its exit code is unknown.
    Finished,
    /// Its recording was stopped; the process may have gone on.
    Stopped,
    /// A signal killed it, or the kernel's OOM killer.
    Killed(String),
    /// The file is truncated; this many bytes at its end are not whole records.
    Cut(u64),
    /// The end was not observed.
    Unseen,
    /// The file of another tool, which does not record it.
    NotRecorded,
}

impl End {
    /// The end of what `heap` was read from.
    #[must_use]
    pub fn of(heap: &Heap) -> End {
        if heap.imported.is_some() {
            return End::NotRecorded;
        }
        let ending = heap.ending.as_ref();
        let word = |key: &str| ending.and_then(|ending| ending.get(key)).filter(|value| !value.is_null());
        let exit_code = word("exit_code").and_then(Value::as_i64);
        let cause = word("cause").and_then(Value::as_str);
        // The header of a large file is as old as the file.
        let last = word("state").and_then(Value::as_u64).unwrap_or(heap.header.state.into());
        match (word("signal"), exit_code) {
            _ if cause == Some(Cause::CgroupOomKill.as_str()) => {
                End::Killed("the kernel's OOM killer (its cgroup was full)".to_owned())
            }
            _ if cause == Some(Cause::GlobalOomKill.as_str()) => {
                End::Killed("the kernel's OOM killer".to_owned())
            }
            (Some(Value::String(name)), _) => End::Killed(short_name(name)),
            (Some(number), _) => {
                End::Killed(match number.as_i64().and_then(|number| number.try_into().ok()) {
                    Some(number) => signal_name(number),
                    None => format!("signal {}", short_name(&number.to_string())),
                })
            }
            (None, Some(code)) => End::Exited(code),
            (None, None) if heap.complete && last == u64::from(state::STOPPED) => End::Stopped,
            (None, None) if heap.complete => End::Finished,
            (None, None) if heap.cut.is_none() && is_running(heap) => End::Running,
            (None, None) => heap.cut.map_or(End::Unseen, End::Cut),
        }
    }

    /// In a few words; `duration` is what was recorded, in microseconds.
    #[must_use]
    pub fn words(&self, duration: u64) -> String {
        let after = when(duration);
        match self {
            End::Running => format!("not yet: still running after {after}"),
            End::Exited(0) => format!("exited 0 after {after}"),
            End::Exited(code) => format!("exited {code} after {after}"),
            End::Finished => format!("finished after {after}"),
            End::Stopped => format!("stopped after {after}"),
            End::Killed(by) => format!("killed by {by} after {after}"),
            End::Cut(_) => format!("unknown: the file is truncated after {after}"),
            End::Unseen => format!("killed after {after}, or still running elsewhere"),
            End::NotRecorded => "not recorded in this file".to_owned(),
        }
    }

    /// What is said of a capture without an allocation.
    #[must_use]
    pub fn nothing(&self) -> &'static str {
        match self {
            End::Running => "Nothing was allocated so far.",
            _ => "Nothing was allocated while this was recorded.",
        }
    }

    /// What is said of a file that was cut, besides whatever is left of it.
    #[must_use]
    pub fn cut(&self) -> Option<String> {
        match self {
            End::Cut(0) => Some(
                "The file is truncated: how it ended is missing, and records before that may be missing too."
                    .to_owned(),
            ),
            End::Cut(bytes) => Some(format!(
                "The file is truncated: its last {} are incomplete records, and what followed is missing.",
                format_bytes(*bytes)
            )),
            _ => None,
        }
    }

    /// When what lived last was there.
    #[must_use]
    pub fn moment(&self) -> &'static str {
        match self {
            End::Running => "now",
            End::Exited(_) | End::Finished | End::Stopped | End::NotRecorded => "at the end",
            End::Killed(_) => "at death",
            End::Cut(_) | End::Unseen => "last seen",
        }
    }
}

/// Whether the process of a capture is there, and is that process and not a later one of its number.
fn is_running(heap: &Heap) -> bool {
    stormlog_liveness::exists(heap.header.pid, Some(heap.header.process_start_ticks)) == Life::Alive
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use stormlog_heap::{Capture, HeapReadOptions};

    use super::*;

    #[test]
    fn ending_text_reports_the_cause() {
        let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../heap/tests/data/heap.bin");
        let mut heap = Capture::open(&capture).unwrap().read(HeapReadOptions::default()).unwrap();
        for (ending, words) in [
            (json!({"state": 1, "exit_code": 0, "signal": null}), "exited 0 after 1.0 s"),
            (json!({"state": 1}), "finished after 1.0 s"),
            (json!({"state": 2, "cause": "stopped"}), "stopped after 1.0 s"),
            (json!({"state": 2, "exit_code": 3}), "exited 3 after 1.0 s"),
            (json!({"state": 0, "signal": 9, "cause": "sigkill"}), "killed by SIGKILL after 1.0 s"),
            (
                json!({"state": 0, "signal": 9, "cause": "cgroup_oom_kill"}),
                "killed by the kernel's OOM killer (its cgroup was full) after 1.0 s",
            ),
            (
                json!({"state": 0, "signal": 9, "cause": "global_oom_kill"}),
                "killed by the kernel's OOM killer after 1.0 s",
            ),
        ] {
            heap.ending = Some(ending);
            assert_eq!(End::of(&heap).words(1_000_000), words);
        }
        heap.cut = Some(0);
        heap.ending = None;
        heap.complete = false;
        assert_eq!(End::of(&heap), End::Cut(0));
    }
}
