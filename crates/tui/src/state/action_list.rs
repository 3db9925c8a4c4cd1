//! The actions there are: their fields, and the command line that each makes of them. Values in, words out; nothing is run here.

use std::path::PathBuf;

use stormlog_model::text::{command_line, split_words};

use crate::state::actions::{Plan, SignalName};

/// What a field holds before the user types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Empty,
    Text(&'static str),
    /// The recording that was chosen in another view.
    Path,
    /// The process that was chosen in another view.
    Pid,
    /// The process, or else the recording.
    PidOrPath,
    /// The directory of runs.
    Root,
    /// A file named after the recording with this ending.
    Output(&'static str),
}

/// A line of the form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldSpec {
    pub(crate) name: &'static str,
    pub(crate) start: Start,
    pub(crate) is_required: bool,
    /// Where only these are possible.
    pub(crate) choices: &'static [&'static str],
}

const fn must(name: &'static str, start: Start) -> FieldSpec {
    FieldSpec { name, start, is_required: true, choices: &[] }
}

const fn may(name: &'static str, start: Start) -> FieldSpec {
    FieldSpec { name, start, is_required: false, choices: &[] }
}

/// What an action leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ActionTarget {
    /// A command in the background.
    Job(Plan),
    /// A signal, once it is confirmed.
    Signal { pid: u32, signal: SignalName },
}

impl ActionTarget {
    /// The command line that does the same.
    pub(crate) fn line(&self) -> String {
        match self {
            ActionTarget::Job(plan) => command_line(&plan.words),
            ActionTarget::Signal { pid, signal } => format!("kill -{} {pid}", signal.word()),
        }
    }
}

/// An action.
pub(crate) struct ActionSpec {
    pub(crate) title: &'static str,
    pub(crate) what: &'static str,
    pub(crate) fields: &'static [FieldSpec],
    make: fn(&Values<'_>) -> Result<ActionTarget, String>,
}

impl ActionSpec {
    /// What it leads to with these values, in the order of its fields; what is wrong with them otherwise.
    pub(crate) fn deed(&self, values: &[&str]) -> Result<ActionTarget, String> {
        for (field, value) in self.fields.iter().zip(values) {
            if field.is_required && value.trim().is_empty() {
                return Err(format!("{} is missing: e edits the fields", field.name));
            }
        }
        (self.make)(&Values(values))
    }
}

/// The values of the fields.
struct Values<'a>(&'a [&'a str]);

impl Values<'_> {
    fn text(&self, at: usize) -> String {
        self.0.get(at).map(|value| value.trim().to_owned()).unwrap_or_default()
    }

    /// A path as an argument: never an option.
    fn path(&self, at: usize) -> String {
        let text = self.text(at);
        if text.starts_with('-') { format!("./{text}") } else { text }
    }

    fn pid(&self, at: usize) -> Result<u32, String> {
        let text = self.text(at);
        text.parse()
            .ok()
            .filter(|pid| *pid > 0)
            .ok_or_else(|| format!("pid: {text:?} is not a process number"))
    }

    fn words(&self, at: usize) -> Result<Vec<String>, String> {
        match self.text(at) {
            text if text.is_empty() => Ok(Vec::new()),
            text => split_words(&text).map_err(|error| error.to_string()),
        }
    }
}

/// A command of ours.
fn own(words: &[&str]) -> Plan {
    let words = std::iter::once("stormlog").chain(words.iter().copied());
    Plan { words: words.map(str::to_owned).collect(), output: None }
}

impl Plan {
    fn and(mut self, words: impl IntoIterator<Item = String>) -> Self {
        self.words.extend(words);
        self
    }

    /// An option that is left out where its value is empty.
    fn option(self, name: &str, value: String) -> Self {
        if value.is_empty() { self } else { self.and([name.to_owned(), value]) }
    }

    fn writes(mut self, output: String) -> Self {
        self.output = Some(PathBuf::from(output));
        self
    }

    fn job(self) -> Result<ActionTarget, String> {
        Ok(ActionTarget::Job(self))
    }
}

const SIGNALS: FieldSpec = FieldSpec {
    name: "signal",
    start: Start::Text("TERM"),
    is_required: true,
    choices: &["TERM", "INT", "KILL", "STOP", "CONT"],
};

/// All actions, in the order of the menu.
pub(crate) const ACTIONS: &[ActionSpec] = &[
    ActionSpec {
        title: "Record a program",
        what: "Run a program and keep the evidence of how it ends",
        fields: &[must("command", Start::Empty), may("directory", Start::Root), may("options", Start::Empty)],
        make: |values| {
            let plan = own(&["run"]).option("--dir", values.text(1)).and(values.words(2)?);
            plan.and(["--".to_owned()]).and(values.words(0)?).job()
        },
    },
    ActionSpec {
        title: "Record a process",
        what: "Record the heap of a running process until it ends or the job is ended",
        fields: &[must("pid", Start::Pid), may("options", Start::Text("--heap"))],
        make: |values| own(&["attach"]).and(values.words(1)?).and([values.pid(0)?.to_string()]).job(),
    },
    ActionSpec {
        title: "Detach",
        what: "End a recording that attach began",
        fields: &[must("pid", Start::Pid)],
        make: |values| own(&["detach"]).and([values.pid(0)?.to_string()]).job(),
    },
    ActionSpec {
        title: "Track a process",
        what: "Sample its memory with alerts, and write the events to a file",
        fields: &[
            must("pid", Start::Pid),
            may("seconds", Start::Text("60")),
            must("file", Start::Output("track.json")),
        ],
        make: |values| {
            let plan = own(&["track", "--pid"])
                .and([values.pid(0)?.to_string()])
                .option("--duration", values.text(1));
            plan.and(["--format", "json", "--output"].map(str::to_owned))
                .and([values.path(2)])
                .writes(values.path(2))
                .job()
        },
    },
    ActionSpec {
        title: "Snapshot",
        what: "What holds the memory of a process now, by component and by line",
        fields: &[must("pid", Start::Pid), may("heap seconds", Start::Empty), may("directory", Start::Empty)],
        make: |values| {
            let plan = own(&["snapshot", "--pid"]).and([values.pid(0)?.to_string()]);
            plan.option("--heap", values.text(1)).option("--output", values.path(2)).job()
        },
    },
    ActionSpec {
        title: "Why",
        what: "What keeps the memory of a process, or of one that reported it when it ended",
        fields: &[must("subject", Start::PidOrPath)],
        make: |values| own(&["why"]).and([values.path(0)]).job(),
    },
    ActionSpec {
        title: "Report page",
        what: "Everything about a recording as one HTML page",
        fields: &[must("recording", Start::Path), must("file", Start::Output("report.html"))],
        make: |values| {
            own(&["report", "-o"]).and([values.path(1), values.path(0)]).writes(values.path(1)).job()
        },
    },
    ActionSpec {
        title: "Flame graph",
        what: "A heap capture as a flame graph",
        fields: &[
            must("recording", Start::Path),
            must("file", Start::Output("flamegraph.html")),
            may("options", Start::Empty),
        ],
        make: |values| {
            let plan = own(&["flamegraph", "-o"]).and([values.path(1)]).and(values.words(2)?);
            plan.and([values.path(0)]).writes(values.path(1)).job()
        },
    },
    ActionSpec {
        title: "Plots",
        what: "Memory over time and the ranks of a job, as PNG and SVG",
        fields: &[must("recording", Start::Path), must("directory", Start::Output("plots"))],
        make: |values| {
            let plan =
                own(&["analyze", "--visualization", "--plot-dir"]).and([values.path(1), values.path(0)]);
            plan.writes(values.path(1)).job()
        },
    },
    ActionSpec {
        title: "CSV",
        what: "The telemetry of a recording as CSV",
        fields: &[must("recording", Start::Path), must("file", Start::Output("events.csv"))],
        make: |values| own(&["convert"]).and([values.path(0), values.path(1)]).writes(values.path(1)).job(),
    },
    ActionSpec {
        title: "Parquet",
        what: "The telemetry of a recording as Parquet",
        fields: &[must("recording", Start::Path), must("file", Start::Output("events.parquet"))],
        make: |values| own(&["convert"]).and([values.path(0), values.path(1)]).writes(values.path(1)).job(),
    },
    ActionSpec {
        title: "Analysis",
        what: "Find what is wrong with a recording; .json, .md, .html or .txt",
        fields: &[must("recording", Start::Path), must("file", Start::Output("analysis.json"))],
        make: |values| {
            own(&["analyze", "--output"]).and([values.path(1), values.path(0)]).writes(values.path(1)).job()
        },
    },
    ActionSpec {
        title: EXPORT_BUNDLE,
        what: "A crash as one JSON file, or its events as .jsonl, .csv or .parquet",
        fields: &[must("bundle", Start::Path), must("file", Start::Output("bundle.json"))],
        make: |values| {
            own(&["oom", "export"]).and([values.path(0), values.path(1)]).writes(values.path(1)).job()
        },
    },
    ActionSpec {
        title: "Diagnose",
        what: "A diagnostic bundle for a bug report",
        fields: &[
            must("directory", Start::Text("stormlog-diagnose")),
            may("pid", Start::Pid),
            may("seconds", Start::Text("5")),
        ],
        make: |values| {
            let pid = if values.text(1).is_empty() { String::new() } else { values.pid(1)?.to_string() };
            let plan = own(&["diagnose", "--output"]).and([values.path(0)]).option("--pid", pid);
            plan.option("--duration", values.text(2)).job()
        },
    },
    ActionSpec {
        title: "Signal",
        what: "Send a signal to a process; asks first, with its user and command",
        fields: &[must("pid", Start::Pid), SIGNALS],
        make: |values| {
            let signal =
                SignalName::of_word(&values.text(1)).ok_or("signal: TERM, INT, KILL, STOP or CONT")?;
            Ok(ActionTarget::Signal { pid: values.pid(0)?, signal })
        },
    },
    ActionSpec {
        title: "Any command",
        what: "A program and its arguments, without a shell",
        fields: &[must("command", Start::Text("stormlog info"))],
        make: |values| Plan { words: values.words(0)?, output: None }.job(),
    },
];

/// The action for a bundle that was chosen among the crashes.
pub(crate) const EXPORT_BUNDLE: &str = "Export a bundle";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn line(title: &str, values: &[&str]) -> String {
        let action = ACTIONS.iter().find(|action| action.title == title).unwrap();
        assert_eq!(action.fields.len(), values.len(), "{title}");
        match action.deed(values) {
            Ok(deed) => deed.line(),
            Err(problem) => format!("! {problem}"),
        }
    }

    #[test]
    fn each_action_is_a_command_line_that_can_be_typed() {
        for (title, values, wanted) in [
            (
                "Record a program",
                &["python3 'my train.py' -n 3", "runs", "--heap"][..],
                "stormlog run --dir runs --heap -- python3 'my train.py' -n 3",
            ),
            ("Record a process", &["7", "--sample --duration 5"], "stormlog attach --sample --duration 5 7"),
            ("Detach", &["7"], "stormlog detach 7"),
            (
                "Track a process",
                &["7", "60", "t.json"],
                "stormlog track --pid 7 --duration 60 --format json --output t.json",
            ),
            ("Snapshot", &["7", "", "look"], "stormlog snapshot --pid 7 --output look"),
            ("Why", &["runs/a"], "stormlog why runs/a"),
            ("Report page", &["runs/a", "a.html"], "stormlog report -o a.html runs/a"),
            ("Flame graph", &["-a", "a.html", ""], "stormlog flamegraph -o a.html ./-a"),
            ("Plots", &["runs/a", "plots"], "stormlog analyze --visualization --plot-dir plots runs/a"),
            ("CSV", &["runs/a", "a.csv"], "stormlog convert runs/a a.csv"),
            ("Parquet", &["runs/a", "a.parquet"], "stormlog convert runs/a a.parquet"),
            ("Analysis", &["runs/a", "a.json"], "stormlog analyze --output a.json runs/a"),
            ("Export a bundle", &["oom_dump", "b.json"], "stormlog oom export oom_dump b.json"),
            ("Diagnose", &["d", "", "5"], "stormlog diagnose --output d --duration 5"),
            ("Signal", &["7", "STOP"], "kill -STOP 7"),
            ("Any command", &["ls -l '$HOME'"], "ls -l '$HOME'"),
        ] {
            assert_eq!(line(title, values), wanted);
        }
    }

    #[test]
    fn values_that_cannot_be_are_named() {
        assert_eq!(line("Detach", &["-1"]), "! pid: \"-1\" is not a process number");
        assert_eq!(line("Signal", &["7", "HUP"]), "! signal: TERM, INT, KILL, STOP or CONT");
        assert_eq!(line("Any command", &["'open"]), "! the command has an unclosed quotation mark");
        assert_eq!(line("Any command", &["  "]), "! command is missing: e edits the fields");
    }
}
