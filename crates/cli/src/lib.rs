//! The command line: arguments in, plain options to the other crates, text and an exit code out.
//!
//! No logic lives here. Standard output carries the answer and nothing else; complaints and progress go to standard
//! error; the exit code says which it was.
#![forbid(unsafe_code)]

mod args;
mod cmd;
mod default_path;
mod exit;
mod interpreter;
mod progress;
mod table;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

#[cfg(test)]
use clap::Parser;
use clap::error::ErrorKind;
use stormlog_heap::HeapError;
use stormlog_heap_report::ViewError;
use stormlog_lake::LakeError;
use stormlog_ship::ShipError;
use stormlog_store::StoreError;
use stormlog_supervise::RunError;

pub use args::groups::GROUPS;
pub use exit::Exit;
pub use interpreter::{runs_inside, started_by};

use args::machine::framework::{self as framework_args, FrameworkCommand};
use args::record::attach::AttachMode;
use args::snapshot::SnapshotMode;
use args::telemetry::analyze::AnalyzeMode;
use args::{Cli, Command};
use cmd::record::framework::Framework;
use cmd::record::run_start::CannotStart;

/// The name the command was called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `stormlog`
    Stormlog,
    /// `gpumemprof`, the older name for PyTorch and CPU work.
    Gpumemprof,
    /// `tfmemprof`, the older name for TensorFlow work.
    Tfmemprof,
    /// `jaxmemprof`, the older name for JAX work.
    Jaxmemprof,
}

impl Program {
    /// Every name, the main one first.
    pub const ALL: [Program; 4] =
        [Program::Stormlog, Program::Gpumemprof, Program::Tfmemprof, Program::Jaxmemprof];

    /// The program of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Program::ALL.into_iter().find(|program| program.name() == name)
    }

    /// The program a path such as `argv[0]` names.
    pub fn of_path(path: &Path) -> Self {
        path.file_stem()
            .and_then(|name| name.to_str())
            .and_then(Program::of_name)
            .unwrap_or(Program::Stormlog)
    }

    fn of(framework: Framework) -> Self {
        match framework {
            Framework::Tensorflow => Program::Tfmemprof,
            Framework::Jax => Program::Jaxmemprof,
        }
    }

    /// The framework whose commands it has in 0.4.3's form.
    fn framework(self) -> Option<Framework> {
        [Framework::Tensorflow, Framework::Jax].into_iter().find(|framework| Program::of(*framework) == self)
    }

    /// The name as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Program::Stormlog => "stormlog",
            Program::Gpumemprof => "gpumemprof",
            Program::Tfmemprof => "tfmemprof",
            Program::Jaxmemprof => "jaxmemprof",
        }
    }
}

/// The commands and options of a program, as clap knows them. The reference, the man pages and the completions are generated from it.
pub fn definition(program: Program) -> clap::Command {
    let command = <Cli as clap::CommandFactory>::command().name(program.name()).bin_name(program.name());
    match program.framework() {
        Some(framework) => framework_args::adapt(command, framework),
        None => command,
    }
}

/// Runs a command line and gives its exit code. `arguments` do not include the program's name.
pub fn run(program: Program, arguments: Vec<OsString>) -> u8 {
    // Started beside every run: it does not pay for what the other commands need.
    if arguments.first().is_some_and(|word| word == stormlog_supervise::WITNESS) {
        return stormlog_supervise::stand_by().map_or(Exit::Error, |()| Exit::Ok).code();
    }
    if program == Program::Stormlog && arguments.is_empty() && cmd::screen::is_possible() {
        return cmd::screen::run(Default::default()).unwrap_or_else(|error| report(&error)).code();
    }
    let command = args::groups::group(definition(program));
    let all = std::iter::once(OsString::from(program.name())).chain(arguments);
    let matches = match command.try_get_matches_from(all) {
        Ok(matches) => matches,
        Err(error) => return usage(&error).code(),
    };
    let typed = program.framework().and_then(|framework| framework_args::read(&matches, framework));
    let ran = match typed {
        Some(typed) => typed.map(dispatch_framework),
        None => <Cli as clap::FromArgMatches>::from_arg_matches(&matches)
            .map(|cli| dispatch(program, cli.command)),
    };
    ran.unwrap_or_else(|error| usage(&error).code())
}

fn dispatch_framework(command: FrameworkCommand) -> u8 {
    let result = match command {
        FrameworkCommand::Info(options) => cmd::machine::info::run(&options).map(Exit::code),
        FrameworkCommand::Watch(options) => cmd::record::framework::run(&options),
    };
    result.unwrap_or_else(|error| report(&error).code())
}

fn dispatch(program: Program, command: Command) -> u8 {
    let result = match command {
        Command::Run(arguments) => {
            return cmd::record::run::run(&arguments.into()).unwrap_or_else(|error| report(&error).code());
        }
        Command::Runs(arguments) => cmd::record::retention::run(&arguments.into()),
        Command::Info(arguments) => cmd::machine::info::run(&arguments.into()),
        Command::Monitor(arguments) => {
            return cmd::machine::monitor::run(&arguments.into())
                .unwrap_or_else(|error| report(&error).code());
        }
        Command::Track(arguments) => {
            return cmd::record::track::run(&arguments.options(program))
                .unwrap_or_else(|error| report(&error).code());
        }
        Command::Attach(arguments) => match arguments.options(program) {
            Ok(AttachMode::Heap(options)) => cmd::record::attach::run(&options),
            Ok(AttachMode::Watch(options)) => {
                return cmd::record::track::run(&options).unwrap_or_else(|error| report(&error).code());
            }
            Err(error) => Err(error.into()),
        },
        Command::Detach(arguments) => cmd::record::attach::detach(arguments.pid, arguments.method()),
        Command::Oom(arguments) => cmd::crash::oom::run(&arguments.into()),
        Command::Why(arguments) => cmd::crash::why::run(&arguments.into()),
        Command::Trigger(arguments) => cmd::record::trigger::run(&arguments.into()),
        Command::AnswerRequests(arguments) => {
            stormlog_supervise::answer_requests(&arguments.run);
            Ok(Exit::Ok)
        }
        Command::FinishCaptures(arguments) => Ok(cmd::record::run_finish::finish(arguments.into())),
        Command::Ship(arguments) => cmd::record::ship::ship(&arguments.into()),
        Command::Fetch(arguments) => cmd::record::ship::fetch_runs(&arguments.into()),
        Command::ShipRun(arguments) => Ok(cmd::record::ship::follow(&arguments.run)),
        Command::DeliverAlerts => Ok(cmd::record::notify::deliver()),
        Command::Analyze(arguments) => match arguments.mode(program) {
            AnalyzeMode::General(options) => cmd::telemetry::analyze::run(&options),
            AnalyzeMode::Framework(options) => cmd::telemetry::framework_analyze::run(&options),
        },
        Command::Report(arguments) => cmd::report::run(&arguments.into()),
        Command::Fleet(arguments) => cmd::fleet::run(&arguments.into()),
        Command::Serve(arguments) => cmd::serve::run(&arguments.into()),
        Command::Diagnose(arguments) => cmd::crash::diagnose::run(&arguments.options(program)),
        Command::Query(arguments) => cmd::telemetry::query::run(&(*arguments).into()),
        Command::Sql(arguments) => {
            return cmd::telemetry::sql::run(&arguments.into()).unwrap_or_else(|error| report(&error).code());
        }
        #[cfg(feature = "parquet")]
        Command::Publish(arguments) => cmd::lake::run(&arguments.into()),
        #[cfg(feature = "parquet")]
        Command::Compact(arguments) => cmd::lake::run(&arguments.into()),
        #[cfg(feature = "parquet")]
        Command::Lake(arguments) => cmd::lake::run(&arguments.into()),
        Command::Compare(arguments) => cmd::telemetry::compare::run(&arguments.into()),
        Command::Check(arguments) => cmd::telemetry::check::run(&(*arguments).into()),
        Command::Convert(arguments) => cmd::telemetry::convert::run(&arguments.into()),
        Command::Validate(arguments) => cmd::telemetry::validate::run(&arguments.into()),
        Command::Sessions(arguments) => cmd::telemetry::sessions::run(&arguments.into()),
        Command::Snapshot(arguments) => match arguments.asked() {
            SnapshotMode::Process(options) => cmd::snapshot::live::run(&options),
            SnapshotMode::File(options) => cmd::snapshot::report::run(&options),
        },
        Command::Replay(arguments) => cmd::snapshot::replay::run(&arguments.into()),
        Command::Timeline(arguments) => cmd::snapshot::timeline::run(&arguments.into()),
        Command::Stats(arguments) => cmd::heap::stats::run(&arguments.into()),
        Command::Summary(arguments) => cmd::heap::summary::run(&(*arguments).into()),
        Command::Tui(arguments) => cmd::screen::run(arguments.into()),
        Command::Live(arguments) => cmd::record::live::run(&arguments.into()),
        Command::Top(arguments) => cmd::record::top::run(&arguments.into()),
        Command::Captures(arguments) => cmd::heap::captures::run(&arguments.into()),
        Command::Flamegraph(arguments) => cmd::heap::flamegraph::run(&(*arguments).into()),
        Command::Tree(arguments) => cmd::heap::tree::run(&(*arguments).into()),
        Command::Table(arguments) => cmd::heap::table::run(&(*arguments).into()),
        Command::Leaks(arguments) => cmd::heap::leaks::run(&arguments.into()),
        Command::Diff(arguments) => cmd::heap::diff::run(&arguments.into()),
        Command::Transform(arguments) => cmd::heap::transform::run(&(*arguments).into()),
        Command::Parse(arguments) => cmd::heap::parse::run(&arguments.into()),
        Command::Sanitize(arguments) => {
            return cmd::heap::sanitize::run(&arguments.into()).unwrap_or_else(|error| report(&error).code());
        }
        Command::Rules(arguments) => cmd::monitoring::run(&arguments.into()),
        Command::Dashboard(arguments) => cmd::monitoring::run(&arguments.into()),
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
    let is_missing = error.downcast_ref::<exit::MissingInput>().is_some();
    let is_capture =
        error.downcast_ref::<HeapError>().is_some() || error.downcast_ref::<ViewError>().is_some();
    let is_lake = error.downcast_ref::<LakeError>().is_some_and(LakeError::is_of_input);
    let is_shipped = error.downcast_ref::<ShipError>().is_some_and(ShipError::is_of_input);
    let is_store = error.downcast_ref::<StoreError>().is_some();
    let (exit, says_all) = if is_missing || is_capture || is_lake || is_shipped || is_store {
        (Exit::InvalidInput, true)
    } else if let Some(cannot) = error.downcast_ref::<CannotStart>() {
        (cannot.exit, true)
    } else if error.downcast_ref::<exit::UsageError>().is_some() {
        (Exit::Usage, true)
    } else {
        (Exit::Error, error.is::<RunError>() || error.is::<LakeError>())
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
        assert_eq!(Program::of_path(Path::new("bin/jaxmemprof")), Program::Jaxmemprof);
        assert_eq!(Program::of_path(Path::new("anything")), Program::Stormlog);
    }
}
