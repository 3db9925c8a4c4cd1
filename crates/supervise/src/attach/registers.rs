//! Whether gdb can write the registers of this CPU, and what to do where it cannot.
//!
//! The kernel takes the extended registers only as a whole. A gdb before 14 does not know those of AMX, so on such a CPU each of its calls into a process
//! fails, and half way: the process is left in an interrupted system call, with an error number that no program expects. It is tried on a program of ours
//! first. With a description of the basic registers alone gdb uses an older request of the kernel's, which works; vector registers are then not kept,
//! so that the script calls only where the calling convention says that none is in use. Must never touch the process that is to be entered.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{AttachError, give_up};

/// Basic registers: an architecture without any feature.
const DESCRIPTION: &str = "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n\
    <target><architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi></target>\n";
/// What gdb prints where it fails.
const COMPLAINT: &str = "extended state";
const PATIENCE: Duration = Duration::from_secs(10);

/// The registers that gdb keeps over a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registers {
    All,
    /// Those of the description that was written.
    Basic,
}

impl Registers {
    /// Finds out which; `description` is where a description is written, if it is needed.
    pub(super) fn that_can_be_kept(description: &Path) -> Result<Self, AttachError> {
        if !has_large_state() || can_write(None) {
            return Ok(Registers::All);
        }
        super::write(description, DESCRIPTION)?;
        if can_write(Some(description)) { Ok(Registers::Basic) } else { Err(AttachError::OldDebugger) }
    }
}

/// The option that makes gdb use a description.
pub(super) fn option(description: &Path) -> [String; 2] {
    ["-iex".to_owned(), format!("set tdesc filename {}", description.display())]
}

/// Whether the CPU has registers that not every gdb knows.
fn has_large_state() -> bool {
    let text = std::fs::read("/proc/cpuinfo").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "amx_tile")
}

/// Tries it on a program that is stopped before its first instruction. What fails for another reason will say so when the process is entered.
fn can_write(description: Option<&Path>) -> bool {
    let Ok(program) = std::env::current_exe() else { return true };
    let mut command = Command::new("gdb");
    command.args(["-nx", "-q", "-batch", "-iex", "set auto-load off", "-iex", "set startup-with-shell off"]);
    command.args(description.into_iter().flat_map(option));
    command.args(["-ex", "starti", "-ex", "set var $xmm0.v2_int64[0] = 1", "-ex", "kill"]);
    command.arg(program).env("DEBUGINFOD_URLS", "");
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(Some((_, _, complaints))) = started.map(|gdb| wait(gdb, PATIENCE)) else { return true };
    !complaints.contains(COMPLAINT)
}

/// The end of a gdb and what it printed; `None` where it did not end in time, and was interrupted.
pub(super) fn wait(mut gdb: Child, timeout: Duration) -> Option<(ExitStatus, String, String)> {
    let begun = Instant::now();
    let status = loop {
        match gdb.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < timeout => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                give_up(gdb);
                return None;
            }
        }
    };
    let (mut printed, mut complaints) = (String::new(), String::new());
    let _ = gdb.stdout.take().map(|mut out| out.read_to_string(&mut printed));
    let _ = gdb.stderr.take().map(|mut err| err.read_to_string(&mut complaints));
    Some((status, printed, complaints))
}
