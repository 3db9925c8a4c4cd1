//! The thread that starts, watches and ends jobs, and looks at the processes that are to be signalled.

use std::ffi::{OsStr, OsString};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::job::Job;
use super::target::Target;
use crate::error::TuiError;
use crate::state::actions::{JobRow, Plan};

/// Jobs that may run at once.
pub(crate) const MOST_RUNNING: usize = 4;
/// Jobs that are listed; the oldest of those that ended are dropped.
const MOST_LISTED: usize = 32;
/// Between two looks at the jobs that run.
const EVERY: Duration = Duration::from_millis(250);
/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

enum Word {
    Start(Plan),
    Cancel(u64),
    Inspect(u32),
}

/// What happened since it was asked last.
#[derive(Debug, Default)]
pub(crate) struct ActLook {
    /// All jobs, the newest first, where something changed.
    pub(crate) jobs: Option<Vec<JobRow>>,
    /// The process that was to be looked at, or why it cannot be signalled.
    pub(crate) target: Option<Result<Target, String>>,
}

/// The thread, from outside. It ends when this is dropped; jobs that run continue.
#[derive(Debug)]
pub(crate) struct Worker {
    words: Sender<Word>,
    news: Arc<Mutex<ActLook>>,
}

impl Worker {
    /// `interpreter` is the one that this code runs in, where it does.
    pub(crate) fn start(interpreter: Option<OsString>) -> Result<Self, TuiError> {
        let (words, heard) = channel();
        let news = Arc::new(Mutex::new(ActLook::default()));
        let shared = Arc::clone(&news);
        thread::Builder::new()
            .name("actions".to_owned())
            .spawn(move || work(&heard, &shared, interpreter.as_deref()))?;
        Ok(Worker { words, news })
    }

    pub(crate) fn run(&self, plan: Plan) {
        self.send(Word::Start(plan));
    }

    pub(crate) fn cancel(&self, job: u64) {
        self.send(Word::Cancel(job));
    }

    pub(crate) fn inspect(&self, pid: u32) {
        self.send(Word::Inspect(pid));
    }

    fn send(&self, word: Word) {
        // The thread lives as long as this does.
        let _ = self.words.send(word);
    }

    pub(crate) fn news(&self) -> ActLook {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn work(heard: &Receiver<Word>, news: &Mutex<ActLook>, interpreter: Option<&OsStr>) {
    let mut jobs: Vec<Job> = Vec::new();
    let (mut next, mut reported) = (1, Vec::new());
    loop {
        let is_any = jobs.iter().any(Job::is_running);
        let word = match is_any {
            true => heard.recv_timeout(EVERY),
            false => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let mut target = None;
        match word {
            Ok(Word::Start(plan)) => {
                jobs.insert(0, Job::start(next, &plan, interpreter));
                next += 1;
            }
            Ok(Word::Cancel(id)) => jobs.iter_mut().filter(|job| job.id == id).for_each(Job::cancel),
            Ok(Word::Inspect(pid)) => target = Some(Target::open(pid)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        jobs.iter_mut().for_each(|job| job.look(GRACE));
        while jobs.len() > MOST_LISTED
            && let Some(oldest) = jobs.iter().rposition(|job| !job.is_running())
        {
            jobs.remove(oldest);
        }
        let rows: Vec<JobRow> = jobs.iter_mut().map(Job::row).collect();
        let mut news = news.lock().unwrap_or_else(PoisonError::into_inner);
        if rows != reported {
            reported.clone_from(&rows);
            news.jobs = Some(rows);
        }
        if target.is_some() {
            news.target = target;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use crate::state::actions::JobState;

    fn until(worker: &Worker, is_it: impl Fn(&ActLook) -> bool) -> ActLook {
        loop {
            let look = worker.news();
            if is_it(&look) {
                return look;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn jobs_run_beside_each_other_and_one_is_ended() {
        let worker = Worker::start(None).unwrap();
        let plan = |words: &[&str]| Plan {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            output: None,
        };
        worker.run(plan(&["sleep", "600"]));
        worker.run(plan(&["true"]));
        let done = |look: &ActLook| {
            look.jobs
                .as_ref()
                .is_some_and(|jobs| jobs.iter().any(|job| job.id == 2 && job.state == JobState::Exited(0)))
        };
        let look = until(&worker, done);
        assert_eq!(look.jobs.unwrap()[1].state, JobState::Running);
        worker.cancel(1);
        until(&worker, |look| {
            look.jobs.as_ref().is_some_and(|jobs| jobs.iter().any(|job| job.state == JobState::Signalled(15)))
        });
        worker.inspect(1);
        until(&worker, |look| look.target.is_some());
    }
}
