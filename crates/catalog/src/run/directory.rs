//! The directory of one run: `run.json` and one sub-directory a process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_files::Directory;
use stormlog_liveness::lock;
use stormlog_model::naming::ProgramName;
use stormlog_model::{Launch, Record};
use stormlog_store::json::{read_value, write};
use stormlog_store::run_record::{RUN_FORMAT, RUN_VERSION};

use super::container::Container;
use super::layout::{
    ENDS_FILE, EXCEPTIONS_DIRECTORY, LOCKS_DIRECTORY, RUN_FILE, SUPERVISOR_LOCK, SessionName, Viewpoint,
};

/// A run directory that could not be made or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct RunDirectoryError {
    /// The directory or file.
    pub path: PathBuf,
    /// What the system reported.
    pub source: std::io::Error,
}

impl RunDirectoryError {
    fn new(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        RunDirectoryError { path: path.into(), source }
    }
}

/// A run's directory.
#[derive(Debug, Clone)]
pub struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    /// Makes a new directory below `root`: `2026-11-15T10-22-31Z-train-4f2a`; private, or shared with its group.
    pub fn create(
        root: &Path,
        command: &[OsString],
        now_ns: i64,
        is_shared: bool,
    ) -> Result<Self, RunDirectoryError> {
        let moment = jiff::Timestamp::from_nanosecond(now_ns.into()).unwrap_or_default();
        let stamp = moment.strftime("%Y-%m-%dT%H-%M-%SZ");
        let name = ProgramName::of(command).for_a_file();
        std::fs::create_dir_all(root).map_err(|error| RunDirectoryError::new(root, error))?;
        loop {
            let unique = &uuid::Uuid::new_v4().simple().to_string()[..4];
            let path = root.join(format!("{stamp}-{name}-{unique}"));
            match Directory::create(&path, is_shared) {
                Ok(directory) => {
                    // The program may change its working directory.
                    let run = RunDirectory { path: std::path::absolute(&path).unwrap_or(path) };
                    let made = directory
                        .directory(EXCEPTIONS_DIRECTORY)
                        .and_then(|_| directory.create_new(ENDS_FILE));
                    return match made {
                        Ok(_) => Ok(run),
                        Err(error) => {
                            run.remove();
                            Err(RunDirectoryError::new(run.exceptions(), error))
                        }
                    };
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(RunDirectoryError::new(path, error)),
            }
        }
    }

    /// The run directory at `path`, when there is one.
    #[must_use]
    pub fn open(path: &Path) -> Option<Self> {
        path.join(RUN_FILE).is_file().then(|| RunDirectory { path: path.to_owned() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it away again: nothing ran, and what is left of that would only confuse.
    pub fn remove(&self) {
        // Half of it left behind does no harm.
        let _ = std::fs::remove_dir_all(&self.path);
    }

    /// What `run.json` says; empty when it cannot be read.
    #[must_use]
    pub fn read(&self) -> Record {
        match read_value(&self.path.join(RUN_FILE)) {
            Ok(Value::Object(record)) => record,
            _ => Record::new(),
        }
    }

    /// Writes `run.json`, whole or not at all. It has the name of the directory in which it was written first: a copy may have another one.
    pub fn write(&self, record: &Record) -> Result<(), RunDirectoryError> {
        let path = self.path.join(RUN_FILE);
        let mut record = record.clone();
        if let Some(name) = self.path.file_name() {
            record.entry("name").or_insert_with(|| name.to_string_lossy().into());
        }
        let mut text = Vec::new();
        write::write_indented(&mut text, &record, 0)
            .and_then(|()| {
                text.push(b'\n');
                Directory::open(&self.path)?.replace(RUN_FILE, &text)
            })
            .map_err(|error| RunDirectoryError::new(path, error))
    }

    /// Where the session of a process goes that the supervisor has just met.
    #[must_use]
    pub fn new_process(&self, rank: u64, pid: u32, start_ticks: u64) -> PathBuf {
        let mut name = SessionName { rank, pid, start_ticks: None, viewpoint: Viewpoint::Outside };
        if self.path.join(name.to_string()).exists() {
            // The number was used before in this run.
            name.start_ticks = Some(start_ticks);
        }
        self.path.join(name.to_string())
    }

    /// Takes the lock by which readers of other namespaces know that the supervisor lives. `None` where there can be none.
    #[must_use]
    pub fn hold_lock(&self) -> Option<lock::Held> {
        let locks = Directory::open(&self.path).and_then(|run| run.directory(LOCKS_DIRECTORY)).ok()?;
        lock::hold(&locks, SUPERVISOR_LOCK).ok()
    }

    /// Removes the locks of processes that have ended; all of them when the run is over.
    pub fn sweep_locks(&self, is_over: bool) {
        if let Ok(run) = Directory::open(&self.path) {
            lock::sweep(&run, LOCKS_DIRECTORY, is_over);
        }
    }

    /// Removes the file of ends: how each process ended is in `run.json` by now.
    pub fn forget_ends(&self) {
        // Left behind, it does no harm.
        let _ = Directory::open(&self.path).and_then(|run| run.remove(ENDS_FILE));
    }

    /// The directory of reported exceptions.
    #[must_use]
    pub fn exceptions(&self) -> PathBuf {
        self.path.join(EXCEPTIONS_DIRECTORY)
    }
}

/// What is known of a run when it starts.
#[derive(Debug)]
pub struct RunStart<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// The machine's name.
    pub host: &'a str,
    /// When, in nanoseconds since 1970.
    pub started_at_ns: i64,
    /// Between two samples.
    pub interval_ms: u64,
    /// Record the environment: values of variables on the allow-list, names of the others.
    pub records_environment: bool,
}

impl RunStart<'_> {
    /// What `run.json` has until the run ends. Secrets are left out.
    #[must_use]
    pub fn to_record(&self) -> Record {
        let words: Vec<String> =
            self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let scrubbed = stormlog_model::scrub::command(&words);
        let directory = std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default();
        let environment = if self.records_environment { environment() } else { Value::Null };
        let Value::Object(mut record) = json!({
            "format": RUN_FORMAT, "schema_version": RUN_VERSION, "version": env!("CARGO_PKG_VERSION"), "status": "running", "command": scrubbed,
            "working_directory": directory, "host": self.host, "started_at_ns": self.started_at_ns, "ended_at_ns": null,
            "interval_ms": self.interval_ms, "exit_code": null, "signal": null, "verdict": null,
            "environment": environment, "container": Container::own().to_value(),
        }) else {
            return Record::new();
        };
        let launch = Launch::of(&|name: &str| std::env::var(name).ok());
        let launch = launch.and_then(|launch| serde_json::to_value(launch).ok());
        record.extend(launch.map(|launch| ("launch".to_owned(), launch)));
        record
    }
}

fn environment() -> Value {
    let variable = |(name, value): (OsString, OsString)| {
        let name = name.to_string_lossy().into_owned();
        let value = stormlog_model::scrub::variable(&name, &value.to_string_lossy());
        (name, value.into())
    };
    Value::Object(std::env::vars_os().map(variable).collect())
}
