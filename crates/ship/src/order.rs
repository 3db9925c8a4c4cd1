//! The order of a run's files on their way, and how each is written at a target.
//!
//! A reader of the target must find a valid run at every moment: what makes a directory a run, a session or a bundle comes after what it
//! describes (but the first `run.json`, without which there is nothing to find), and a live capture before the finished one, into which its parts move.

use stormlog_model::layout::{CAPTURES_DIRECTORY, RUN_FILE, SESSION_FILE, is_capture, is_growing_capture};

/// How a file changes at its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Replaced by a new one: it must never be seen half.
    Replaced,
    /// Written in place or appended to, readable at every moment.
    Growing {
        /// Through memory: its time of change says nothing.
        is_mapped: bool,
    },
}

/// When a file is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// Small, and what questions are asked about: before everything large.
    Telemetry,
    /// The live file of a capture.
    LiveCapture,
    /// The finished file of a capture.
    Capture,
    /// The state of a session.
    Session,
    /// The state of the run.
    Run,
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(crate) fn form(path: &str) -> Form {
    let name = name(path);
    let is_mapped = [".ring", ".slog", ".live"].iter().any(|ending| name.ends_with(ending));
    if is_mapped || name.ends_with(".log") || turn(path) == Turn::Capture {
        Form::Growing { is_mapped }
    } else {
        Form::Replaced
    }
}

pub(crate) fn turn(path: &str) -> Turn {
    let name = name(path);
    let is_growing = path.split('/').next() == Some(CAPTURES_DIRECTORY) && is_growing_capture(name);
    match name {
        RUN_FILE if path == RUN_FILE => Turn::Run,
        SESSION_FILE => Turn::Session,
        _ if name.ends_with(".live") => Turn::LiveCapture,
        _ if is_capture(name) || is_growing => Turn::Capture,
        _ => Turn::Telemetry,
    }
}

/// What paths are sorted by.
pub(crate) fn key(path: &str) -> (Turn, &str, bool, &str) {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    // The manifest makes a directory a bundle.
    (turn(path), directory, name == "manifest.json", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_files_are_sent_last() {
        let mut paths = [
            "run.json",
            "rank0-pid7/session.json",
            "rank0-pid7/oom_dump_1/manifest.json",
            "rank0-pid7/oom_dump_1/zebra.json",
            "heap/7.bin",
            "heap/7.bin.live",
            "rank0-pid7/log/000001.slog",
        ];
        paths.sort_by_key(|path| key(path));
        assert_eq!(
            paths,
            [
                "rank0-pid7/log/000001.slog",
                "rank0-pid7/oom_dump_1/zebra.json",
                "rank0-pid7/oom_dump_1/manifest.json",
                "heap/7.bin.live",
                "heap/7.bin",
                "rank0-pid7/session.json",
                "run.json",
            ]
        );
    }

    #[test]
    fn forms_are_known_by_name() {
        for path in ["a/events.ring", "a/log/000002.slog", "heap/7.bin.live"] {
            assert_eq!(form(path), Form::Growing { is_mapped: true }, "{path}");
        }
        for path in ["ends.log", "output.log", "heap/7.bin", "heap/7.bin.2", "rank0-pid7/heap.bin"] {
            assert_eq!(form(path), Form::Growing { is_mapped: false }, "{path}");
        }
        for path in ["run.json", "a/session.json", "retained-7.json", "a/oom_dump_1/snapshot.pickle"] {
            assert_eq!(form(path), Form::Replaced, "{path}");
        }
    }
}
