//! What clap_mangen leaves out of a man page: the groups of commands, examples, exit status, environment, files, and the way to the other pages.
//!
//! Roff as text: a line that begins with `.` or `'` would be a request, and `-` a hyphen that cannot be searched for or copied.

use std::fmt::Write as _;

use clap::Command;
use stormlog_cli::{Exit, GROUPS, Program};

/// One task a line: what is typed, and what for.
const EXAMPLES: [(&str, &str); 5] = [
    ("run train.py", "Record a program; print what ended it and what held its memory"),
    ("oom show --last", "Show the newest death"),
    ("report stormlog-runs -o report.html", "Write everything about a run as one page"),
    ("analyze stormlog-runs", "Find leaks, growth and fragmentation; exit 3 if there are findings"),
    ("why 4711", "Name the variable that keeps the memory of a running Python process"),
];

/// The commands under the headings of `stormlog --help`. A command that a program shares with `stormlog` has one page, that of
/// `stormlog`: `has_page` is false for the program's own.
pub fn commands(command: &Command, has_page: impl Fn(&str) -> bool) -> String {
    let mut text = ".SH COMMANDS\n".to_owned();
    for (title, names) in GROUPS {
        let _ = writeln!(text, ".SS {title}");
        for found in names.iter().filter_map(|name| command.find_subcommand(name)) {
            let own = format!("{}-{}", command.get_name(), found.get_name());
            let main = format!("{}-{}", Program::Stormlog.name(), found.get_name());
            let page = if has_page(&own) { own } else { main };
            let about = found.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, ".TP\n\\fB{}\\fR(1)\n{}", escaped(&page), escaped(&about));
        }
    }
    text
}

/// The sections after the commands of a program's page.
pub fn end_of_program(program: Program) -> String {
    let mut text = ".SH EXAMPLES\n".to_owned();
    for (line, what) in EXAMPLES {
        let main = Program::Stormlog.name();
        let _ = writeln!(text, ".TP\n\\fB{main} {}\\fR\n{}", escaped(line), escaped(what));
    }
    text.push_str(".SH EXIT STATUS\n");
    for exit in Exit::ALL {
        let _ = writeln!(text, ".TP\n\\fB{}\\fR\n{}", exit.code(), escaped(exit.meaning()));
    }
    text.push_str(".PP\n\\fBrun\\fR exits with the status of the program.\n");
    text.push_str(
        ".SH ENVIRONMENT\n.TP\n\\fBSTORMLOG_DIR\\fR\nDirectory of runs, instead of \\fIstormlog\\-runs\\fR\n",
    );
    text.push_str(
        ".TP\n\\fBSTORMLOG_PYTHON\\fR\nThe Python interpreter to use\n.PP\nOthers are listed with the options that they set.\n",
    );
    text.push_str(
        ".SH FILES\n.TP\n\\fIstormlog\\-runs\\fR\nRun directories, private to their owner\n.TP\n\\fI$XDG_CONFIG_HOME/stormlog/config.toml\\fR\nSettings of the terminal UI\n",
    );
    let others = Program::ALL.into_iter().filter(|one| *one != program);
    let pages: Vec<String> = others.map(|one| format!("\\fB{}\\fR(1)", one.name())).collect();
    let _ = writeln!(text, ".SH SEE ALSO\n{}", pages.join(", "));
    text
}

/// The end of a command's page.
pub fn end_of_command() -> String {
    format!(".SH SEE ALSO\n\\fB{}\\fR(1), for exit status, environment and files\n", Program::Stormlog.name())
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
