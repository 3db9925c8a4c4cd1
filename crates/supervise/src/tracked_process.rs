//! One tracked process: its session, its names, where it is, and how its end is noticed.
//!
//! What is read of its memory and recorded about it is `track`'s to say.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use stormlog_catalog::run::{LIMIT_SOURCE, PROGRAM, START_TICKS};
use stormlog_collect::TreeMember;
use stormlog_collect::process::ProcessReader;
use stormlog_model::page_facts::FORK_ANONYMOUS;
use stormlog_model::worker::{Pool, Worker, is_spawned};
use stormlog_model::{Identity, Record, SessionSummary};
use stormlog_track::ProcessSession;

use crate::exits::Exit;
use crate::groups::GroupId;
use crate::maps::Mapped;
use crate::naming::{ProgramName, command_of};

/// The command line of a process when it was met. Read before anything is written for it: some end within milliseconds.
pub(crate) struct FirstCommand {
    words: Vec<OsString>,
    /// It was its parent's.
    is_copy: bool,
}

impl FirstCommand {
    pub(crate) fn read(pid: u32, reader: Option<&mut ProcessReader>) -> Option<Self> {
        // In this order: after an exec between the two it would pass for its own.
        let is_copy = reader?.stat().ok()?.is_copy;
        Some(FirstCommand { words: command_of(pid)?, is_copy })
    }
}

/// A process that is or was sampled.
pub(crate) struct TrackedProcess {
    pub(crate) pid: u32,
    /// Its parent when first seen.
    pub(crate) ppid: u32,
    /// The name of the process when last looked at.
    pub(crate) comm: String,
    /// Its process group when last looked at; 0 where that is not known.
    pub(crate) process_group: u32,
    /// What its user would call it, by its own command line.
    program: Option<String>,
    /// What the user would call the program of the run.
    run_program: String,
    /// That command line was its parent's: it had not executed a program of its own yet.
    is_named_as_copy: bool,
    /// It had ended before the command line of its own program could be read.
    is_named_by_comm: bool,
    pub(crate) start_time: u64,
    pub(crate) summary: SessionSummary,
    pub(crate) identity: Identity,
    pub(crate) directory: PathBuf,
    pub(crate) since: Instant,
    /// What is read of it and recorded.
    pub(crate) session: ProcessSession,
    /// `None` when it had ended before anything of it could be read.
    pub(crate) reader: Option<ProcessReader>,
    pub(crate) exit: Exit,
    /// The memory cgroup it was last seen in.
    pub(crate) group: GroupId,
    pub(crate) mapped: Mapped,
    /// Where torchrun looks for why it failed.
    pub(crate) error_file: Option<PathBuf>,
    /// Whether torchrun started it.
    pub(crate) is_rank: bool,
    /// The worker it is in a pool of Ray, Dask, gunicorn or Celery.
    pub(crate) worker: Option<Worker>,
    /// The pool it may be a worker of, and its number there.
    pub(crate) pool: Option<(Pool, u32)>,
    /// Whether that was looked for while it was a copy of its parent.
    pub(crate) is_pool_sought: bool,
}

impl TrackedProcess {
    pub(crate) fn new(
        member: &TreeMember,
        run_program: &str,
        summary: SessionSummary,
        identity: Identity,
        directory: PathBuf,
        session: ProcessSession,
        (reader, exit, first): (Option<ProcessReader>, Exit, Option<FirstCommand>),
    ) -> Self {
        let mut tracked = TrackedProcess {
            pid: member.pid,
            ppid: member.ppid,
            comm: member.comm.clone(),
            process_group: 0,
            program: None,
            run_program: run_program.to_owned(),
            is_named_as_copy: false,
            is_named_by_comm: true,
            start_time: member.start_time,
            directory,
            since: Instant::now(),
            session,
            exit,
            reader,
            group: GroupId::default(),
            mapped: Mapped::default(),
            error_file: None,
            is_rank: false,
            worker: None,
            pool: None,
            is_pool_sought: false,
            summary,
            identity,
        };
        if let Some(first) = first {
            tracked.is_named_as_copy = first.is_copy;
            tracked.set_command(&first.words, first.is_copy);
        }
        tracked.refresh_name();
        tracked
    }

    /// Whether it is still a copy of its parent, command line, environment and all.
    pub(crate) fn is_copy(&mut self) -> bool {
        self.reader.as_mut().and_then(|reader| reader.stat().ok()).is_some_and(|stat| stat.is_copy)
    }

    /// Resident bytes now; `None` when it has none any more.
    pub(crate) fn read_memory(&mut self) -> Option<u64> {
        self.session.read_memory(self.reader.as_mut()?)
    }

    /// Notes what a fork shares with its parent, which is all that no file backs. What it has allocated itself by now is not the parent's.
    pub(crate) fn note_fork(&mut self, parent: Option<&mut TrackedProcess>) {
        let anonymous = |process: &mut TrackedProcess| process.reader.as_mut()?.status().ok()?.rss_anonymous;
        if !self.is_copy() {
            return;
        }
        let shared = anonymous(self).zip(parent.and_then(anonymous)).map(|(own, above)| own.min(above));
        if let Some(bytes) = shared {
            self.session.set_fact(FORK_ANONYMOUS, bytes.into());
        }
    }

    /// The pages it shares with others and those of its own, where that is due.
    pub(crate) fn read_pages(&mut self) {
        if let Some(reader) = &mut self.reader {
            self.session.read_pages(reader);
        }
    }

    /// A look between two samples, for the peak of a process that may be gone at the next; whether it lives.
    pub(crate) fn look_early(&mut self) -> bool {
        self.reader.as_mut().is_some_and(|reader| self.session.look_early(reader))
    }

    /// Notes the cgroup it was found in; whether that is another one. To be asked while it is known to live: the dead are in none.
    pub(crate) fn is_moved_to(&mut self, found: Option<GroupId>) -> bool {
        let before = self.group;
        self.group = found.unwrap_or(before);
        self.group != before
    }

    /// The names it has now, which an exec changes. One that waits to be reaped has its short name, and no command line any more.
    pub(crate) fn refresh_name(&mut self) {
        let Some(stat) = self.reader.as_mut().and_then(|reader| reader.stat().ok()) else { return };
        self.comm = stat.comm;
        self.process_group = stat.process_group;
        match command_of(self.pid) {
            Some(command) => {
                self.is_named_as_copy = stat.is_copy;
                self.set_command(&command, stat.is_copy);
            }
            // It executed something else after it was last looked at.
            None if self.is_named_as_copy && !stat.is_copy => {
                self.is_named_as_copy = false;
                self.is_named_by_comm = true;
                self.set_program(self.comm.clone());
            }
            None => {}
        }
    }

    /// Takes its name from the command line that `recorded` finds, where it ended before ours could be read.
    pub(crate) fn name_by(&mut self, recorded: impl FnOnce() -> Option<Vec<OsString>>) {
        if let Some(command) =
            self.is_named_by_comm.then(recorded).flatten().filter(|words| !words.is_empty())
        {
            self.set_command(&command, false);
        }
    }

    fn set_command(&mut self, command: &[OsString], is_copy: bool) {
        self.is_named_by_comm = false;
        self.set_worker(command, is_copy);
        let name = self.worker.as_ref().map(Worker::to_string);
        self.set_program(name.unwrap_or_else(|| ProgramName::of_worker(command, &self.run_program).word));
    }

    /// By its title, else by its pool. A worker that waits for work keeps the name of its last task.
    fn set_worker(&mut self, command: &[OsString], is_copy: bool) {
        let title = command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
        let is_user_named = self.worker.as_ref().is_some_and(|worker| worker.framework.is_none());
        let found = match (Worker::of_title(&title), self.pool) {
            (Some(found), _) => Some(found),
            (None, Some((Pool::Dask, number))) => is_spawned(command).then(|| Pool::Dask.worker(number)),
            (None, Some((pool, number))) => is_copy.then(|| pool.worker(number)),
            (None, None) => None,
        };
        let is_idle = found.as_ref().is_some_and(Worker::is_idle) && self.worker.is_some();
        if is_user_named || is_idle || found == self.worker {
            return;
        }
        self.worker = found;
    }

    fn set_program(&mut self, name: String) {
        if self.program.as_ref() == Some(&name) {
            return;
        }
        self.session.set_fact(PROGRAM, name.as_str().into());
        self.program = Some(name);
    }

    /// What the limit in its samples is of.
    pub(crate) fn set_limit_source(&mut self, source: Option<&str>) {
        if let Some(source) = source {
            self.session.set_fact(LIMIT_SOURCE, source.into());
        }
    }

    /// What its user would call it.
    pub(crate) fn name(&self) -> &str {
        self.program.as_deref().unwrap_or(&self.comm)
    }

    /// What changes slowly: its name, which an exec changes, its peak, and how short of memory it is, `stalls` being the
    /// percent of the time that some, and that all tasks waited.
    pub(crate) fn refresh_slow(&mut self, stalls: [Option<f64>; 2]) {
        self.refresh_name();
        if let Some(reader) = &mut self.reader {
            self.session.read_slow(reader, stalls);
        }
    }
}

/// What every event says of the process.
pub(crate) fn about(member: &TreeMember) -> Record {
    Record::from_iter([
        ("comm".to_owned(), member.comm.as_str().into()),
        ("ppid".to_owned(), member.ppid.into()),
        (START_TICKS.to_owned(), member.start_time.into()),
    ])
}
