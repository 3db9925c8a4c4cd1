//! The command line: arguments in, plain options to the other crates, text and an exit code out.
//!
//! No logic lives here. Standard output carries the answer and nothing else; complaints and progress go to standard
//! error; the exit code says which it was.
#![forbid(unsafe_code)]

mod args;
mod chart;
mod cmd;
mod exit;
mod progress;
mod table;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

#[cfg(test)]
use clap::Parser;
use clap::error::ErrorKind;
use stormlog_store::StoreError;
use stormlog_supervise::RunError;

pub use exit::Exit;

use args::{Cli, Command};

/// The name the command was called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `stormlog`
    Stormlog,
    /// `gpumemprof`, the older name for PyTorch and CPU work.
    Gpumemprof,
    /// `tfmemprof`, the older name for TensorFlow work.
    Tfmemprof,
}

impl Program {
    /// The program a path such as `argv[0]` names.
    pub fn of_path(path: &Path) -> Self {
        match path.file_stem().and_then(|name| name.to_str()) {
            Some("gpumemprof") => Program::Gpumemprof,
            Some("tfmemprof") => Program::Tfmemprof,
            _ => Program::Stormlog,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Program::Stormlog => "stormlog",
            Program::Gpumemprof => "gpumemprof",
            Program::Tfmemprof => "tfmemprof",
        }
    }
}

/// Runs a command line and gives its exit code. `arguments` do not include the program's name.
pub fn run(program: Program, arguments: Vec<OsString>) -> u8 {
    let command = <Cli as clap::CommandFactory>::command().name(program.name()).bin_name(program.name());
    let all = std::iter::once(OsString::from(program.name())).chain(arguments);
    let parsed = command
        .try_get_matches_from(all)
        .and_then(|matches| <Cli as clap::FromArgMatches>::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => dispatch(cli.command),
        Err(error) => usage(&error).code(),
    }
}

fn dispatch(command: Command) -> u8 {
    let result = match command {
        Command::Run(arguments) => {
            return cmd::run::run(&arguments.into()).unwrap_or_else(|error| report(&error).code());
        }
        Command::Oom(arguments) => cmd::oom::run(&arguments.into()),
        Command::Limited(arguments) => cmd::limited::run(&arguments.into()),
        Command::Convert(arguments) => cmd::convert::run(&arguments.into()),
        Command::Validate(arguments) => cmd::validate::run(&arguments.into()),
        Command::Sessions(arguments) => cmd::sessions::run(&arguments.into()),
    };
    result.unwrap_or_else(|error| report(&error)).code()
}

/// Help goes to standard output with success, mistakes to standard error with exit 2.
fn usage(error: &clap::Error) -> Exit {
    // Nothing can be done about a closed terminal.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Exit::Ok,
        _ => Exit::Usage,
    }
}

/// One sentence on standard error and the code that fits it.
fn report(error: &anyhow::Error) -> Exit {
    if error.downcast_ref::<exit::Interrupted>().is_some() {
        return Exit::Interrupted;
    }
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return Exit::Error;
    }
    let (exit, says_all) = if error.downcast_ref::<StoreError>().is_some() {
        (Exit::InvalidInput, true)
    } else if error.downcast_ref::<exit::Wrong>().is_some() {
        (Exit::Usage, true)
    } else {
        (Exit::Error, error.downcast_ref::<RunError>().is_some())
    };
    // Our own errors say their cause in their sentence; of others the whole chain is needed.
    let _ = if says_all {
        writeln!(io::stderr(), "Error: {error}")
    } else {
        writeln!(io::stderr(), "Error: {error:#}")
    };
    exit
}

/// Parses without running: for tests of the help text.
#[cfg(test)]
fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once(&"stormlog").chain(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
        assert!(parse(&["convert", "a.json", "b.csv", "--schema", "3"]).is_ok());
        assert!(parse(&["convert", "a.json", "b.csv", "--schema", "5"]).is_err());
    }

    #[test]
    fn older_names_are_recognised() {
        assert_eq!(Program::of_path(Path::new("/usr/bin/gpumemprof")), Program::Gpumemprof);
        assert_eq!(Program::of_path(Path::new("tfmemprof.exe")), Program::Tfmemprof);
        assert_eq!(Program::of_path(Path::new("anything")), Program::Stormlog);
    }
}
