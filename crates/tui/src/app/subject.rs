//! What the views are about: a run, a process, a file. One view hands it to another.

use std::path::PathBuf;

/// A view of the application, in the order of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ViewName {
    Overview,
    Process,
    Ranks,
    Frameworks,
    Findings,
    Crashes,
    Actions,
}

impl ViewName {
    /// All, as the tabs show them.
    pub const ALL: [ViewName; 7] = [
        ViewName::Overview,
        ViewName::Process,
        ViewName::Ranks,
        ViewName::Frameworks,
        ViewName::Findings,
        ViewName::Crashes,
        ViewName::Actions,
    ];

    /// The word on its tab.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ViewName::Overview => "Overview",
            ViewName::Process => "Process",
            ViewName::Ranks => "Ranks",
            ViewName::Frameworks => "Frameworks",
            ViewName::Findings => "Findings",
            ViewName::Crashes => "Crashes",
            ViewName::Actions => "Actions",
        }
    }

    /// The view of a word, in any case.
    #[must_use]
    pub fn of_word(word: &str) -> Option<ViewName> {
        ViewName::ALL.into_iter().find(|name| name.word().eq_ignore_ascii_case(word))
    }

    /// Its place among the tabs, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What was chosen in one view and is shown by another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The run directory, session, capture, bundle or snapshot.
    pub path: Option<PathBuf>,
    /// The process, where one was chosen; alone for a process that is not recorded.
    pub pid: Option<u32>,
    /// The moment to look at, nanoseconds since 1970.
    pub at_ns: Option<u64>,
}

impl Subject {
    /// A path.
    #[must_use]
    pub fn path(path: PathBuf) -> Self {
        Subject { path: Some(path), ..Subject::default() }
    }

    /// A process that is not recorded.
    #[must_use]
    pub fn pid(pid: u32) -> Self {
        Subject { pid: Some(pid), ..Subject::default() }
    }
}
