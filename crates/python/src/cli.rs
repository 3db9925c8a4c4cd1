//! The command line run inside the interpreter, so that one shared object serves both.

use std::ffi::OsString;
use std::io::{self, Write};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stormlog_cli::Program;

/// Runs a command with the given arguments (without the program's name) and gives its exit code.
#[pyfunction]
fn run_cli(py: Python<'_>, program: &str, args: Vec<OsString>) -> PyResult<u8> {
    let program = Program::of_name(program)
        .ok_or_else(|| PyValueError::new_err(format!("unknown command {program}")))?;
    // None or empty where the interpreter is embedded in another program.
    let python = py.import("sys")?.getattr("executable")?.extract::<OsString>();
    if let Some(python) = python.ok().filter(|python| !python.is_empty()) {
        stormlog_cli::runs_inside(python);
    }
    py.detach(|| {
        let code = stormlog_cli::run(program, args);
        // Only the runtime of a Rust program flushes at exit, and this process is not one. A reader that has gone
        // away is not a failure of the command.
        let _ = io::stdout().flush();
        Ok(code)
    })
}

/// Takes Ctrl-C away from Python, whose handler only raises once native code returns. From then on it stops the
/// process, or, where a command handles it, sets its flag; the command cleans up and returns 130. For processes
/// that are a command and nothing else.
#[pyfunction]
fn release_interrupts() {
    // SAFETY: an all-zero sigaction is valid on every Unix: the default action, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action `sigaction` only writes the present one to `action`, which is ours.
    let asked = unsafe { libc::sigaction(libc::SIGINT, std::ptr::null(), &mut action) };
    // A parent that ignores Ctrl-C (nohup, a shell's background job) wants its children to ignore it too.
    if asked != 0 || action.sa_sigaction == libc::SIG_IGN {
        return;
    }
    // SAFETY: no handler is installed, so there is no code of ours that a signal could interrupt.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(run_cli, module)?)?;
    module.add_function(wrap_pyfunction!(release_interrupts, module)?)
}
