//! The run directory: made, read, judged and finished here. Its names are in [`layout`] and in no other crate.

mod container;
pub mod deaths;
mod devices;
mod directory;
pub mod ends;
pub mod exceptions;
mod finish;
mod finish_write;
mod join;
mod kernel;
mod kernel_kills;
mod last_death;
mod last_look;
pub mod layout;
mod life;
mod listing;
mod live_files;
pub mod memory_map;
mod observe;
mod process;
mod record;
mod retention;
mod search;
mod stored;

pub use container::Container;
pub use directory::{RunDirectory, RunDirectoryError, RunStart};
pub use finish::{FinishedRun, FinishedSession, finish_abandoned};
pub use kernel::kernel_kill;
pub use last_death::{Death, deaths_at};
pub use last_look::LIMIT_SOURCE;
pub use life::{PROGRAM, START_TICKS, session_life};
pub use listing::ListedProcess;
pub use live_files::{LiveFile, live_files, unfinished_captures};
pub use observe::{FileVersion, ObservedRun, ObservedState, SessionDirectory, session_directories};
pub use process::{EndFacts, Process, ProcessEnd, ProcessSession, Run, RunStatus, Runs, viewpoint_word};
pub use record::{RunRecord, WorkerRow};
pub use retention::{
    KEEP_DAYS_VARIABLE, KEEP_SIZE_VARIABLE, KEEP_VARIABLE, KeepRule, remove_run, stored_runs,
};
pub use search::{FoundRuns, Processes, SessionProcesses, find_runs, processes, runs};
pub use stored::StoredRun;
