//! What can be typed after `attach` and `detach`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use stormlog_supervise::Door;

use crate::args::record::heap;
use crate::cmd::record::attach;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Method {
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
    /// How to get into the process
    #[arg(long, value_enum, default_value = "auto")]
    method: Method,
    /// Say nothing at the end
    #[arg(long, short)]
    quiet: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

impl Attach {
    /// The heap is to be recorded; if not, this is `track --pid`.
    pub(crate) fn wants_heap(&self) -> bool {
        self.heap.is_wanted()
    }

    /// The words of `track` that mean the same.
    pub(crate) fn as_track(&self) -> Vec<std::ffi::OsString> {
        let mut words = vec!["track".to_owned(), "--pid".to_owned(), self.pid.to_string()];
        if let Some(duration) = self.duration {
            words.extend(["--duration".to_owned(), duration.as_secs_f64().to_string()]);
        }
        words.into_iter().map(Into::into).collect()
    }
}

impl From<Attach> for attach::Options {
    fn from(typed: Attach) -> Self {
        attach::Options {
            pid: typed.pid,
            heap: typed.heap.options(),
            force: typed.heap.force,
            output: typed.heap.output,
            duration: typed.duration,
            door: typed.method.into(),
            quiet: typed.quiet,
            json: typed.json,
        }
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
