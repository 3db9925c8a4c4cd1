//! Markdown of clap definitions: an index, a page a command of `stormlog`, and a page for each program that differs from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};
use stormlog_cli::{GROUPS, Program, definition};

const MADE: &str = "<!-- Generated from the command line's definition by crates/manual; do not edit. -->\n\n";

/// Every page, by file name.
pub fn pages() -> BTreeMap<String, String> {
    let mut main = definition(Program::Stormlog);
    main.build();
    let mut pages = BTreeMap::from([("README.md".to_owned(), index(&main))]);
    for command in visible(&main) {
        pages.insert(format!("{}.md", command.get_name()), format!("{MADE}{}", page(command, 1)));
    }
    for program in Program::ALL.into_iter().filter(|one| *one != Program::Stormlog) {
        pages.insert(format!("{}.md", program.name()), format!("{MADE}{}", differences(program)));
    }
    pages
}

/// Calls `each` with every command that a program shows, and its name in full.
pub fn each_command(program: Program, each: &mut impl FnMut(&str, &Command)) {
    fn walk(command: &Command, each: &mut impl FnMut(&str, &Command)) {
        each(full_name(command), command);
        visible(command).for_each(|one| walk(one, each));
    }
    let mut command = definition(program);
    command.build();
    walk(&command, each);
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set())
}

fn full_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

fn index(main: &Command) -> String {
    let mut text = format!("{MADE}# Commands\n\n{}.\n\n", sentence(&about(main)));
    text.push_str(
        "`stormlog COMMAND --help` prints the same as these pages. `stormlog` alone opens the terminal UI.\n",
    );
    for (title, names) in GROUPS {
        let _ = write!(text, "\n## {title}\n\n| command | what it does |\n|---|---|\n");
        for name in names {
            let about = main.find_subcommand(name).map(about).unwrap_or_default();
            let _ = writeln!(text, "| [`{name}`]({name}.md) | {} |", cell(&about));
        }
    }
    text.push_str("\n## Other programs\n\nThe names of Stormlog 0.4.3 take the same commands. What differs is on their pages:\n");
    let others = Program::ALL.into_iter().filter(|one| *one != Program::Stormlog);
    let links: Vec<String> = others.map(|one| format!("[`{0}`]({0}.md)", one.name())).collect();
    let _ = writeln!(text, "{}.", links.join(", "));
    text.push_str("\n[Exit codes](../exit-codes.md) · [Environment variables](../environment.md)\n");
    text
}

/// One program beside `stormlog`: the commands that differ in full, the others by their names.
fn differences(program: Program) -> String {
    let name = program.name();
    let mut same = definition(Program::Stormlog).name(name).bin_name(name);
    let mut own = definition(program);
    same.build();
    own.build();
    let known: BTreeMap<&str, String> = visible(&same).map(|one| (one.get_name(), page(one, 2))).collect();
    let mut text = format!("# {name}\n\n");
    let mut differing = String::new();
    let mut equal = Vec::new();
    for command in visible(&own) {
        let page = page(command, 2);
        if known.get(command.get_name()) == Some(&page) {
            equal.push(format!("[`{0}`]({0}.md)", command.get_name()));
        } else {
            let _ = write!(differing, "\n{page}");
        }
    }
    let _ = writeln!(text, "The same as in `stormlog`: {}.", equal.join(", "));
    text.push_str(&options(&own, 2));
    text.push_str(&differing);
    text
}

/// A command with its subcommands.
fn page(command: &Command, level: usize) -> String {
    let mut text =
        format!("{} {}\n\n{}.\n", "#".repeat(level), full_name(command), sentence(&about(command)));
    if let Some(more) =
        command.get_long_about().map(ToString::to_string).filter(|more| *more != about(command))
    {
        let more = more.strip_prefix(&about(command)).unwrap_or(&more).trim();
        let _ = write!(text, "\n{more}\n");
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let _ = write!(text, "\n```text\n{}\n```\n", usage.trim());
    text.push_str(&options(command, level + 1));
    if let Some(more) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        let _ = write!(text, "\n```text\n{}\n```\n", more.to_string().trim());
    }
    for subcommand in visible(command) {
        let _ = write!(text, "\n{}", page(subcommand, level + 1));
    }
    text
}

/// The arguments and options of a command, under their headings. What every command has (`--help`, `--version`) is left out.
fn options(command: &Command, level: usize) -> String {
    let is_shown = |one: &&Arg| {
        !one.is_hide_set()
            && !matches!(
                one.get_action(),
                ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
            )
    };
    let mut groups: Vec<(&str, Vec<&Arg>)> = vec![("Arguments", Vec::new()), ("Options", Vec::new())];
    for argument in command.get_arguments().filter(is_shown) {
        let default = if argument.is_positional() { "Arguments" } else { "Options" };
        let heading = argument.get_help_heading().unwrap_or(default);
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, arguments)) => arguments.push(argument),
            None => groups.push((heading, vec![argument])),
        }
    }
    let mut text = String::new();
    for (heading, arguments) in groups.into_iter().filter(|(_, arguments)| !arguments.is_empty()) {
        let what = if heading == "Arguments" { "argument" } else { "option" };
        let _ = write!(text, "\n{} {heading}\n\n| {what} | meaning |\n|---|---|\n", "#".repeat(level));
        for argument in arguments {
            let _ = writeln!(text, "| {} | {} |", syntax(argument), meaning(argument));
        }
    }
    text
}

/// How it is typed: `-q`, `--quiet`; `--dir DIR`; `PATH...`.
fn syntax(argument: &Arg) -> String {
    let names: Vec<String> = argument
        .get_value_names()
        .map(|names| names.iter().map(ToString::to_string).collect())
        .unwrap_or_else(|| vec![argument.get_id().as_str().to_uppercase()]);
    let values = names.join(" ");
    let takes = argument.get_num_args().is_some_and(|range| range.takes_values());
    let many = argument.get_num_args().is_some_and(|range| range.max_values() > names.len())
        || (argument.is_positional() && matches!(argument.get_action(), ArgAction::Append));
    let values = format!("{values}{}", if many { "..." } else { "" });
    if argument.is_positional() {
        return format!("`{}`", cell(&values));
    }
    let value = match argument.get_num_args() {
        Some(range) if takes && range.min_values() == 0 && argument.is_require_equals_set() => {
            format!("[={values}]")
        }
        Some(range) if takes && range.min_values() == 0 => format!(" [{values}]"),
        _ if takes => format!(" {values}"),
        _ => String::new(),
    };
    let short = argument.get_short().map(|letter| format!("-{letter}"));
    let long = argument.get_long().map(|word| format!("--{word}"));
    let both: Vec<String> = [short, long].into_iter().flatten().collect();
    let last = both.len().saturating_sub(1);
    let typed = both
        .iter()
        .enumerate()
        .map(|(at, one)| if at == last { format!("`{one}{value}`") } else { format!("`{one}`") });
    cell(&typed.collect::<Vec<_>>().join(", "))
}

/// The help text, with what clap adds to it.
fn meaning(argument: &Arg) -> String {
    let help =
        argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut parts: Vec<String> =
        help.split("\n\n").map(|part| sentence(part).to_owned()).filter(|part| !part.is_empty()).collect();
    let is_brief = parts.len() < 2;
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|one| !one.is_hide_set())
        .map(|one| match one.get_help() {
            Some(help) => format!("`{}` ({help})", one.get_name()),
            None => format!("`{}`", one.get_name()),
        })
        .collect();
    let takes = argument.get_num_args().is_some_and(|range| range.takes_values());
    if takes && !values.is_empty() && !argument.is_hide_possible_values_set() {
        parts.push(format!("one of {}", values.join(", ")));
    }
    let defaults: Vec<_> = argument.get_default_values().iter().map(|one| one.to_string_lossy()).collect();
    if takes && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        parts.push(format!("default `{}`", defaults.join(" ")));
    }
    if let Some(variable) = argument.get_env() {
        parts.push(format!("environment: `{}`", variable.to_string_lossy()));
    }
    if argument.is_required_set() {
        parts.push("required".to_owned());
    }
    // A line of help has no full stop; where more follows, each part is a sentence.
    cell(&if is_brief { parts.join("; ") } else { parts.iter().map(|part| capital(part) + ". ").collect() })
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Without a full stop: one is added.
fn sentence(text: &str) -> &str {
    text.trim().trim_end_matches('.')
}

/// As the cell of a table: on one line, without a bar that would end it, and without what would be read as HTML.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}
