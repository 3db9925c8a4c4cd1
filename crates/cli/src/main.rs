//! The `stormlog` binary: everything is in the library, so that the Python package runs the same code.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use stormlog_cli::{Program, run, started_by};

/// The first argument when `python -m stormlog` becomes this program. Not an environment variable: the recorded program would
/// inherit that. Between the two of them only (python/stormlog/_entry.py), and in no help text.
const INTERPRETER: &[u8] = b"--interpreter=";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    // Under an older name the binary answers to it.
    let program = arguments.next().map_or(Program::Stormlog, |name| Program::of_path(name.as_ref()));
    let mut arguments: Vec<OsString> = arguments.collect();
    let interpreter = arguments.first().and_then(|first| first.as_bytes().strip_prefix(INTERPRETER));
    if let Some(interpreter) = interpreter.map(|path| OsStr::from_bytes(path).to_owned()) {
        started_by(interpreter);
        arguments.remove(0);
    }
    ExitCode::from(run(program, arguments))
}
