//! Whether the supervisor and the processes of a run live, by what the run's directory shows. Must never write.
//!
//! While a supervisor lives it answers for all processes of its run: it ends their sessions itself.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_liveness::{Evidence, Life, LockState, ProcessId, Site, lock};
use stormlog_model::{Event, Record};
use stormlog_store::recording::RecordedEvents;

use super::container::Container;
use super::directory::RunDirectory;
use super::layout::{LOG_DIRECTORY, RING_FILE, RUN_FILE, SHIPMENT_FILE, process_lock, supervisor_lock};

/// In an event's metadata: what the user would call its process.
pub const PROGRAM: &str = "program";
/// In an event's metadata: when its process started, in clock ticks since boot.
pub const START_TICKS: &str = "process_start_ticks";
/// Levels between a source of events and its run: `RUN/rank0-pid7/log`.
const LEVELS: usize = 4;

impl RunDirectory {
    /// Whether the supervisor of the run lives. `record` is what its `run.json` has.
    #[must_use]
    pub fn supervisor_life(&self, record: &Record) -> Life {
        RunLife::of(self, record).life
    }

    /// This process as the supervisor of the run, for `run.json`.
    #[must_use]
    pub fn supervisor_record(&self) -> Value {
        let own = ProcessId::own();
        let site = Site::of(self.path());
        json!({
            "pid": own.pid, "start_time": own.start_ticks, "boot_id": own.boot_id, "pid_namespace": own.pid_namespace,
            "device": site.map(|site| site.device), "inode": site.map(|site| site.inode),
            "born_ns": site.and_then(|site| site.born_ns),
        })
    }
}

/// What a run's directory shows of the processes that made it.
#[derive(Debug)]
pub(crate) struct RunLife {
    run: PathBuf,
    supervisor: Evidence,
    /// Whether the supervisor lives.
    pub(crate) life: Life,
    /// No process of its PID namespace lives.
    has_namespace_ended: bool,
    /// It was recorded elsewhere: a process of this machine says nothing about it, and its own end comes with the rest of it.
    is_copy: bool,
}

impl RunLife {
    pub(crate) fn of(run: &RunDirectory, record: &Record) -> Self {
        let run = run.path().to_owned();
        let supervisor = evidence(&run, record);
        let lock = lock::state(&supervisor_lock(&run));
        let has_container_ended = Container::of_record(record).has_ended_before(Container::own());
        let is_copy = run.join(SHIPMENT_FILE).exists();
        let life = match supervisor.life(&run, lock, true) {
            _ if is_copy => Life::Unknown,
            Life::Unknown if has_container_ended => Life::Dead,
            life => life,
        };
        // The kernel kills every process of a namespace whose first one has ended.
        let is_first = supervisor.process.pid == 1;
        let has_namespace_ended = life == Life::Dead && (is_first || has_container_ended);
        RunLife { run, supervisor, life, has_namespace_ended, is_copy }
    }

    /// Whether the supervisor lives now.
    pub(crate) fn look(&self) -> Life {
        if self.is_copy {
            return Life::Unknown;
        }
        self.supervisor.life(&self.run, lock::state(&supervisor_lock(&self.run)), true)
    }

    /// Whether a process lives that the supervisor recorded.
    pub(crate) fn process(&self, pid: u32, start_ticks: Option<u64>) -> Life {
        if self.life == Life::Alive || self.is_copy {
            return self.life;
        }
        let lock = start_ticks.map_or(LockState::Missing, |start_ticks| {
            lock::state(&process_lock(&self.run, pid, start_ticks))
        });
        let process = ProcessId { pid, start_ticks, ..self.supervisor.process.clone() };
        let found = Evidence { process, ..self.supervisor.clone() }.life(&self.run, lock, false);
        if found == Life::Unknown && self.has_namespace_ended {
            return Life::Dead;
        }
        // A number without its start time may be another process by now.
        if found == Life::Alive && lock != LockState::Held && start_ticks.is_none() {
            return Life::Unknown;
        }
        found
    }
}

fn evidence(run: &Path, record: &Record) -> Evidence {
    let supervisor = record.get("supervisor");
    let number = |key: &str| supervisor.and_then(|supervisor| supervisor.get(key)?.as_u64());
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let is_on_network = stormlog_liveness::is_on_network(run);
    let site = number("device").zip(number("inode"));
    Evidence {
        process: ProcessId {
            pid: number("pid").and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
            start_ticks: number("start_time"),
            boot_id: text(supervisor.and_then(|supervisor| supervisor.get("boot_id"))),
            pid_namespace: number("pid_namespace"),
        },
        host: text(record.get("host")),
        site: site.map(|(device, inode)| Site { device, inode, born_ns: number("born_ns"), is_on_network }),
    }
}

/// When the process of an event started.
pub(crate) fn start_ticks(event: &Event) -> Option<u64> {
    event.metadata.map.get(START_TICKS)?.as_u64()
}

/// Whether the process of that number lives, whose session on `host` is said to be running. `source` is where the session was found.
#[must_use]
pub fn session_life(source: &Path, pid: i64, host: &str, started_at_ns: i64) -> Life {
    let Some(pid) = u32::try_from(pid).ok().filter(|pid| *pid > 0) else { return Life::Unknown };
    let above: Vec<&Path> = source.ancestors().take(LEVELS).collect();
    let Some(at) = above.iter().position(|path| path.join(RUN_FILE).is_file()) else {
        let started_ns = u64::try_from(started_at_ns).unwrap_or(0);
        return stormlog_liveness::of_session(source, pid, host, started_ns);
    };
    let Some(run) = RunDirectory::open(above[at]) else { return Life::Unknown };
    let life = RunLife::of(&run, &run.read());
    if life.life == Life::Alive {
        return Life::Alive;
    }
    let session = at.checked_sub(1).map_or(source, |below| above[below]);
    life.process(pid, first_event(session).as_ref().and_then(start_ticks))
}

/// The first event of a session directory that is left.
fn first_event(session: &Path) -> Option<Event> {
    let of_log = || RecordedEvents::log(&session.join(LOG_DIRECTORY)).ok()?.find_map(Result::ok);
    of_log().or_else(|| RecordedEvents::ring(&session.join(RING_FILE)).ok()?.find_map(Result::ok))
}
