//! The groups of `stormlog --help`. clap lists subcommands flat; thirty of them need headings.
//!
//! A command belongs to exactly one group (a test holds it); what it is for comes from its own help text.

use std::fmt::Write as _;

use clap::Command;

/// The headings, each with its commands.
pub const GROUPS: [(&str, &[&str]); 8] = [
    ("Record", &["run", "runs", "attach", "detach", "trigger", "track", "sanitize", "live", "tui", "top"]),
    ("After a crash", &["report", "oom", "why", "diagnose"]),
    (
        "Heap",
        &[
            "captures",
            "stats",
            "summary",
            "flamegraph",
            "tree",
            "table",
            "leaks",
            "diff",
            "transform",
            "parse",
        ],
    ),
    ("GPU snapshots", &["snapshot", "replay", "timeline"]),
    ("Telemetry", &["analyze", "compare", "check", "query", "sql", "sessions", "convert", "validate"]),
    ("Fleet", &["fleet", "publish", "compact", "lake", "ship", "fetch"]),
    ("Machine", &["info", "monitor"]),
    ("Monitoring", &["serve", "rules", "dashboard"]),
];

const TEMPLATE: &str = "{about}\n\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}\n";

/// Puts the subcommands under their headings.
pub(crate) fn group(command: Command) -> Command {
    let headings = headings(&command);
    command.help_template(TEMPLATE).after_help(headings)
}

fn headings(command: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = write!(text, "\n{title}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let _ = write!(text, "\n  {name:<11} {}", about.unwrap_or_default());
        }
        text.push('\n');
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_visible_command_is_in_exactly_one_group() {
        let command = Cli::command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut visible: Vec<&str> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        grouped.sort_unstable();
        visible.sort_unstable();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn help_lines_fit_a_terminal() {
        for line in headings(&Cli::command()).lines() {
            assert!(line.len() <= 92, "{line}");
            assert!(!line.ends_with('.') || line.ends_with("..."), "{line}");
        }
    }
}
