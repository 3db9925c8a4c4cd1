//! The rows of recorded runs, in one pass with bounded memory: samples as they are read, then the processes, deaths, holders and findings of a run.
//!
//! The recordings of a process (from outside, from inside, of its devices) are read together in the order of time, so that its phase and step are
//! known for each of its samples. What is torn or damaged is reported with its path and costs no more than itself. Must never write into a run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stormlog_catalog::run::layout::SHIPMENT_FILE;
use stormlog_catalog::run::{
    FoundRuns, Process, ProcessSession, Run, RunDirectory, find_runs, viewpoint_word,
};
use stormlog_model::{Event, SessionStatus};
use stormlog_postmortem::Ended;
use stormlog_store::{Events, ReadOptions, Source, StoreError};

use crate::end_rows::{DeathRow, FindingRow, HolderRow, Peaks, ProcessRow};
use crate::judged;
use crate::phase::CurrentPhase;
use crate::processes;
use crate::row::{ProcessFacts, SampleRow, SessionFacts};
use crate::sample_facts::KnownFacts;

/// The receiver ended the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop;

/// Takes rows. What it does not want is not made where that saves reading.
pub trait Receiver {
    /// Whether the samples of a session are wanted. `is_final`: no more will come.
    fn wants_session(&mut self, _session: &SessionFacts, _is_final: bool) -> bool {
        true
    }

    /// Whether the row of a process that has ended is wanted, with its death.
    fn wants_process(&mut self, _process: &ProcessFacts) -> bool {
        true
    }

    /// Whether findings and holders of a run that is over are wanted, which takes a second look at its recordings.
    fn wants_judgement(&mut self, _run: &RunFacts) -> bool {
        true
    }

    /// An event of a session that is wanted. Those of one session come in the order of its file, those of a process about in that of time.
    fn sample(&mut self, row: SampleRow) -> Result<(), Stop>;

    /// A session that was wanted has been read to its end.
    fn session_end(&mut self, _session: &Arc<SessionFacts>, _is_final: bool) -> Result<(), Stop> {
        Ok(())
    }

    /// A process that has ended; after its samples.
    fn process(&mut self, row: ProcessRow) -> Result<(), Stop>;

    /// The failure of a process.
    fn death(&mut self, row: DeathRow) -> Result<(), Stop>;

    /// What a rule found in a run that is over.
    fn finding(&mut self, row: FindingRow) -> Result<(), Stop>;

    /// A line that held memory.
    fn holder(&mut self, row: HolderRow) -> Result<(), Stop>;

    /// Something that could not be read, or was not whole.
    fn problem(&mut self, problem: Problem) -> Result<(), Stop>;
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub path: PathBuf,
    /// What is wrong with it.
    pub sentence: String,
    /// Records that are missing for it; 0 where the rest is whole.
    pub lost: u64,
}

impl Problem {
    /// A file that a reader refuses. Its errors begin with the path, which a problem has already.
    pub(crate) fn of_error(path: &Path, error: &dyn std::fmt::Display) -> Self {
        let text = error.to_string();
        let prefix = format!("{}: ", path.display());
        let sentence = text.strip_prefix(&prefix).map(str::to_owned).unwrap_or(text);
        Problem { path: path.to_owned(), sentence, lost: 0 }
    }

    /// The same, with what to do about it.
    pub(crate) fn with_advice(mut self, advice: &str) -> Self {
        self.sentence = format!("{}; {advice}", self.sentence);
        self
    }
}

/// A run as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// Its directory, or the file of a recording without one.
    pub path: PathBuf,
    /// The name of the directory that it was recorded in.
    pub run_id: Arc<str>,
    /// The job of its first process.
    pub job_id: Arc<str>,
    /// The lowest rank in it.
    pub first_rank: Option<i64>,
    /// Names the run wherever a copy of it is: the id of its first session.
    pub key: Arc<str>,
    /// Whether it has ended.
    pub is_over: bool,
    /// Whether it was recorded elsewhere and shipped here: it may be behind.
    pub is_copy: bool,
}

/// Recordings at some paths, in the order in which the rows of a lake are sorted: by job, then by rank.
#[derive(Debug, Default)]
pub struct Recordings {
    /// Runs, and recordings without one.
    pub runs: Vec<Recording>,
    /// What was left out, each with the reason.
    pub problems: Vec<Problem>,
}

/// One run or one recording without a run.
#[derive(Debug)]
pub struct Recording {
    /// What is known of it before its samples are read.
    pub facts: RunFacts,
    kind: RecordingKind,
}

#[derive(Debug)]
enum RecordingKind {
    Run(RunDirectory),
    Source(Source),
}

impl Recordings {
    /// Finds what is at the paths. A path that does not exist is an error; what cannot be read below it is a problem.
    pub fn at(paths: &[PathBuf]) -> Result<Self, StoreError> {
        let mut found = Recordings::default();
        for path in paths {
            found.add(path)?;
        }
        found.runs.sort_by(|a, b| {
            let key =
                |one: &Recording| (one.facts.job_id.clone(), one.facts.first_rank, one.facts.path.clone());
            key(a).cmp(&key(b))
        });
        // A path may be given twice, or be inside another.
        found.runs.dedup_by(|a, b| a.facts.path == b.facts.path);
        Ok(found)
    }

    fn add(&mut self, path: &Path) -> Result<(), StoreError> {
        let FoundRuns { directories, sessions, denied, is_incomplete } = find_runs(path)?;
        self.problems.extend(denied.into_iter().map(|path| {
            let sentence = "permission denied: what is in it was not read".to_owned();
            Problem { path, sentence, lost: 0 }
        }));
        if is_incomplete {
            let sentence = "runs are left out: the directory has too many entries, or runs deeper than are searched; name its parts".to_owned();
            self.problems.push(Problem { path: path.to_owned(), sentence, lost: 0 });
        }
        let has_runs = !directories.is_empty();
        for directory in directories {
            match Run::load(&directory) {
                Ok(Some(run)) => {
                    let facts = facts_of_run(&run);
                    self.runs.push(Recording { facts, kind: RecordingKind::Run(directory) });
                }
                Ok(None) => {}
                Err(error) => self.problems.push(Problem::of_error(directory.path(), &error)),
            }
        }
        // Files of recordings beside runs are not searched for in a directory of thousands of runs.
        let loose = if has_runs { sessions } else { vec![path.to_owned()] };
        for path in loose {
            match Source::find_known(&path) {
                Ok(sources) => sources.found.into_iter().for_each(|source| self.add_source(source)),
                Err(StoreError::Unrecognised { .. }) => {}
                Err(error) => self.problems.push(Problem::of_error(&path, &error)),
            }
        }
        Ok(())
    }

    fn add_source(&mut self, source: Source) {
        // A bundle holds the end of what another source holds whole.
        if matches!(source, Source::OomBundle(_) | Source::DiagnoseBundle(_)) {
            return;
        }
        let first = match source.events(&ReadOptions::default()) {
            Ok(mut events) => events.find_map(Result::ok),
            Err(error) => return self.problems.push(Problem::of_error(source.path(), &error)),
        };
        let Some(first) = first else { return };
        let process = processes::of_head(&first.head);
        let facts = RunFacts {
            path: source.path().to_owned(),
            run_id: Arc::clone(&process.run_id),
            job_id: Arc::clone(&process.job_id),
            first_rank: process.rank,
            key: Arc::clone(&process.session_id),
            is_over: source.stated_sessions().iter().all(|session| session.status != SessionStatus::Running),
            is_copy: false,
        };
        self.runs.push(Recording { facts, kind: RecordingKind::Source(source) });
    }
}

fn facts_of_run(run: &Run) -> RunFacts {
    let facts = processes::of_run(run);
    let first = facts.first();
    let run_id: Arc<str> = Arc::from(run.recorded_name());
    RunFacts {
        path: run.path.clone(),
        job_id: first.map_or_else(|| Arc::clone(&run_id), |first| Arc::clone(&first.job_id)),
        first_rank: facts.iter().filter_map(|facts| facts.rank).min(),
        key: first.map_or_else(|| Arc::clone(&run_id), |first| Arc::clone(&first.session_id)),
        is_over: is_over(run),
        is_copy: run.path.join(SHIPMENT_FILE).exists(),
        run_id,
    }
}

/// Whether nothing of a run will change any more.
fn is_over(run: &Run) -> bool {
    use stormlog_catalog::run::RunStatus;
    let has_living = run.processes.iter().any(|process| process.end.ended() == Ended::Running);
    !matches!(run.status, RunStatus::Running) && !has_living
}

impl Recording {
    /// Gives all rows of it to the receiver.
    pub fn read(&self, receiver: &mut dyn Receiver) -> Result<(), Stop> {
        match &self.kind {
            RecordingKind::Run(directory) => match Run::load(directory) {
                Ok(Some(run)) => read_run(&run, receiver),
                Ok(None) => Ok(()),
                Err(error) => receiver.problem(Problem::of_error(directory.path(), &error)),
            },
            RecordingKind::Source(source) => read_source(source, self.facts.is_over, receiver),
        }
    }
}

fn read_run(run: &Run, receiver: &mut dyn Receiver) -> Result<(), Stop> {
    let all = processes::of_run(run);
    let facts = facts_of_run(run);
    for sentence in &run.problems {
        receiver.problem(Problem { path: run.path.clone(), sentence: sentence.clone(), lost: 0 })?;
    }
    // In the order of a lake's rows.
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| (Arc::clone(&all[*at].job_id), all[*at].rank, run.processes[*at].started_at_ns()));
    let wants_judgement = facts.is_over && receiver.wants_judgement(&facts);
    let mut pending = Vec::new();
    let mut last = FxHashMap::default();
    for at in order {
        let (process, own) = (&run.processes[at], &all[at]);
        // The row of the first process comes with the end of the run: it marks the run as complete.
        let is_first = at == 0;
        let has_ended = process.end.ended() != Ended::Running && (!is_first || facts.is_over);
        let is_wanted = has_ended && receiver.wants_process(own);
        let sessions: Vec<(&ProcessSession, Arc<SessionFacts>)> =
            process.sessions.iter().map(|session| (session, session_facts(session, own))).collect();
        let mut chosen = Vec::new();
        for (session, facts) in sessions {
            let wants_rows = receiver.wants_session(&facts, has_ended);
            if wants_rows || is_wanted || wants_judgement {
                chosen.push((session, facts, wants_rows));
            }
        }
        let mut reading = ProcessReading::open(chosen, receiver)?;
        let peaks = reading.read(has_ended, receiver)?;
        last.insert(at, (reading.phase.phase(), reading.phase.step()));
        if is_wanted {
            pending.push((at, peaks));
        }
    }
    let judged = judged::Judgement::of(run, &all, wants_judgement, pending.iter().map(|(at, _)| *at));
    for (at, peaks) in &pending {
        let (phase, step) = last.remove(at).unwrap_or_default();
        if let Some(death) = judged.death(*at, peaks, (phase, step)) {
            receiver.death(death)?;
        }
    }
    if wants_judgement {
        judged.holders().try_for_each(|row| receiver.holder(row))?;
        judged.findings().try_for_each(|row| receiver.finding(row))?;
    }
    // The first process is the last row.
    pending.sort_by_key(|(at, _)| Reverse(*at));
    for (at, peaks) in pending {
        receiver.process(process_row(run, at, &all[at], peaks))?;
    }
    Ok(())
}

fn session_facts(session: &ProcessSession, process: &Arc<ProcessFacts>) -> Arc<SessionFacts> {
    let id = session.summary.as_ref().map(|summary| summary.session_id.as_str());
    Arc::new(SessionFacts {
        process: Arc::clone(process),
        session_id: id.map_or_else(|| Arc::from(unnamed_session(session, process)), Arc::from),
        viewpoint: session.viewpoint.map(|viewpoint| Arc::from(viewpoint_word(viewpoint))),
    })
}

/// The id of a session whose file is damaged: by its directory in the run, so that a copy of the run has the same.
fn unnamed_session(session: &ProcessSession, process: &ProcessFacts) -> String {
    let name = session.path.file_name().unwrap_or_default().to_string_lossy();
    format!("{}/{name}", process.run_id)
}

fn process_row(run: &Run, at: usize, facts: &Arc<ProcessFacts>, mut peaks: Peaks) -> ProcessRow {
    let process: &Process = &run.processes[at];
    let end = process.end.facts();
    let started_at_ns = process.started_at_ns().or(run.record.started_at_ns).unwrap_or(0);
    let ended_at_ns = process.ended_at_ns().or(run.record.ended_at_ns);
    // Between two samples memory may have been higher: the kernel's own figure counts.
    if let Some(most) = process.peak_rss_bytes.filter(|most| peaks.host.is_none_or(|(seen, _)| *most > seen))
    {
        peaks.host = Some((most, peaks.host.map_or(started_at_ns, |(_, at_ns)| at_ns)));
    }
    ProcessRow {
        process: Arc::clone(facts),
        started_at_ns,
        ended_at_ns,
        ended: process.end.ended(),
        cause: end.and_then(|end| end.cause),
        // Facts of an end are kept of failures; the exit status 0 of the program itself is in the record of its run.
        exit_code: end
            .and_then(|end| end.exit_code)
            .or(run.record.exit_code.filter(|_| process.is_root && end.is_none()))
            .map(i64::from),
        signal: end.and_then(|end| end.signal).map(i64::from),
        is_root: process.is_root,
        peaks,
        heap_peak_bytes: process.heap_peak_bytes,
        recorder_version: run.record.version.as_deref().map(Arc::from),
    }
}

/// The recordings of one process, read in the order of time.
struct ProcessReading {
    inputs: Vec<Input>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    phase: CurrentPhase,
    known: KnownFacts,
}

struct Input {
    path: PathBuf,
    session: Arc<SessionFacts>,
    is_wanted: bool,
    sources: std::vec::IntoIter<Source>,
    events: Option<Box<dyn Events>>,
    pending: Option<Event>,
    damaged: u64,
}

impl ProcessReading {
    fn open(
        sessions: Vec<(&ProcessSession, Arc<SessionFacts>, bool)>,
        receiver: &mut dyn Receiver,
    ) -> Result<Self, Stop> {
        let mut inputs = Vec::new();
        for (session, facts, is_wanted) in sessions {
            let sources = match Source::find_known(&session.path) {
                Ok(sources) => sources.found,
                Err(StoreError::Unrecognised { .. }) => Vec::new(),
                Err(error) => {
                    receiver.problem(Problem::of_error(&session.path, &error))?;
                    Vec::new()
                }
            };
            let sources: Vec<Source> = sources
                .into_iter()
                .filter(|source| !matches!(source, Source::OomBundle(_) | Source::DiagnoseBundle(_)))
                .collect();
            inputs.push(Input::new(session.path.clone(), facts, is_wanted, sources));
        }
        Ok(ProcessReading {
            next: BinaryHeap::with_capacity(inputs.len()),
            inputs,
            phase: CurrentPhase::default(),
            known: KnownFacts::default(),
        })
    }

    fn read(&mut self, is_final: bool, receiver: &mut dyn Receiver) -> Result<Peaks, Stop> {
        let mut peaks = Peaks::default();
        for at in 0..self.inputs.len() {
            self.advance(at, receiver)?;
        }
        while let Some(Reverse((_, at))) = self.next.pop() {
            if let Some(event) = self.inputs[at].pending.take() {
                let facts = self.known.of(&event.metadata);
                self.phase.observe(&event, facts.step);
                let session = Arc::clone(&self.inputs[at].session);
                let (phase, step) = (self.phase.phase(), self.phase.step());
                let row = SampleRow { session, event, facts, phase, step };
                peaks.observe(&row);
                if self.inputs[at].is_wanted {
                    receiver.sample(row)?;
                }
            }
            self.advance(at, receiver)?;
        }
        for input in self.inputs.iter().filter(|input| input.is_wanted) {
            receiver.session_end(&input.session, is_final)?;
        }
        Ok(peaks)
    }

    fn advance(&mut self, at: usize, receiver: &mut dyn Receiver) -> Result<(), Stop> {
        let input = &mut self.inputs[at];
        input.pending = input.next(receiver)?;
        self.next.extend(input.pending.as_ref().map(|event| Reverse((event.timestamp_ns, at))));
        Ok(())
    }
}

impl Input {
    fn new(path: PathBuf, session: Arc<SessionFacts>, is_wanted: bool, sources: Vec<Source>) -> Self {
        let sources = sources.into_iter();
        Input { path, session, is_wanted, sources, events: None, pending: None, damaged: 0 }
    }

    fn next(&mut self, receiver: &mut dyn Receiver) -> Result<Option<Event>, Stop> {
        loop {
            if let Some(events) = &mut self.events {
                match events.next() {
                    Some(Ok(event)) => return Ok(Some(event)),
                    Some(Err(_)) => {
                        self.damaged += 1;
                        continue;
                    }
                    None => {}
                }
                let notes = events.notes();
                self.events = None;
                self.report(notes, receiver)?;
            }
            let Some(source) = self.sources.next() else { return Ok(None) };
            match source.events(&ReadOptions::default()) {
                Ok(events) => self.events = Some(events),
                Err(error) => receiver.problem(Problem::of_error(source.path(), &error))?,
            }
        }
    }

    fn report(&mut self, notes: Vec<String>, receiver: &mut dyn Receiver) -> Result<(), Stop> {
        let damaged = std::mem::take(&mut self.damaged);
        if damaged > 0 {
            let sentence = format!("{damaged} records are damaged and were left out");
            receiver.problem(Problem { path: self.path.clone(), sentence, lost: damaged })?;
        }
        for sentence in notes {
            receiver.problem(Problem { path: self.path.clone(), sentence, lost: 0 })?;
        }
        Ok(())
    }
}

/// A recording without a run: each session in it is a process.
fn read_source(source: &Source, is_final: bool, receiver: &mut dyn Receiver) -> Result<(), Stop> {
    struct Seen {
        facts: Arc<SessionFacts>,
        peaks: Peaks,
        phase: CurrentPhase,
        is_wanted: bool,
        span_ns: (i64, i64),
    }
    let stated = source.stated_sessions();
    // A file that states no session may grow: it is looked at every time.
    let is_closed = is_final && !stated.is_empty();
    let mut sessions: FxHashMap<String, Seen> = FxHashMap::default();
    let mut known = KnownFacts::default();
    let mut events = match source.events(&ReadOptions::default()) {
        Ok(events) => events,
        Err(error) => return receiver.problem(Problem::of_error(source.path(), &error)),
    };
    let mut damaged = 0;
    for event in events.by_ref() {
        let Ok(event) = event else {
            damaged += 1;
            continue;
        };
        let at_ns = i64::try_from(event.timestamp_ns).unwrap_or(i64::MAX);
        let id = event.head.session_id.as_str();
        if !sessions.contains_key(id) {
            let process = Arc::new(processes::of_head(&event.head));
            let session_id = Arc::clone(&process.session_id);
            let facts = Arc::new(SessionFacts { process, session_id, viewpoint: None });
            let is_wanted = receiver.wants_session(&facts, is_closed);
            let (peaks, phase) = (Peaks::default(), CurrentPhase::default());
            sessions.insert(id.to_owned(), Seen { facts, peaks, phase, is_wanted, span_ns: (at_ns, at_ns) });
        }
        let Some(seen) = sessions.get_mut(id) else { continue };
        seen.span_ns = (seen.span_ns.0.min(at_ns), seen.span_ns.1.max(at_ns));
        let facts = known.of(&event.metadata);
        seen.phase.observe(&event, facts.step);
        let (phase, step) = (seen.phase.phase(), seen.phase.step());
        let row = SampleRow { session: Arc::clone(&seen.facts), event, facts, phase, step };
        seen.peaks.observe(&row);
        if seen.is_wanted {
            receiver.sample(row)?;
        }
    }
    if damaged > 0 {
        let sentence = format!("{damaged} records are damaged and were left out");
        receiver.problem(Problem { path: source.path().to_owned(), sentence, lost: damaged })?;
    }
    for sentence in events.notes() {
        receiver.problem(Problem { path: source.path().to_owned(), sentence, lost: 0 })?;
    }
    for (id, seen) in sessions {
        if seen.is_wanted {
            receiver.session_end(&seen.facts, is_final)?;
        }
        let process = Arc::clone(&seen.facts.process);
        if !is_final || !receiver.wants_process(&process) {
            continue;
        }
        let status = stated.iter().find(|session| session.session_id == id).map(|session| session.status);
        receiver.process(ProcessRow {
            process,
            started_at_ns: seen.span_ns.0,
            ended_at_ns: Some(seen.span_ns.1),
            ended: match status {
                Some(SessionStatus::Completed) => Ended::Completed,
                Some(SessionStatus::Interrupted) => Ended::Failed,
                _ => Ended::Unknown,
            },
            cause: None,
            exit_code: None,
            signal: None,
            is_root: true,
            peaks: seen.peaks,
            heap_peak_bytes: None,
            recorder_version: None,
        })?;
    }
    Ok(())
}
