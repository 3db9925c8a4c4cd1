//! The name of a worker: a process of a pool that Ray, Dask, gunicorn or Celery keeps. Workers run the program of their parent, so that the command line alone names them all
//! alike; what tells them apart is the title that the framework gives them, or the order in which they were started.
//!
//! For people to read. Must never decide what is recorded.

use std::ffi::OsStr;
use std::fmt;

use serde::Serialize;

/// The variable by which a user names a worker.
pub const WORKER_VARIABLE: &str = "STORMLOG_WORKER";
/// The variable by which Dask's nanny tells its workers what their parent is.
pub const DASK_PARENT_VARIABLE: &str = "__DASK_PARENT_PID";
/// What Ray calls a worker that has no task.
const RAY_IDLE: &str = "ray::IDLE";

/// A worker and the framework that started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Worker {
    /// `ray`, `dask`, `gunicorn`, `celery`; `None` where the user named it.
    pub framework: Option<&'static str>,
    /// Its name there: `ray::train`, `worker 2`, `ForkPoolWorker-1`.
    pub name: String,
}

/// What starts workers that have no title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// gunicorn's arbiter.
    Gunicorn,
    /// Celery's main process.
    Celery,
    /// A nanny of Dask.
    Dask,
}

impl Pool {
    /// Of the process that forks workers, by the name of its program.
    #[must_use]
    pub fn of_parent(program: &str) -> Option<Self> {
        match program {
            "gunicorn" | "gunicorn.app.wsgiapp" => Some(Pool::Gunicorn),
            "celery" => Some(Pool::Celery),
            _ if program.starts_with("gunicorn: master") => Some(Pool::Gunicorn),
            _ if program.starts_with("[celeryd: ") && program.contains(":MainProcess]") => Some(Pool::Celery),
            _ => None,
        }
    }

    /// Its worker of that number; the first is 1.
    #[must_use]
    pub fn worker(self, number: u32) -> Worker {
        let (framework, name) = match self {
            Pool::Gunicorn => ("gunicorn", format!("worker {number}")),
            Pool::Celery => ("celery", format!("ForkPoolWorker-{number}")),
            Pool::Dask => ("dask", format!("worker {number}")),
        };
        Worker { framework: Some(framework), name }
    }
}

impl Worker {
    /// One that the user named.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        const LONGEST: usize = 80;
        let name: String = name.trim().chars().filter(|letter| !letter.is_control()).take(LONGEST).collect();
        (!name.is_empty()).then_some(Worker { framework: None, name })
    }

    /// By the title that a framework put in the place of the command line.
    #[must_use]
    pub fn of_title(title: &str) -> Option<Self> {
        let worker =
            |framework, name: &str| Some(Worker { framework: Some(framework), name: name.to_owned() });
        if title.starts_with("ray::") && title.len() > "ray::".len() {
            return worker("ray", title);
        }
        if let Some(place) = title.strip_prefix("dask worker [").and_then(|rest| rest.strip_suffix(']')) {
            return worker("dask", if place.contains("://") { title } else { "dask worker" });
        }
        // `[celeryd: celery@node:ForkPoolWorker-1] -active- …`
        let name = title.strip_prefix("[celeryd: ")?.split_once(']')?.0.rsplit_once(':')?.1;
        name.contains("PoolWorker-").then(|| worker("celery", name))?
    }

    /// Whether it waits for work: the name of its last task is more informative.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.name == RAY_IDLE
    }
}

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.framework {
            Some(framework) if !self.name.starts_with(framework) => write!(f, "{framework} {}", self.name),
            _ => f.write_str(&self.name),
        }
    }
}

/// Whether a command line is that of a process that `multiprocessing` spawned to work, not of its helpers.
#[must_use]
pub fn is_spawned<S: AsRef<OsStr>>(command: &[S]) -> bool {
    let starts = |word: &S| word.as_ref().as_encoded_bytes().starts_with(b"from multiprocessing.spawn ");
    command.iter().any(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_of_frameworks_name_their_workers() {
        let named = |title: &str| Worker::of_title(title).map(|worker| worker.to_string());
        assert_eq!(named("ray::train").as_deref(), Some("ray::train"));
        assert_eq!(named("ray::Trainer.step").as_deref(), Some("ray::Trainer.step"));
        let celery = "[celeryd: celery@node:ForkPoolWorker-2] -active- (worker -A app)";
        assert_eq!(named(celery).as_deref(), Some("celery ForkPoolWorker-2"));
        assert_eq!(
            named("dask worker [tcp://10.0.0.1:4]").as_deref(),
            Some("dask worker [tcp://10.0.0.1:4]")
        );
        assert_eq!(named("dask worker [not started]").as_deref(), Some("dask worker"));
        for title in
            ["ray::", "rayon", "[celeryd: celery@node:MainProcess]", "dask nanny [x]", "[celeryd: ]", ""]
        {
            assert_eq!(named(title), None, "{title}");
        }
        assert!(Worker::of_title("ray::IDLE").unwrap().is_idle());
    }

    #[test]
    fn workers_without_a_title_are_numbered_by_their_pool() {
        let pool = |program: &str| Pool::of_parent(program).map(|pool| pool.worker(2).to_string());
        assert_eq!(pool("gunicorn").as_deref(), Some("gunicorn worker 2"));
        assert_eq!(pool("gunicorn: master [app:app]").as_deref(), Some("gunicorn worker 2"));
        assert_eq!(pool("celery").as_deref(), Some("celery ForkPoolWorker-2"));
        assert_eq!(pool("gunicorn worker 2"), None, "a child of a worker is not one");
        assert_eq!(pool("train.py"), None);
        assert_eq!(Pool::Dask.worker(1).to_string(), "dask worker 1");
    }

    #[test]
    fn name_that_a_user_gives_is_one_line() {
        assert_eq!(Worker::named(" loader\n7 ").unwrap().to_string(), "loader7");
        assert_eq!(Worker::named(" \n"), None);
    }
}
