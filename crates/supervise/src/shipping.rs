//! The process that ships a run elsewhere: started after the program, given its settings over a pipe, and never waited for.
//!
//! The pipe ends with the run, or with us however that happens: then it ships the rest.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The command that ships a run, which it gets as its last word.
#[derive(Clone)]
pub struct Shipper {
    /// The command.
    pub command: Vec<OsString>,
    /// The first line of its standard input; may hold secrets.
    pub settings: String,
}

impl fmt::Debug for Shipper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shipper({:?})", self.command)
    }
}

/// A shipper that was started.
#[derive(Debug)]
pub struct Shipping {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Shipper {
    pub(crate) fn start(&self, run: &Path) -> io::Result<Shipping> {
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        command.args(arguments).arg(run).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = stormlog_pidfd::lead_session(&mut command).spawn()?;
        let mut pipe = child.stdin.take();
        // Less than a pipe holds: this does not wait for its reader.
        if let Some(pipe) = &mut pipe {
            pipe.write_all(format!("{}\n", self.settings).as_bytes())?;
        }
        Ok(Shipping { child, pipe })
    }
}

impl Shipping {
    /// The run is written to the end.
    pub(crate) fn end(&mut self) {
        self.pipe = None;
    }

    /// Waits until it has ended, for some time at most; whether it has.
    pub fn wait(&mut self, most: Duration) -> bool {
        let end = Instant::now() + most;
        loop {
            // A child that cannot be asked about is not waited for.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }
}
