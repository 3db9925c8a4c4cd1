//! How a process ended, in one of five words that scripts match. Only failures are crashes.

use std::fmt;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It has not.
    Running,
    /// With exit status 0.
    Completed,
    /// Otherwise, and evidence shows that it was intended: a process above it stopped it, or it chose its exit status.
    Deliberate,
    /// By an error, a crash or a kill.
    Failed,
    /// No evidence shows how, or what for: it vanished, or a signal that programs are stopped with came from an unknown sender.
    Unknown,
}

impl Ended {
    const ALL: [Ended; 5] =
        [Ended::Running, Ended::Completed, Ended::Deliberate, Ended::Failed, Ended::Unknown];

    /// The word written to files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Ended::Running => "running",
            Ended::Completed => "completed",
            Ended::Deliberate => "deliberate",
            Ended::Failed => "failed",
            Ended::Unknown => "unknown",
        }
    }

    /// The end of that word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ended| ended.as_str() == word)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
