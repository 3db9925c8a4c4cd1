//! The `stormlog` binary: everything is in the library, so that the Python package runs the same code.

use std::process::ExitCode;

use stormlog_cli::{Program, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    // Linked under an older name, the binary answers to it.
    let program = arguments.next().map_or(Program::Stormlog, |name| Program::of_path(name.as_ref()));
    ExitCode::from(run(program, arguments.collect()))
}
