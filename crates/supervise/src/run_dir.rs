//! The directory of one run: `run.json` and one sub-directory a process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_files::Directory;
use stormlog_model::{Identity, Record};
use stormlog_store::json::{read_value, write};
use stormlog_store::run_record::{RUN_FORMAT, RUN_VERSION};

use crate::error::RunError;
use crate::naming::ProgramName;

/// The run's own file.
pub use stormlog_store::run_record::RUN_FILE;
/// The directory of exceptions that processes reported before they ended.
pub(crate) const EXCEPTIONS: &str = "exceptions";

/// A run's directory.
#[derive(Debug, Clone)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Makes a new directory below `root`: `2026-11-15T10-22-31Z-train-4f2a`; private, or shared with its group.
    pub fn create(root: &Path, command: &[OsString], now_ns: i64, is_shared: bool) -> Result<Self, RunError> {
        let moment = jiff::Timestamp::from_nanosecond(now_ns.into()).unwrap_or_default();
        let stamp = moment.strftime("%Y-%m-%dT%H-%M-%SZ");
        let name = ProgramName::of(command).for_a_file();
        std::fs::create_dir_all(root).map_err(|error| RunError::directory(root, error))?;
        loop {
            let unique = &uuid::Uuid::new_v4().simple().to_string()[..4];
            let path = root.join(format!("{stamp}-{name}-{unique}"));
            match Directory::create(&path, is_shared) {
                Ok(directory) => {
                    // The program may change its working directory.
                    let run = RunDirectory { path: std::path::absolute(&path).unwrap_or(path) };
                    return match directory.directory(EXCEPTIONS) {
                        Ok(_) => Ok(run),
                        Err(error) => {
                            run.remove();
                            Err(RunError::directory(run.exceptions(), error))
                        }
                    };
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

    /// Takes it away again: nothing ran, and what is left of that would only confuse.
    pub(crate) fn remove(&self) {
        // Half of it left behind does no harm.
        let _ = std::fs::remove_dir_all(&self.path);
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
        let mut text = Vec::new();
        write::write_indented(&mut text, record, 0)
            .and_then(|()| {
                text.push(b'\n');
                Directory::open(&self.path)?.replace(RUN_FILE, &text)
            })
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

/// The environment: values of variables on the allow-list, of the others the name alone.
pub(crate) fn environment() -> Value {
    let variable = |(name, value): (OsString, OsString)| {
        let name = name.to_string_lossy().into_owned();
        let value = stormlog_model::scrub::variable(&name, &value.to_string_lossy());
        (name, value.into())
    };
    Value::Object(std::env::vars_os().map(variable).collect())
}

/// What is known of a run when it starts.
pub(crate) fn first_record(
    command: &[OsString],
    host: &str,
    now_ns: i64,
    interval_ms: u64,
    environment: Value,
) -> Record {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let scrubbed = stormlog_model::scrub::command(&words);
    let directory = std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default();
    let Value::Object(record) = json!({
        "format": RUN_FORMAT, "schema_version": RUN_VERSION, "status": "running", "command": scrubbed,
        "working_directory": directory, "host": host, "started_at_ns": now_ns, "ended_at_ns": null,
        "interval_ms": interval_ms, "exit_code": null, "signal": null, "verdict": null,
        "environment": environment,
    }) else {
        return Record::new();
    };
    record
}
