//! One command in the background: its process, what it printed last, how it ended.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use stormlog_model::text::command_line;
use stormlog_pidfd::lead_session;
use stormlog_pidfd::start::is_own_executable;

use crate::state::actions::{JobRow, JobState, Plan};

/// The word for our own program.
const OWN: &str = "stormlog";
/// What is shown of the output: its end.
const MOST_SHOWN: u64 = 64 << 10;
/// The file of the output is emptied when it is larger.
const MOST_KEPT: u64 = 16 << 20;

/// A command that was started.
pub(super) struct Job {
    pub(super) id: u64,
    line: String,
    began: Instant,
    child: Option<Child>,
    /// It has no name: it is gone with the last process that writes to it, and a program that outlives the screen can continue writing.
    output: Option<File>,
    state: JobState,
    cancelled: Option<Instant>,
    took: Duration,
    shown: (u64, String),
}

impl Job {
    /// Starts the words; where that fails the job has ended with the reason.
    pub(super) fn start(id: u64, plan: &Plan, interpreter: Option<&OsStr>) -> Self {
        let mut job = Job {
            id,
            line: command_line(&plan.words),
            began: Instant::now(),
            child: None,
            output: None,
            state: JobState::Running,
            cancelled: None,
            took: Duration::ZERO,
            shown: (0, String::new()),
        };
        match job.spawn(plan, interpreter) {
            Ok(child) => job.child = Some(child),
            Err(reason) => job.state = JobState::NotStarted(reason),
        }
        job
    }

    fn spawn(&mut self, plan: &Plan, interpreter: Option<&OsStr>) -> Result<Child, String> {
        let (program, arguments) = plan.words.split_first().ok_or("no command")?;
        if let Some(path) = plan.output.as_ref().filter(|path| path.symlink_metadata().is_ok()) {
            return Err(format!("{} is already there; choose another name", path.display()));
        }
        let cannot = |error: io::Error| format!("{program} cannot be started: {error}");
        let output = stormlog_files::unnamed(&std::env::temp_dir()).map_err(|error| {
            format!("cannot create a file for its output in {}: {error}", std::env::temp_dir().display())
        })?;
        let mut command = command(program, interpreter);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(output.try_clone().map_err(cannot)?).stderr(output.try_clone().map_err(cannot)?);
        // No terminal of its own: what is typed here is not for it, and it stays when the terminal is closed.
        let child = lead_session(&mut command).spawn().map_err(cannot)?;
        self.output = Some(output);
        Ok(child)
    }

    pub(super) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Asks it to end; a recording then ends as with Ctrl-C.
    pub(super) fn cancel(&mut self) {
        if let Some(pid) = self.child.as_ref().and_then(pid_of).filter(|_| self.cancelled.is_none()) {
            // It is not reaped yet, so that the number is its own. One that is gone is found out by `look`.
            let _ = kill_process(pid, Signal::TERM);
            self.cancelled = Some(Instant::now());
            self.state = JobState::Ending;
        }
    }

    /// Looks whether it has ended, and ends it by force where it was asked to end `grace` ago.
    pub(super) fn look(&mut self, grace: Duration) {
        let Some(child) = &mut self.child else { return };
        match child.try_wait() {
            Ok(None) => {
                let is_late = self.cancelled.is_some_and(|at| at.elapsed() >= grace);
                if let Some(pid) = pid_of(child).filter(|_| is_late) {
                    // With all that it started in its group, which has its number for as long as it is not reaped.
                    let _ = kill_process_group(pid, Signal::KILL);
                }
            }
            Ok(Some(status)) => self.end(ended(status)),
            Err(error) => self.end(JobState::NotStarted(error.to_string())),
        }
    }

    fn end(&mut self, state: JobState) {
        (self.state, self.took, self.child) = (state, self.began.elapsed(), None);
    }

    pub(super) fn row(&mut self) -> JobRow {
        let is_running = self.is_running();
        if let Some(output) = &self.output
            && let Ok((length, text)) = tail(output, &self.shown)
        {
            self.shown = (length, text);
            if length > MOST_KEPT {
                // Its writer appends: the next byte is the first one again.
                let _ = output.set_len(0);
            }
        }
        if !is_running {
            // All of it was read.
            self.output = None;
        }
        let seconds = if is_running { self.began.elapsed() } else { self.took }.as_secs();
        JobRow {
            id: self.id,
            line: self.line.clone(),
            state: self.state.clone(),
            seconds,
            output: self.shown.1.clone(),
        }
    }
}

/// Our own program by the file that runs now, whatever was installed since; another one by its name, as a shell finds it.
fn command(program: &str, interpreter: Option<&OsStr>) -> Command {
    if program != OWN {
        return Command::new(program);
    }
    if let Some(python) = interpreter {
        // It loaded this code, and is the program of this process.
        let mut command = Command::new(python);
        command.args(["-m", OWN]);
        return command;
    }
    let mut command = Command::new(if is_own_executable() { "/proc/self/exe" } else { OWN });
    command.arg0(OWN);
    command
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn ended(status: ExitStatus) -> JobState {
    match (status.code(), status.signal()) {
        (Some(code), _) => JobState::Exited(code),
        (None, signal) => JobState::Signalled(signal.unwrap_or(0)),
    }
}

/// The end of the output, where there is more than was shown.
fn tail(file: &File, shown: &(u64, String)) -> io::Result<(u64, String)> {
    let length = file.metadata()?.len();
    if length == shown.0 {
        return Ok(shown.clone());
    }
    let from = length.saturating_sub(MOST_SHOWN);
    let mut bytes = vec![0; usize::try_from(length - from).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], from + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((length, if from > 0 { format!("… (the beginning is not shown)\n{text}") } else { text }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn plan(words: &[&str]) -> Plan {
        Plan { words: words.iter().map(|word| (*word).to_owned()).collect(), output: None }
    }

    fn wait(job: &mut Job, grace: Duration) -> JobRow {
        while job.is_running() {
            job.look(grace);
            std::thread::sleep(Duration::from_millis(5));
        }
        job.row()
    }

    #[test]
    fn job_keeps_output_and_exit_status_without_a_terminal() {
        let script = "echo out; echo err >&2; read line || echo no input; : < /dev/tty || exit 3";
        let row = wait(&mut Job::start(1, &plan(&["sh", "-c", script]), None), Duration::ZERO);
        assert!(row.output.starts_with("out\nerr\nno input\n"), "{}", row.output);
        assert!(matches!(row.state, JobState::Exited(code) if code != 0), "{:?}", row.state);
    }

    #[test]
    fn long_output_is_shown_from_its_end() {
        let row = wait(
            &mut Job::start(1, &plan(&["sh", "-c", "yes line | head -c 300000; echo last"]), None),
            Duration::ZERO,
        );
        assert!(row.output.ends_with("last\n") && row.output.starts_with("… ("));
        assert!(row.output.len() < 70_000);
    }

    #[test]
    fn job_that_ignores_the_request_is_killed_with_what_it_started() {
        let script = "trap '' TERM; sleep 600 & echo $!; wait; sleep 600";
        let mut job = Job::start(1, &plan(&["sh", "-c", script]), None);
        let child: u32 = loop {
            if let Ok(pid) = job.row().output.trim().parse() {
                break pid;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let held = stormlog_pidfd::Pidfd::open(child).unwrap();
        job.cancel();
        assert_eq!(job.row().state, JobState::Ending);
        let row = wait(&mut job, Duration::from_millis(20));
        assert_eq!(row.state, JobState::Signalled(9));
        while !held.has_ended().unwrap() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn start_failure_and_existing_output_give_one_sentence() {
        let row = Job::start(1, &plan(&["/nowhere/program"]), None).row();
        assert!(
            matches!(&row.state, JobState::NotStarted(reason) if reason.contains("/nowhere/program")),
            "{row:?}"
        );
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("there");
        std::fs::write(&output, "mine").unwrap();
        let script = format!("echo > {}", output.display());
        let row =
            Job::start(1, &Plan { output: Some(output.clone()), ..plan(&["sh", "-c", &script]) }, None).row();
        assert!(
            matches!(&row.state, JobState::NotStarted(reason) if reason.contains("already there")),
            "{row:?}"
        );
        assert_eq!(std::fs::read_to_string(output).unwrap(), "mine");
    }
}
