//! A user's command: split into words, started without a shell, in a process group of its own that ends with its time.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::PushError;

/// The words of a command line; there is no shell.
pub fn split_words(text: &str) -> Result<Vec<String>, PushError> {
    Ok(stormlog_model::text::split_words(text)?)
}

/// Runs it with a text on its standard input and a few variables; what it prints is not shown. It is killed after `timeout`.
pub(crate) fn run(
    words: &[String],
    input: &[u8],
    variables: &[(&str, String)],
    timeout: Duration,
) -> Result<(), PushError> {
    let (program, arguments) = words.split_first().ok_or(PushError::NoCommand)?;
    let failed = |reason: String| PushError::Command { program: program.clone(), reason };
    let mut child = Command::new(program)
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| failed(format!("cannot be started: {error}")))?;
    let (stdin, input) = (child.stdin.take(), input.to_owned());
    // It need not read; a pipe that is full must not stop the clock.
    let writing = thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let status = wait(&mut child, timeout);
    let _ = writing.join();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(format!("ended with {status}"))),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Waits for its end; after the time it is killed with all that it started in its group.
pub(crate) fn wait(child: &mut Child, timeout: Duration) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + timeout;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // A child without a group of its own leads none, and nothing is killed but itself below.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.kill();
            let _ = child.wait();
            let reason = format!("took longer than {} s and was killed", timeout.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_gets_the_text_and_the_variables() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("out");
        let script = format!("cat > {0}; printf %s \"$STORMLOG_EVENT\" >> {0}", file.display());
        let words = ["sh", "-c", &script].map(str::to_owned);
        run(&words, b"text ", &[("STORMLOG_EVENT", "death".to_owned())], Duration::from_secs(60)).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "text death");
    }

    #[test]
    fn command_that_hangs_is_killed_with_its_children() {
        let words = ["sh", "-c", "sleep 1000 & wait"].map(str::to_owned);
        let error = run(&words, b"", &[], Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("was killed"), "{error}");
    }

    #[test]
    fn command_that_fails_is_a_value() {
        let error = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            run(&words, &[b'x'; 1 << 20], &[], Duration::from_secs(60)).unwrap_err().to_string()
        };
        assert!(error(&["false"]).contains("exit status: 1"));
        assert!(error(&["/nonexistent/program"]).contains("cannot be started"));
    }
}
