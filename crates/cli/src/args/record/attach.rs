//! What can be typed after `attach` and `detach`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use stormlog_supervise::AttachMethod;

use crate::Program;
use crate::args::record::heap;
use crate::cmd::record::{attach, track};
use crate::exit::UsageError;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Method {
    /// Python's own interface where the process has it, a debugger otherwise
    Auto,
    /// `sys.remote_exec`, from Python 3.14
    #[value(name = "sys.remote_exec", alias = "remote-exec")]
    RemoteExec,
    /// gdb
    Gdb,
}

impl From<Method> for AttachMethod {
    fn from(method: Method) -> Self {
        match method {
            Method::Auto => AttachMethod::Auto,
            Method::RemoteExec => AttachMethod::RemoteExec,
            Method::Gdb => AttachMethod::Debugger,
        }
    }
}

/// Record the heap of a running process, or watch its memory
///
/// Nothing needs to be installed in the environment of the process. Without --heap its memory is sampled from
/// outside, as with `track --pid`.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The process
    pub(crate) pid: u32,
    #[command(flatten)]
    heap: heap::Record,
    /// Stop after this number of seconds
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    duration: Option<Duration>,
    /// Method to attach (with --heap; default: auto)
    #[arg(long, value_enum)]
    method: Option<Method>,
    /// Suppress the summary
    #[arg(long, short)]
    quiet: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// The two things `attach` does.
pub(crate) enum AttachMode {
    /// Recording goes into the process.
    Heap(attach::Options),
    /// The process is watched from outside.
    Watch(Box<track::Options>),
}

impl Attach {
    /// What was requested. A flag that has no meaning in what was asked for is an error, not dropped.
    pub(crate) fn options(self, program: Program) -> Result<AttachMode, UsageError> {
        if self.heap.is_wanted() {
            return Ok(AttachMode::Heap(attach::Options {
                pid: self.pid,
                heap: self.heap.options(),
                force: self.heap.force,
                output: self.heap.output,
                duration: self.duration,
                method: self.method.unwrap_or(Method::Auto).into(),
                quiet: self.quiet,
                json: self.json,
            }));
        }
        if self.method.is_some() {
            return Err(UsageError(
                "--method needs --heap: without it the process is watched from outside".to_owned(),
            ));
        }
        Ok(AttachMode::Watch(Box::new(track::Options {
            duration: self.duration.map(|duration| duration.as_secs_f64()),
            json: self.json,
            quiet: self.quiet,
            ..track::Options::of_process(self.pid, program)
        })))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Detach {
    /// The process
    pub(crate) pid: u32,
    /// Method to attach to the process
    #[arg(long, value_enum, default_value = "auto")]
    method: Method,
}

impl Detach {
    pub(crate) fn method(&self) -> AttachMethod {
        self.method.into()
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds".to_owned()),
    }
}
