//! Ships runs: one that is being recorded until its end, or those that are stored already.
//!
//! A failure of the target is counted, written down and tried again after a while; the run directory waits meanwhile. Must never be waited for by the recorded
//! program, and must end: after a run's end it has a bounded time.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stormlog_catalog::run::{RunDirectory, find_runs, finish_abandoned, unfinished_captures};
use stormlog_files::Directory;
use stormlog_liveness::{Life, host_name, is_on_network, lock};
use stormlog_model::layout::{SHIPPING_FILE, SHIPPING_LOCK};

use crate::error::ShipError;
use crate::manifest::Manifest;
use crate::name;
use crate::pass::{Pass, Passed};
use crate::settings::Settings;
use crate::source::Source;
use crate::status::{ShippingStatus, State, now_ns};
use crate::target::Target;
use crate::throttle::Throttle;

/// The longest pause after failures.
const LONGEST: Duration = Duration::from_secs(60);
/// Between looks at a run that has lost its supervisor, or whose captures are being completed.
const SOON: Duration = Duration::from_millis(500);
/// After the supervisor's end, the time in which that of its run is expected.
const ENDING: Duration = Duration::from_secs(30);
/// Times that the claim of a run is tried, and the pause between.
const CLAIM_TRIES: u32 = 3;
const CLAIM_PAUSE: Duration = Duration::from_millis(10);
/// Gives way to the program.
const NICENESS: i32 = 10;
/// Captures that no process completes any more are shipped as they are.
const QUIET: Duration = Duration::from_secs(60);

/// What became of a stored run.
#[derive(Debug)]
pub struct ShippedRun {
    /// Its directory here.
    pub run: PathBuf,
    /// Its name at the target.
    pub name: String,
    /// Bytes that were sent now.
    pub bytes: u64,
    /// Whether all of it is there, and it has ended.
    pub is_complete: bool,
}

/// Takes what became of each run.
pub type Report<'a> = dyn FnMut(&Path, Result<ShippedRun, ShipError>) -> io::Result<()> + 'a;

/// A run with its target.
struct Shipment {
    source: Source,
    target: Box<dyn Target>,
    manifest: Manifest,
}

impl Shipment {
    fn open(run: &Path, settings: &Settings, status: &mut ShippingStatus) -> Result<Self, ShipError> {
        if let Some(to) = settings.directory() {
            refuse_own_directory(run, to)?;
        }
        let directory = RunDirectory::open(run).ok_or_else(|| ShipError::NoRun { path: run.to_owned() })?;
        let source = Source::open(run)?;
        let mut target = settings.target()?;
        let (name, manifest) = name::find(target.as_mut(), run, &directory.read())?;
        status.name = name;
        Ok(Shipment { source, target, manifest })
    }

    fn pass(
        &mut self,
        throttle: &mut Throttle,
        budget: u64,
        is_last: bool,
        status: &mut ShippingStatus,
    ) -> Result<Passed, ShipError> {
        self.target.check()?;
        self.manifest.updated_at_ns = now_ns();
        let (source, target) = (&self.source, self.target.as_mut());
        let sent = &mut |bytes| status.bytes_sent += bytes;
        let mut pass = Pass { source, target, throttle, budget, is_thorough: is_last, sent };
        let passed = pass.run(&mut self.manifest)?;
        if is_last && passed.left == 0 && !self.manifest.is_complete {
            self.manifest.is_complete = true;
            self.target.save(&self.manifest)?;
        }
        Ok(passed)
    }
}

/// Copies among the runs would be taken for runs.
fn refuse_own_directory(run: &Path, to: &Path) -> Result<(), ShipError> {
    let (Ok(run), Ok(to)) = (run.canonicalize(), to.canonicalize()) else { return Ok(()) };
    let is_own = run.parent() == Some(&to) || to.starts_with(&run);
    if is_own { Err(ShipError::SameDirectory { path: to }) } else { Ok(()) }
}

/// Shows that a process ships a run.
struct Claim {
    _lock: Option<lock::Claim>,
}

impl Claim {
    fn take(run: &Path) -> Result<Self, ShipError> {
        for _ in 0..CLAIM_TRIES {
            match Directory::open(run).and_then(|open| lock::Claim::take(open, SHIPPING_LOCK)) {
                Ok(Some(claim)) => return Ok(Claim { _lock: Some(claim) }),
                // A reader that asks whether a killed process still ships the run has the lock for a moment.
                Ok(None) => std::thread::sleep(CLAIM_PAUSE),
                // A run that cannot be written to, or where locks are not supported, can still be shipped.
                Err(_) => return Ok(Claim { _lock: None }),
            }
        }
        Err(ShipError::Busy { run: run.to_owned() })
    }
}

/// Whether the run has ended on disk: its record says so, and no capture is unfinished.
fn is_over(run: &Path) -> bool {
    has_ended(run) && unfinished_captures(run).is_empty()
}

fn has_ended(run: &Path) -> bool {
    let record = RunDirectory::open(run).map(|run| run.read()).unwrap_or_default();
    record.get("status").and_then(|status| status.as_str()).is_some_and(|status| status != "running")
}

/// Ships a run from its beginning until all of it is at the target or its time is over. `supervisor` is a pipe that ends with the run or its supervisor.
pub fn ship_run(run: &Path, settings: &Settings, supervisor: impl AsFd) -> Result<ShippingStatus, ShipError> {
    // It is the program's machine.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let _claim = Claim::take(run)?;
    let mut following = Following::new(run, settings);
    // A target that never answers is one to know about, too.
    following.status.write(run);
    let result = following.run(&supervisor);
    following.status.write(run);
    result.map(|()| following.status)
}

/// A run that is followed.
struct Following<'a> {
    run: &'a Path,
    settings: &'a Settings,
    status: ShippingStatus,
    throttle: Throttle,
    shipment: Option<Shipment>,
    failed_in_a_row: u32,
    /// Those that succeeded.
    passes: u32,
    is_supervised: bool,
    /// When its supervisor had gone.
    alone_since: Option<Instant>,
    last_change: Instant,
    ended: Option<Instant>,
    /// Earlier runs that were tried.
    tried: BTreeSet<PathBuf>,
}

impl<'a> Following<'a> {
    fn new(run: &'a Path, settings: &'a Settings) -> Self {
        let now = Instant::now();
        Following {
            run,
            settings,
            status: ShippingStatus::begin(run, &settings.destination),
            throttle: Throttle::new(settings.rate, now),
            shipment: None,
            failed_in_a_row: 0,
            passes: 0,
            is_supervised: true,
            alone_since: None,
            last_change: now,
            ended: None,
            tried: BTreeSet::from([run.to_owned()]),
        }
    }

    fn run(&mut self, supervisor: &impl AsFd) -> Result<(), ShipError> {
        loop {
            if !self.is_supervised {
                // What its supervisor would have written, verdict and bundle included; nothing while a process of it lives.
                finish_abandoned(self.run);
            }
            let is_quiet = self.last_change.elapsed() > QUIET && has_ended(self.run);
            let is_last = is_over(self.run) || (is_quiet && !self.is_supervised);
            let left = match self.pass(is_last) {
                Ok(passed) => {
                    self.succeeded(passed);
                    if is_last && passed.left == 0 {
                        self.status.state = State::Complete;
                        self.ship_earlier();
                        return Ok(());
                    }
                    self.ship_earlier();
                    passed.left
                }
                // Its directory was removed: there is nothing left to ship.
                Err(_) if !self.run.is_dir() => return Ok(()),
                Err(error) => {
                    self.failed(&error);
                    0
                }
            };
            self.status.write(self.run);
            if is_last {
                self.ended.get_or_insert_with(Instant::now);
            }
            if self.is_out_of_time() {
                self.status.state = State::Stopped;
                return Ok(());
            }
            // What is left is paced by its rate.
            if left == 0 {
                self.wait(supervisor);
            }
        }
    }

    fn pass(&mut self, is_last: bool) -> Result<Passed, ShipError> {
        let shipment = match self.shipment.take() {
            Some(shipment) => shipment,
            None => Shipment::open(self.run, self.settings, &mut self.status)?,
        };
        let budget = self.throttle.budget(self.settings.interval());
        let shipment = self.shipment.insert(shipment);
        shipment.pass(&mut self.throttle, budget, is_last, &mut self.status)
    }

    fn succeeded(&mut self, passed: Passed) {
        self.failed_in_a_row = 0;
        self.passes = self.passes.saturating_add(1);
        self.status.error.clear();
        self.status.bytes_left = passed.left;
        if passed.has_changed {
            self.last_change = Instant::now();
        }
    }

    fn failed(&mut self, error: &ShipError) {
        // What is at the target is asked again: another process may have been there.
        self.shipment = None;
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        self.status.failures += 1;
        self.status.error = error.to_string();
    }

    /// After the run's end, or after the last change of one whose end cannot be found out.
    fn is_out_of_time(&self) -> bool {
        let since = self.ended.unwrap_or(self.last_change);
        !self.is_supervised && since.elapsed() >= self.settings.wait
    }

    /// Until the next pass, or the end of the supervisor.
    fn wait(&mut self, supervisor: &impl AsFd) {
        // Its end is usually a matter of seconds; a program that lives on is looked at as before.
        let is_ending = self.alone_since.is_some_and(|since| since.elapsed() < ENDING);
        // At its beginning a run changes the most.
        let interval = self.settings.interval().min(doubled(self.passes));
        let interval = if is_ending { SOON } else { interval };
        let pause = match self.failed_in_a_row {
            0 => interval,
            failed => doubled(failed).min(LONGEST),
        };
        if !self.is_supervised {
            std::thread::sleep(pause);
            return;
        }
        let timeout = Timespec::try_from(pause).ok();
        let mut ends = [PollFd::new(supervisor, PollFlags::IN)];
        match poll(&mut ends, timeout.as_ref()) {
            Ok(0) => {}
            Ok(_) => {
                self.is_supervised = false;
                self.alone_since = Some(Instant::now());
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => std::thread::sleep(pause),
        }
    }

    /// Runs beside this one that were on their way to the same target when their processes were killed.
    fn ship_earlier(&mut self) {
        let Some(root) = self.run.parent() else { return };
        for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
            let run = entry.path();
            let is_run = entry.file_type().is_ok_and(|kind| kind.is_dir()) && !self.tried.contains(&run);
            let status = is_run.then(|| ShippingStatus::read(&run)).flatten();
            let is_left =
                status.is_some_and(|it| it.state != State::Complete && it.is_to(&self.settings.destination));
            if !is_left || !is_own(&run) {
                continue;
            }
            match has_lost_its_supervisor(&run, is_on_network(&run)) {
                // Its status says how it went; where a process of it still ships it, that one has the claim.
                Some(true) => drop(ship_one(&run, self.settings, &mut self.throttle)),
                // It may end while this run is recorded.
                Some(false) => continue,
                None => {}
            }
            self.tried.insert(run);
        }
    }
}

/// Whether the supervisor of a run is known to have ended. `None` for a run that this machine does not judge: on a file system that machines share, those of
/// other hosts are theirs to ship.
fn has_lost_its_supervisor(run: &Path, is_shared: bool) -> Option<bool> {
    let directory = RunDirectory::open(run)?;
    let record = directory.read();
    let host = record.get("host").and_then(|host| host.as_str());
    if is_shared && host != Some(host_name().as_str()) {
        return None;
    }
    Some(directory.supervisor_life(&record) == Life::Dead)
}

/// Half a second, doubled this many times.
fn doubled(times: u32) -> Duration {
    SOON * 2_u32.saturating_pow(times.min(10))
}

/// Another user's runs are shipped by a command of root's, not in passing.
fn is_own(run: &Path) -> bool {
    Directory::open(run)
        .and_then(|run| run.owner())
        .is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
}

/// Ships the runs at `paths`, each as far as it is recorded by now. `report` gets each as it is done.
pub fn ship_stored(paths: &[PathBuf], settings: &Settings, report: &mut Report<'_>) -> Result<(), ShipError> {
    let mut throttle = Throttle::new(settings.rate, Instant::now());
    for path in paths {
        let runs = runs_at(path)?;
        for run in runs {
            let shipped = ship_one(&run, settings, &mut throttle);
            report(&run, shipped).map_err(|error| ShipError::file(&run, error))?;
        }
    }
    Ok(())
}

fn runs_at(path: &Path) -> Result<Vec<PathBuf>, ShipError> {
    let none = || ShipError::NoRun { path: path.to_owned() };
    if RunDirectory::open(path).is_some() {
        return Ok(vec![path.to_owned()]);
    }
    let found = find_runs(path).map_err(|_| none())?;
    let runs: Vec<PathBuf> = found.directories.iter().map(|run| run.path().to_owned()).collect();
    if runs.is_empty() { Err(none()) } else { Ok(runs) }
}

fn ship_one(run: &Path, settings: &Settings, throttle: &mut Throttle) -> Result<ShippedRun, ShipError> {
    let claim = Claim::take(run)?;
    finish_abandoned(run);
    let mut status = ShippingStatus::begin(run, &settings.destination);
    let before = status.bytes_sent;
    let is_last = has_ended(run);
    let shipped = Shipment::open(run, settings, &mut status)
        .and_then(|mut shipment| shipment.pass(throttle, u64::MAX, is_last, &mut status));
    status.state = match &shipped {
        Ok(_) if is_last => State::Complete,
        _ => State::Stopped,
    };
    match &shipped {
        Ok(_) => (status.error, status.bytes_left) = (String::new(), 0),
        Err(error) => {
            status.failures += 1;
            status.error = error.to_string();
        }
    }
    // A copy of a run, or one of another user, is left as it is.
    if is_own(run) || run.join(SHIPPING_FILE).exists() {
        status.write(run);
    }
    drop(claim);
    let bytes = status.bytes_sent - before;
    shipped.map(|_| ShippedRun { run: run.to_owned(), name: status.name, bytes, is_complete: is_last })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A run below `root` that was on its way to the target of `settings`, with this supervisor.
    fn run_on_its_way(
        root: &Path,
        name: &str,
        host: &str,
        supervisor: Value,
        settings: &Settings,
    ) -> PathBuf {
        let run = root.join(name);
        std::fs::create_dir_all(&run).unwrap();
        let record = json!({
            "format": "stormlog.run", "schema_version": 1, "status": "completed", "host": host, "started_at_ns": 1,
            "supervisor": supervisor, "command": [name],
        });
        std::fs::write(run.join("run.json"), record.to_string()).unwrap();
        ShippingStatus::begin(&run, &settings.destination).write(&run);
        run
    }

    /// The supervisor that this process is, or was where it has ended.
    fn supervisor(has_ended: bool) -> Value {
        let own = stormlog_liveness::ProcessId::own();
        let start_ticks = own.start_ticks.unwrap() - u64::from(has_ended);
        json!({
            "pid": own.pid, "start_time": start_ticks, "boot_id": own.boot_id, "pid_namespace": own.pid_namespace,
        })
    }

    #[test]
    fn earlier_runs_are_shipped_only_where_their_supervisor_has_ended() {
        let place = tempfile::tempdir().unwrap();
        let (root, target) = (place.path().join("runs"), place.path().join("target"));
        let settings = Settings::new(target.to_str().unwrap(), None, None, Vec::new(), false).unwrap();
        let own = run_on_its_way(&root, "own", &host_name(), supervisor(false), &settings);
        run_on_its_way(&root, "dead", &host_name(), supervisor(true), &settings);
        let live = run_on_its_way(&root, "live", &host_name(), supervisor(false), &settings);
        run_on_its_way(&root, "unknown", "elsewhere", json!({"pid": 1, "boot_id": "another"}), &settings);
        let mut following = Following::new(&own, &settings);
        following.ship_earlier();
        let there = |name: &str| target.join(format!("{name}-{}", name::plain(&host_name()))).is_dir();
        assert!(there("dead") && !there("live") && !target.join("unknown-elsewhere").exists());
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 1);
        // Its supervisor ends while this run is recorded.
        run_on_its_way(&root, "live", &host_name(), supervisor(true), &settings);
        following.ship_earlier();
        assert!(there("live"), "{}", live.display());
    }

    #[test]
    fn runs_of_other_hosts_on_a_shared_file_system_are_not_judged() {
        let place = tempfile::tempdir().unwrap();
        let settings = Settings::new("/nowhere", None, None, Vec::new(), false).unwrap();
        let other = run_on_its_way(place.path(), "a", "elsewhere", supervisor(true), &settings);
        let own = run_on_its_way(place.path(), "b", &host_name(), supervisor(true), &settings);
        assert_eq!(has_lost_its_supervisor(&other, true), None);
        assert_eq!(
            has_lost_its_supervisor(&other, false),
            Some(true),
            "locally a container has a name of its own"
        );
        assert_eq!(has_lost_its_supervisor(&own, true), Some(true));
    }

    #[test]
    fn run_is_claimed_by_one_shipper_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let winners = std::sync::Mutex::new(Vec::new());
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    if let Ok(claim) = Claim::take(place.path()) {
                        winners.lock().unwrap().push(claim);
                    }
                });
            }
        });
        let mut winners = winners.into_inner().unwrap();
        assert_eq!(winners.len(), 1);
        assert!(matches!(Claim::take(place.path()), Err(ShipError::Busy { .. })));
        winners.clear();
        assert!(Claim::take(place.path()).is_ok() && !place.path().join(SHIPPING_LOCK).exists());
    }
}
