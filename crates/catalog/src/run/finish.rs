//! Finishing a run whose supervisor was killed: every reader sees it finished, and the directory's owner or root writes that down.
//!
//! Only a run whose supervisor and processes have all ended is finished. Where one of them lives, or where that cannot be found out from
//! here, nothing is judged and nothing is written.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stormlog_collect::host::HostReader;
use stormlog_collect::kernel_log::OomKill;
use stormlog_liveness::Life;
use stormlog_model::naming::ProgramName;
use stormlog_model::{Counter, Event, Record, SessionStatus, SessionSummary};
use stormlog_postmortem::classify::Classification;
use stormlog_postmortem::verdict::{CgroupFacts, DeathFacts, Ending, Verdict, judge};
use stormlog_store::recording::{RecordedEvents, read_session};
use stormlog_store::run_record::{read_run, run_status};

use super::directory::RunDirectory;
use super::ends::Ends;
use super::exceptions::{self, Reported};
use super::finish_write::write;
use super::kernel_kills::KernelKills;
use super::last_look::{is_of_process, last_look};
use super::layout::{LOG_DIRECTORY, RING_FILE};
use super::life::{PROGRAM, RunLife, start_ticks};

/// How deep run directories may be below a path that is searched.
const MAX_DEPTH: usize = 3;
/// Events of a session that are kept with its end, as many as a ring holds.
const MOST_EVENTS: usize = 4096;

/// An abandoned run as it is after its end.
#[derive(Debug)]
pub struct FinishedRun {
    /// Its directory.
    pub path: PathBuf,
    /// What `run.json` says, or would if this reader could write it.
    pub record: Record,
    /// The sessions that its supervisor could not end.
    pub sessions: Vec<FinishedSession>,
    /// Whether it was written, so that the files say the same.
    pub is_written: bool,
}

/// One process of it.
#[derive(Debug)]
pub struct FinishedSession {
    /// Its directory.
    pub directory: PathBuf,
    /// Its session as it ended.
    pub summary: SessionSummary,
    /// What ended it.
    pub verdict: Verdict,
    /// Its last event.
    pub last_ns: u64,
    pub(crate) exception: Option<(Reported, Classification)>,
    pub(crate) events: Vec<Event>,
}

impl FinishedSession {
    pub(crate) fn has_raised(&self) -> bool {
        self.exception.as_ref().is_some_and(|(reported, _)| reported.is_in_main_thread())
    }
}

/// Finishes every abandoned run at or below `path`. What cannot be judged is left as it is.
pub fn finish_abandoned(path: &Path) -> Vec<FinishedRun> {
    let mut finished = Vec::new();
    visit(path, 0, &mut finished);
    finished
}

fn visit(path: &Path, depth: usize, finished: &mut Vec<FinishedRun>) {
    if let Some(run) = RunDirectory::open(path) {
        finished.extend(finish_run(&run));
        return;
    }
    if depth >= MAX_DEPTH {
        return;
    }
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            visit(&entry.path(), depth + 1, finished);
        }
    }
}

pub(crate) fn finish_run(run: &RunDirectory) -> Option<FinishedRun> {
    // The layout of another release is not ours to finish.
    if run_status(run.path()).ok()?.as_deref() != Some("running") {
        return None;
    }
    let mut record = read_run(run.path()).ok()??;
    let life = RunLife::of(run, &record);
    if life.life != Life::Dead {
        return None;
    }
    let words = record.get("command").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    let program = ProgramName::of(&words).word;
    let root = record.get("pid").and_then(Value::as_u64);
    let mut open = Vec::new();
    for directory in sessions_of(run.path()) {
        let Some(session) = OpenSession::read(directory) else { continue };
        if life.process(session.pid, session.start_ticks()) != Life::Dead {
            return None;
        }
        open.push(session);
    }
    let kills = KernelKills::during(&record);
    // Those that ended together held it together.
    let held = open.iter().filter_map(OpenSession::last_rss).sum();
    let name = |session: &OpenSession| {
        let own = session.program().filter(|_| root != Some(session.pid.into()));
        own.unwrap_or_else(|| program.clone())
    };
    let finish = |session: OpenSession| {
        let name = name(&session);
        session.finish(run, &name, kills.as_ref(), held)
    };
    let mut sessions: Vec<FinishedSession> = open.into_iter().map(finish).collect();
    // The program itself first.
    sessions.sort_by_key(|session| root != u64::try_from(session.summary.pid).ok());
    describe(&mut record, &sessions);
    let mut finished = FinishedRun { path: run.path().to_owned(), record, sessions, is_written: false };
    finished.is_written = write(&finished).is_ok();
    Some(finished)
}

/// Puts the end into a run's record.
fn describe(record: &mut Record, sessions: &[FinishedSession]) {
    let main = sessions.first();
    let last_ns = sessions.iter().map(|session| session.last_ns).max();
    let rows: Vec<Value> = sessions
        .iter()
        .map(|session| {
            let peak = session.events.iter().filter_map(|event| event.counter(Counter::Used)).max();
            json!({
                "pid": session.summary.pid, "session_id": session.summary.session_id, "peak_rss_bytes": peak,
                "cause": session.verdict.cause.as_str(), "verdict": session.verdict.sentence,
                "ended": session.verdict.ended.as_str(), "confidence": session.verdict.confidence,
            })
        })
        .collect();
    let lost = "its supervisor was killed first";
    let verdict = main.map_or_else(
        || format!("how the program ended is not known: {lost}"),
        |main| format!("{} ({lost})", main.verdict.sentence.trim_end_matches('.')),
    );
    record.insert("status".into(), "interrupted".into());
    record.insert("ended_at_ns".into(), last_ns.into());
    record.insert("cause".into(), main.map(|main| main.verdict.cause.as_str()).into());
    record.insert("verdict".into(), verdict.into());
    record.insert("processes".into(), rows.into());
}

/// Directories of sessions; a link in place of one is passed over.
fn sessions_of(run: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(run) else { return Vec::new() };
    let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let is_session = |path: &PathBuf| path.join(RING_FILE).is_file() || path.join(LOG_DIRECTORY).is_dir();
    directories.map(|entry| entry.path()).filter(is_session).collect()
}

/// A session that its supervisor did not end.
struct OpenSession {
    directory: PathBuf,
    summary: SessionSummary,
    pid: u32,
    events: Vec<Event>,
}

impl OpenSession {
    fn read(directory: PathBuf) -> Option<Self> {
        let summary = read_session(&directory).ok()?;
        if summary.status != SessionStatus::Running {
            return None;
        }
        let pid = u32::try_from(summary.pid).ok()?;
        let recorded = RecordedEvents::ring(&directory.join(RING_FILE))
            .or_else(|_| RecordedEvents::log(&directory.join(LOG_DIRECTORY)));
        let mut events: Vec<Event> = recorded.ok().into_iter().flatten().filter_map(Result::ok).collect();
        events.drain(..events.len().saturating_sub(MOST_EVENTS));
        Some(OpenSession { directory, summary, pid, events })
    }

    /// Resident bytes at its last sample.
    fn last_rss(&self) -> Option<u64> {
        let own = self.events.iter().rev().filter(|event| is_of_process(event));
        own.into_iter().find_map(|event| event.counter(Counter::Used))
    }

    fn start_ticks(&self) -> Option<u64> {
        self.events.iter().rev().find_map(start_ticks)
    }

    /// What its user would call it, as it was last seen.
    fn program(&self) -> Option<String> {
        let program = |event: &Event| event.metadata.map.get(PROGRAM)?.as_str().map(str::to_owned);
        self.events.iter().rev().find_map(program)
    }

    /// Judges its end.
    fn finish(
        self,
        run: &RunDirectory,
        program: &str,
        kills: Option<&KernelKills>,
        held: u64,
    ) -> FinishedSession {
        let last_rss = self.last_rss();
        let OpenSession { directory, summary, pid, events } = self;
        let started_ns = u64::try_from(summary.started_at_ns).unwrap_or(0);
        let last_ns = events.last().map_or(started_ns, |event| event.timestamp_ns);
        let exception = exceptions::understood(&run.exceptions(), pid);
        let kill = kills.and_then(|kills| kills.of(pid, &events));
        let exits = exception.as_ref().filter(|(reported, _)| reported.is_in_main_thread() && kill.is_none());
        // Python exits with 1 after an exception that the program did not catch.
        let ending = exits.map_or(Ending::Vanished, |_| Ending::Exited(1));
        let mut facts = DeathFacts::of(program, pid.into(), ending);
        facts.last_rss_bytes = last_rss;
        facts.ran_seconds = Some(last_ns.saturating_sub(started_ns) as f64 / 1e9);
        let ends = Ends::read(run.path());
        facts.has_chosen_status = ends.has_exited_in_order(pid, started_ns);
        facts.exception = exception.as_ref().map(|exception| exceptions::fact(exception, ending));
        facts.kernel = kills.and_then(|kills| kills.facts(pid, kill));
        facts.cgroups = kill.into_iter().map(met_limit).collect();
        // A log that would have named it, and does not, outweighs what its usage suggests.
        if facts.kernel.is_none() && !facts.has_chosen_status {
            let look = last_look(&events, held);
            facts.cgroups.extend(look.cgroup);
            facts.growth = look.growth;
        }
        // What the kernel remembers is of this machine, so its memory is the limit of a kill for all.
        facts.host.total_bytes = kills.and_then(|_| HostReader::open().ok()?.memory().ok()?.total);
        let verdict = judge(&facts);
        // How it ended is known by evidence only; without any it may have ended as it should.
        let status = match verdict.cause {
            stormlog_postmortem::Cause::Unknown => SessionStatus::Incomplete,
            _ => SessionStatus::Interrupted,
        };
        let ended_at_ns = Some(i64::try_from(last_ns).unwrap_or(i64::MAX));
        let summary = SessionSummary { status, ended_at_ns, ..summary };
        FinishedSession { directory, summary, verdict, last_ns, exception, events }
    }
}

/// The cgroup as the kernel's message describes it: its counters were not read before the kill.
fn met_limit(kill: &OomKill) -> CgroupFacts {
    CgroupFacts {
        path: kill.cgroup.clone().unwrap_or_default(),
        limit_bytes: kill.limit,
        usage_bytes: kill.usage,
        ..CgroupFacts::default()
    }
}
