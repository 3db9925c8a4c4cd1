//! Methods to attach to a running process: `sys.remote_exec` where the process has it (Python 3.14 and later) and allows it, a debugger
//! elsewhere. Both load the recording library there and call one of its functions.
//!
//! Must never leave the process stopped, never wait without an end, and never execute a file of the target's that its owner could have put
//! there (`trusted`).

mod registers;
mod trusted;

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

use self::registers::Registers;

const GDB_SCRIPT: &str = include_str!("gdb.py");
const REMOTE_SCRIPT: &str = include_str!("remote.py");
/// A process that is stopped or never runs Python does not answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// A debugger that is interrupted ends within this time.
const GRACE: Duration = Duration::from_secs(10);

/// How to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMethod {
    /// `sys.remote_exec` where the process has it and allows it, a debugger otherwise.
    Auto,
    /// `sys.remote_exec`.
    RemoteExec,
    /// gdb.
    Debugger,
}

/// What is called in the process.
#[derive(Debug, Clone, Copy)]
pub enum Call<'a> {
    /// Begin the recording of this specification.
    Start(&'a OsString),
    /// End the recording.
    Stop,
    /// Report what keeps its memory, as this specification says.
    Why(&'a OsString),
}

impl<'a> Call<'a> {
    fn hook_spec(self) -> Option<&'a OsString> {
        match self {
            Call::Start(spec) | Call::Why(spec) => Some(spec),
            Call::Stop => None,
        }
    }

    /// The function of the library; a debugger stops a process anywhere, so that it can only ask for the pass over retained objects.
    fn function(self, by_debugger: bool) -> &'static str {
        match self {
            Call::Start(_) => "stormlog_heap_start",
            Call::Stop => "stormlog_heap_stop",
            Call::Why(_) if by_debugger => "stormlog_why_soon",
            Call::Why(_) => "stormlog_why",
        }
    }
}

/// Why a process could not be attached to.
#[derive(Debug, Error)]
pub enum AttachError {
    /// No such process.
    #[error("there is no process {0}; `ps -e` lists the running ones")]
    NoProcess(u32),
    /// Not ours.
    #[error("process {0} belongs to another user; run this as that user or as root")]
    NotAllowed(u32),
    /// No method is available.
    #[error(
        "gdb is needed to attach to a process that does not run Python 3.14 or later; install gdb, or start the program with `stormlog run --heap`"
    )]
    NoDebugger,
    /// This gdb would leave the process half way in a call. Nothing was done to the process.
    #[error(
        "this gdb cannot write the registers of this CPU (AMX); install gdb 14 or later, or start the program with `stormlog run --heap`"
    )]
    OldDebugger,
    /// The process has `sys.remote_exec`, but only a Python of that version can call it, and the target's must not be run.
    #[error(
        "the Python of process {0} is not executed: another user could have replaced it, or it is in a container; use --method gdb"
    )]
    Untrusted(u32),
    /// The process has `sys.remote_exec`, which is disabled. Nothing was done to the process.
    #[error(
        "process {pid} does not allow sys.remote_exec ({text}); install gdb, which does not need its permission"
    )]
    Closed {
        /// The process.
        pid: u32,
        /// What was said.
        text: String,
    },
    /// The method itself failed.
    #[error("could not attach to process {pid}: {text}")]
    Refused {
        /// The process.
        pid: u32,
        /// What was said.
        text: String,
    },
    /// Nothing came back.
    #[error("process {0} did not answer within 30 seconds; it may be stopped, or never runs Python code")]
    Silent(u32),
    /// The recording library said no.
    #[error("process {pid}{}", explain(*.number))]
    Hook {
        /// The process.
        pid: u32,
        /// Its error number.
        number: i32,
    },
    /// A file of ours.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

fn explain(number: i32) -> String {
    const EBUSY: i32 = 16;
    const ESRCH: i32 = 3;
    const ENOTSUP: i32 = 95;
    const ECANCELED: i32 = 125;
    match number {
        EBUSY => " is being recorded already; `stormlog detach` ends that".to_owned(),
        ESRCH => " is not being recorded; `stormlog attach PID --heap` starts a recording".to_owned(),
        ENOTSUP => {
            " runs a Python that is not supported: use a release of 3.11 to 3.14 with the GIL".to_owned()
        }
        ECANCELED => " has STORMLOG_WHY=0 set, which disables this".to_owned(),
        -1 => {
            " could not load the recording library; make its directory readable for that process".to_owned()
        }
        number => format!(": {}", std::io::Error::from_raw_os_error(number)),
    }
}

/// Loads `library` into the process and calls one of its functions.
pub fn attach(
    pid: u32,
    library: &Path,
    call: Call<'_>,
    method: AttachMethod,
    scratch: &Path,
) -> Result<(), AttachError> {
    check(pid)?;
    let interpreter = if method == AttachMethod::Debugger { None } else { trusted::interpreter(pid) };
    let answer = match (method, interpreter) {
        (AttachMethod::RemoteExec, None) => return Err(AttachError::Untrusted(pid)),
        (AttachMethod::RemoteExec, Some(python)) => by_remote_exec(pid, &python, library, call, scratch)?,
        (AttachMethod::Auto, Some(python)) if has_remote_exec(&python) => {
            match by_remote_exec(pid, &python, library, call, scratch) {
                // `PYTHON_DISABLE_REMOTE_DEBUG`, `-X disable-remote-debug`
                Err(closed @ AttachError::Closed { .. }) => match by_debugger(pid, library, call, scratch) {
                    Err(AttachError::NoDebugger) => return Err(closed),
                    answer => answer?,
                },
                answer => answer?,
            }
        }
        _ => by_debugger(pid, library, call, scratch)?,
    };
    match answer {
        0 => Ok(()),
        number => Err(AttachError::Hook { pid, number }),
    }
}

/// Whether the process is there and ours.
pub(crate) fn check(pid: u32) -> Result<(), AttachError> {
    match std::fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(AttachError::NoProcess(pid)),
        Err(_) => Err(AttachError::NotAllowed(pid)),
    }
}

/// Asks the process's own interpreter, so that both are of one version.
fn has_remote_exec(python: &Path) -> bool {
    Command::new(python)
        .args(["-I", "-S", "-c", "import sys; sys.exit(0 if hasattr(sys, 'remote_exec') else 1)"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn by_remote_exec(
    pid: u32,
    python: &Path,
    library: &Path,
    call: Call<'_>,
    scratch: &Path,
) -> Result<i32, AttachError> {
    let (script, answer) = (scratch.join("attach.py"), scratch.join("answer"));
    let text = |path: &Path| serde_json::Value::from(path.to_string_lossy()).to_string();
    let spec = call.hook_spec().map_or("None".to_owned(), |spec| text(Path::new(spec)));
    let arguments = format!("({}, {:?}, {spec}, {})", text(library), call.function(false), text(&answer));
    write(&script, &REMOTE_SCRIPT.replace("__ARGUMENTS__", &arguments))?;
    write(&answer, "")?;
    // The target reads the one and writes the other; both are private to its user.
    hand_over(pid, &script)?;
    hand_over(pid, &answer)?;
    let code = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])";
    let output = Command::new(python)
        .args(["-I", "-S", "-c", code, &pid.to_string()])
        .arg(&script)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| AttachError::Io { path: script.clone(), source })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
        return Err(AttachError::Closed { pid, text });
    }
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Ok(said) = std::fs::read_to_string(&answer)
            && !said.is_empty()
        {
            return understand(pid, &said);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(AttachError::Silent(pid))
}

fn by_debugger(pid: u32, library: &Path, call: Call<'_>, scratch: &Path) -> Result<i32, AttachError> {
    let (script, description) = (scratch.join("attach.gdb.py"), scratch.join("registers.xml"));
    write(&script, GDB_SCRIPT)?;
    let registers = Registers::that_can_be_kept(&description)?;
    let mut command = Command::new("gdb");
    // Auto-loading would run scripts and load libraries from where the target's files are.
    command.args(["-nx", "-q", "-batch", "-iex", "set auto-load off"]);
    if registers == Registers::Basic {
        command.args(registers::option(&description)).env("STORMLOG_BASIC_REGISTERS", "1");
    }
    command.args(["-p", &pid.to_string(), "-x"]).arg(&script);
    command.env("STORMLOG_LIBRARY", library).env_remove("STORMLOG_HOOK_SPEC").env("DEBUGINFOD_URLS", "");
    command.env("STORMLOG_FUNCTION", call.function(true));
    if let Some(spec) = call.hook_spec() {
        command.env("STORMLOG_HOOK_SPEC", spec);
    }
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let gdb = started.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => AttachError::NoDebugger,
        _ => AttachError::Io { path: "gdb".into(), source: error },
    })?;
    let (status, said, complaints) = registers::wait(gdb, PATIENCE).ok_or(AttachError::Silent(pid))?;
    match understand(pid, &said) {
        Err(AttachError::Refused { text, .. }) if text.is_empty() => {
            let line = complaints.lines().find(|line| !line.starts_with("warning")).unwrap_or_default();
            Err(AttachError::Refused { pid, text: format!("gdb ended with {status}. {line}") })
        }
        other => other,
    }
}

/// Interrupted, gdb takes back a call it has made into the process before it detaches; killed it would leave the process to return from
/// that call into nowhere.
fn give_up(mut gdb: Child) {
    if let Ok(id) = i32::try_from(gdb.id()) {
        let _ = Pid::from_raw(id).map(|id| kill_process(id, Signal::INT));
    }
    let begun = Instant::now();
    while begun.elapsed() < GRACE && matches!(gdb.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = gdb.kill();
    let _ = gdb.wait();
}

fn understand(pid: u32, said: &str) -> Result<i32, AttachError> {
    for line in said.lines() {
        if let Some(number) = line.strip_prefix("stormlog: ").and_then(|number| number.trim().parse().ok()) {
            return Ok(number);
        }
        if let Some(text) = line.strip_prefix("stormlog-error: ") {
            return Err(AttachError::Refused { pid, text: text.to_owned() });
        }
    }
    Err(AttachError::Refused { pid, text: String::new() })
}

pub(crate) fn hand_over(pid: u32, path: &Path) -> Result<(), AttachError> {
    let target = std::fs::metadata(format!("/proc/{pid}")).map_err(|_| AttachError::NoProcess(pid))?;
    std::os::unix::fs::chown(path, Some(target.uid()), Some(target.gid()))
        .map_err(|source| AttachError::Io { path: path.to_owned(), source })
}

fn write(path: &Path, text: &str) -> Result<(), AttachError> {
    stormlog_files::replace(path, text.as_bytes())
        .map_err(|source| AttachError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        assert!(matches!(understand(1, "gdb says hello\nstormlog: 16\n"), Ok(16)));
        let refused = understand(1, "stormlog-error: Cannot access memory\n").unwrap_err();
        assert_eq!(refused.to_string(), "could not attach to process 1: Cannot access memory");
        let busy = AttachError::Hook { pid: 7, number: 16 };
        assert_eq!(busy.to_string(), "process 7 is being recorded already; `stormlog detach` ends that");
    }

    #[test]
    fn a_process_that_is_not_there() {
        let error = attach(4_194_305, Path::new("/x"), Call::Stop, AttachMethod::Auto, Path::new("/tmp"))
            .unwrap_err();
        assert!(matches!(error, AttachError::NoProcess(4_194_305)), "{error}");
    }
}
