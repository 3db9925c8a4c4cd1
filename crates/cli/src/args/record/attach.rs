//! What can be typed after `attach` and `detach`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use stormlog_supervise::Door;

use crate::Program;
use crate::args::record::heap;
use crate::cmd::record::{attach, track};
use crate::exit::Wrong;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Method {
    /// Python's own way where the process has it, a debugger otherwise
    Auto,
    /// `sys.remote_exec`, from Python 3.14
    #[value(name = "sys.remote_exec", alias = "remote-exec")]
    RemoteExec,
    /// gdb
    Gdb,
}

impl From<Method> for Door {
    fn from(method: Method) -> Self {
        match method {
            Method::Auto => Door::Auto,
            Method::RemoteExec => Door::RemoteExec,
            Method::Gdb => Door::Debugger,
        }
    }
}

/// Records the heap of a process that runs already. Nothing needs to be installed in its environment. Without --heap its memory is
/// watched from outside, as `track --pid` does.
#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// The process
    pub(crate) pid: u32,
    #[command(flatten)]
    heap: heap::Record,
    /// Stop after so many seconds
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    duration: Option<Duration>,
    /// How to get into the process (with --heap; default: auto)
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
    /// What was asked for. A flag that has no meaning in what was asked for is an error, not dropped.
    pub(crate) fn options(self, program: Program) -> Result<AttachMode, Wrong> {
        if self.heap.is_wanted() {
            return Ok(AttachMode::Heap(attach::Options {
                pid: self.pid,
                heap: self.heap.options(),
                force: self.heap.force,
                output: self.heap.output,
                duration: self.duration,
                door: self.method.unwrap_or(Method::Auto).into(),
                quiet: self.quiet,
                json: self.json,
            }));
        }
        if self.method.is_some() {
            return Err(Wrong(
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

/// Ends a recording that `attach` began.
#[derive(Debug, Args)]
pub(crate) struct Detach {
    /// The process
    pub(crate) pid: u32,
    /// How to get into the process
    #[arg(long, value_enum, default_value = "auto")]
    method: Method,
}

impl Detach {
    pub(crate) fn door(&self) -> Door {
        self.method.into()
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e9 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds".to_owned()),
    }
}
