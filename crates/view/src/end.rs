//! How the recorded process came to its end, as far as the capture and this machine tell. Must never call a process dead that still runs.

use serde_json::Value;
use stormlog_collect::process::ProcessReader;
use stormlog_event::format_bytes;
use stormlog_heap::Heap;
use stormlog_record::signal_name;

use crate::text::{plain, when};

/// What is known of the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It has not come yet.
    Running,
    /// The process ended with this code.
    Exited(i64),
    /// It, or its recording, ended on its own; nobody saw the code.
    Finished,
    /// A signal killed it.
    Killed(String),
    /// It was cut off the file; so many bytes at the end of what is left are no whole records.
    Cut(u64),
    /// Nobody saw it.
    Unseen,
}

impl End {
    /// The end of what `heap` was read from.
    #[must_use]
    pub fn of(heap: &Heap) -> End {
        let ending = heap.ending.as_ref();
        let word = |key: &str| ending.and_then(|ending| ending.get(key)).filter(|value| !value.is_null());
        let exit_code = word("exit_code").and_then(Value::as_i64);
        match (word("signal"), exit_code) {
            (Some(Value::String(name)), _) => End::Killed(plain(name)),
            (Some(number), _) => {
                End::Killed(match number.as_i64().and_then(|number| number.try_into().ok()) {
                    Some(number) => signal_name(number),
                    None => format!("signal {}", plain(&number.to_string())),
                })
            }
            (None, Some(code)) => End::Exited(code),
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
            End::Exited(0) => format!("well, after {after}"),
            End::Exited(code) => format!("with exit code {code} after {after}"),
            End::Finished => format!("on its own after {after}"),
            End::Killed(signal) => format!("killed by {signal} after {after}"),
            End::Cut(_) => format!("not known: the file was cut after {after}"),
            End::Unseen => format!("killed after {after}, or still running elsewhere"),
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
                "The file was cut: how it ended is missing, and what came before that may be.".to_owned(),
            ),
            End::Cut(bytes) => Some(format!(
                "The file was cut: its last {} are no whole records, and what came after them is missing.",
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
            End::Exited(_) | End::Finished => "at the end",
            End::Killed(_) => "at death",
            End::Cut(_) | End::Unseen => "last seen",
        }
    }
}

/// Whether the process of a capture is there, and is that process and not a later one of its number.
fn is_running(heap: &Heap) -> bool {
    let header = &heap.header;
    let Ok(mut process) = ProcessReader::open(header.pid) else { return false };
    header.process_start_ticks == process.start_time() && process.stat().is_ok_and(|stat| !stat.has_exited())
}
