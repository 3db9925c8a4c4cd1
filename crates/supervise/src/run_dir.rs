//! The directory of one run: `run.json` and one sub-directory a process.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_event::{Identity, Record};
use stormlog_store::json::{read_value, write};

use crate::error::RunError;
use crate::scrub;

/// The run's own file.
pub const RUN_FILE: &str = "run.json";
/// The directory of exceptions that processes reported before they ended.
pub(crate) const EXCEPTIONS: &str = "exceptions";

/// A run's directory.
#[derive(Debug, Clone)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Makes a new directory below `root`: `2026-11-15T10-22-31Z-train-4f2a`.
    pub fn create(root: &Path, command: &[OsString], now_ns: i64) -> Result<Self, RunError> {
        let moment = jiff::Timestamp::from_nanosecond(now_ns.into()).unwrap_or_default();
        let stamp = moment.strftime("%Y-%m-%dT%H-%M-%SZ");
        let name = program_name(command);
        std::fs::create_dir_all(root).map_err(|error| RunError::directory(root, error))?;
        loop {
            let unique = &uuid::Uuid::new_v4().simple().to_string()[..4];
            let path = root.join(format!("{stamp}-{name}-{unique}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let exceptions = path.join(EXCEPTIONS);
                    std::fs::create_dir(&exceptions)
                        .map_err(|error| RunError::directory(&exceptions, error))?;
                    // The program may change its working directory.
                    let path = std::path::absolute(&path).unwrap_or(path);
                    return Ok(RunDirectory { path });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(RunError::directory(path, error)),
            }
        }
    }

    /// The run directory at `path`, when there is one.
    pub fn open(path: &Path) -> Option<Self> {
        path.join(RUN_FILE).is_file().then(|| RunDirectory { path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What `run.json` says; empty when it cannot be read.
    pub fn read(&self) -> Record {
        match read_value(&self.path.join(RUN_FILE)) {
            Ok(Value::Object(record)) => record,
            _ => Record::new(),
        }
    }

    /// Writes `run.json`, whole or not at all.
    pub(crate) fn write(&self, record: &Record) -> Result<(), RunError> {
        let path = self.path.join(RUN_FILE);
        let temporary = self.path.join(format!(".{RUN_FILE}.{}.tmp", std::process::id()));
        let mut text = Vec::new();
        write::write_indented(&mut text, record, 0)
            .and_then(|()| {
                text.push(b'\n');
                std::fs::write(&temporary, &text)
            })
            .and_then(|()| std::fs::rename(&temporary, &path))
            .map_err(|error| RunError::directory(path, error))
    }

    /// The directory of a process's session.
    pub(crate) fn process(&self, identity: &Identity, pid: u32) -> PathBuf {
        self.path.join(format!("rank{}-pid{pid}", identity.rank))
    }

    /// The directory of reported exceptions.
    pub(crate) fn exceptions(&self) -> PathBuf {
        self.path.join(EXCEPTIONS)
    }
}

/// What is known of a run when it starts.
pub(crate) fn first_record(command: &[OsString], host: &str, now_ns: i64, interval_ms: u64) -> Record {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let before = std::iter::once(None).chain(words.iter().map(|word| Some(word.as_str())));
    let scrubbed: Vec<String> =
        before.zip(&words).map(|(before, word)| scrub::argument(before, word)).collect();
    let environment: serde_json::Map<String, Value> = std::env::vars_os()
        .map(|(name, value)| {
            let name = name.to_string_lossy().into_owned();
            let value = scrub::value(&name, &value.to_string_lossy());
            (name, value.into())
        })
        .collect();
    let directory = std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default();
    let Value::Object(record) = json!({
        "format": "stormlog.run", "schema_version": 1, "status": "running", "command": scrubbed,
        "working_directory": directory, "host": host, "started_at_ns": now_ns, "ended_at_ns": null,
        "interval_ms": interval_ms, "exit_code": null, "signal": null, "verdict": null,
        "environment": environment,
    }) else {
        return Record::new();
    };
    record
}

/// The script when an interpreter runs one, else the program; only letters a file name can always have.
fn program_name(command: &[OsString]) -> String {
    let base = |word: &OsString| Path::new(word).file_stem().map(OsStr::to_owned).unwrap_or_default();
    let is_interpreter = command.first().is_some_and(|program| {
        let name = base(program).to_string_lossy().into_owned();
        ["python", "torchrun", "accelerate", "deepspeed"].iter().any(|known| name.starts_with(known))
    });
    let is_script = |word: &&OsString| Path::new(word).extension().is_some_and(|extension| extension == "py");
    let script = command.iter().skip(1).find(is_script).filter(|_| is_interpreter);
    let name = script.or(command.first()).map(base).unwrap_or_default();
    let safe =
        |letter: char| if letter.is_ascii_alphanumeric() || "_-.".contains(letter) { letter } else { '_' };
    let name: String = name.to_string_lossy().chars().map(safe).take(40).collect();
    if name.is_empty() { "program".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(words: &[&str]) -> String {
        program_name(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn runs_are_named_after_what_matters() {
        assert_eq!(named(&["python", "-u", "train.py", "--x", "y.py"]), "train");
        assert_eq!(named(&["/usr/bin/python3.12", "a b/train job.py"]), "train_job");
        assert_eq!(named(&["./build/sim.exe"]), "sim");
        assert_eq!(named(&["bash", "run.py"]), "bash");
        assert_eq!(named(&[]), "program");
    }
}
