//! Run directories as rows of a fleet: the same rows that `publish` writes into a lake.

use std::path::PathBuf;
use std::sync::Arc;

use stormlog_lake::rows::{Problem, Receiver, Recordings, RunFacts, Stop};
use stormlog_lake::without_copies;
use stormlog_lake::{DeathRow, FindingRow, HolderRow, ProcessFacts, ProcessRow, SampleRow, SessionFacts};
use stormlog_model::Counter;

use super::{FleetError, Scope, in_parallel};
use crate::gather::Gathered;
use crate::report::Problems;
use crate::row;

/// Samples that are taken together.
const BATCH: usize = 1024;

/// Reads the run directories at the paths.
pub(super) fn read(paths: &[PathBuf], scope: &Scope) -> Result<(Gathered, Problems), FleetError> {
    let found = Recordings::at(paths)?;
    if found.runs.is_empty() {
        let nothing = || FleetError::Nothing(paths.first().cloned().unwrap_or_default());
        let problem = found.problems.first();
        return Err(problem.map_or_else(nothing, |problem| FleetError::Unreadable(sentence(problem))));
    }
    let mut problems = Problems::default();
    found.problems.iter().for_each(|problem| problems.torn(sentence(problem)));
    let (once, copies) = without_copies(&found.runs);
    for copy in copies {
        problems.copy(format!("{} (of {})", copy.path.display(), copy.of.display()));
    }
    let (gathered, wrong) = in_parallel(&once, scope.readers, |recording, gathered, problems| {
        let mut taking = Taking { scope, gathered, problems, session: None, batch: Vec::new() };
        // This receiver never ends the reading.
        let _ = recording.read(&mut taking);
        taking.flush();
    });
    problems.merge(wrong);
    Ok((gathered, problems))
}

fn sentence(problem: &Problem) -> String {
    let path = problem.path.display().to_string();
    // The error of a store begins with the path already.
    match problem.sentence.starts_with(&path) {
        true => problem.sentence.clone(),
        false => format!("{path}: {}", problem.sentence),
    }
}

/// The process of a row.
pub(super) fn origin(process: &ProcessFacts) -> row::Origin {
    row::Origin {
        job_id: Arc::clone(&process.job_id),
        run_id: Arc::clone(&process.run_id),
        host: Arc::clone(&process.host),
        rank: process.rank,
        world_size: process.world_size.unwrap_or(1),
        attempt: process.attempt,
        pid: process.pid.unwrap_or(-1),
    }
}

struct Taking<'a> {
    scope: &'a Scope,
    gathered: &'a mut Gathered,
    problems: &'a mut Problems,
    /// The session of the batch, its process and its device.
    session: Option<(Arc<SessionFacts>, row::Origin, i64)>,
    batch: Vec<(row::Sample<'static>, Option<Arc<str>>)>,
}

impl Taking<'_> {
    fn flush(&mut self) {
        let Some((_, origin, device)) = &self.session else { return };
        if self.batch.is_empty() {
            return;
        }
        let stream = self.gathered.stream(origin);
        let samples =
            self.batch.iter().map(|(sample, phase)| row::Sample { phase: phase.as_deref(), ..*sample });
        self.gathered.samples(origin, stream, *device, samples);
        self.batch.clear();
    }

    fn wants(&self, process: &ProcessFacts) -> bool {
        self.scope.wants_job(&process.job_id)
    }
}

fn signed(value: Option<u64>) -> Option<i64> {
    value.and_then(|value| i64::try_from(value).ok())
}

impl Receiver for Taking<'_> {
    fn wants_session(&mut self, session: &SessionFacts, _: bool) -> bool {
        self.wants(&session.process)
    }

    fn wants_process(&mut self, process: &ProcessFacts) -> bool {
        self.wants(process)
    }

    fn wants_judgement(&mut self, run: &RunFacts) -> bool {
        self.scope.wants_job(&run.job_id)
    }

    fn sample(&mut self, row: SampleRow) -> Result<(), Stop> {
        let device = row.event.head.device_id;
        let is_same = self
            .session
            .as_ref()
            .is_some_and(|(session, _, of)| Arc::ptr_eq(session, &row.session) && *of == device);
        if !is_same || self.batch.len() >= BATCH {
            self.flush();
        }
        if !is_same {
            let own = match self.session.take() {
                Some((session, own, _)) if Arc::ptr_eq(&session, &row.session) => own,
                _ => origin(&row.session.process),
            };
            self.session = Some((Arc::clone(&row.session), own, device));
        }
        let at_us = i64::try_from(row.event.timestamp_ns / 1000).unwrap_or(i64::MAX);
        if !self.scope.wants_time(at_us) {
            return Ok(());
        }
        let counter = |counter| signed(row.event.counter(counter));
        let (reserved, allocated) = (counter(Counter::Reserved), counter(Counter::Allocated));
        let by_driver = row.facts.process_device_used_bytes;
        let sample = row::Sample {
            at_us,
            held: row::Sample::held_of(device, counter(Counter::Used), by_driver, reserved, allocated),
            allocated,
            reserved,
            total: counter(Counter::Total),
            phase: None,
            step: row.step,
        };
        self.batch.push((sample, row.phase));
        Ok(())
    }

    fn process(&mut self, row: ProcessRow) -> Result<(), Stop> {
        self.flush();
        let micros = |at_ns: i64| at_ns.div_euclid(1000);
        let ended_us = row.ended_at_ns.map(micros);
        if self.scope.wants_time(ended_us.unwrap_or(i64::MAX)) {
            self.gathered.process(row::ProcessRow {
                origin: origin(&row.process),
                job_name: row.process.job_name.as_deref().map(str::to_owned),
                job_version: row.process.job_version.as_deref().map(str::to_owned),
                is_main: row.process.role.is_main(),
                started_us: Some(micros(row.started_at_ns)),
                ended_us,
                peak_host: row.peaks.host.and_then(|(bytes, _)| i64::try_from(bytes).ok()),
            });
        }
        Ok(())
    }

    fn death(&mut self, row: DeathRow) -> Result<(), Stop> {
        let at_us = row.at_ns.div_euclid(1000);
        if self.wants(&row.process) && self.scope.wants_time(at_us) {
            let place =
                row.holder.as_ref().map(|holder| place(&holder.file, holder.line.into(), &holder.function));
            self.gathered.death(row::DeathRow {
                origin: origin(&row.process),
                at_us,
                cause: row.cause.as_str().to_owned(),
                sentence: Some(row.what_happened).filter(|sentence| !sentence.is_empty()),
                signature: Some(row.signature).filter(|signature| !signature.is_empty()),
                line: place,
            });
        }
        Ok(())
    }

    fn finding(&mut self, row: FindingRow) -> Result<(), Stop> {
        if self.wants(&row.process) && self.scope.wants_time(row.at_ns.div_euclid(1000)) {
            self.gathered.finding(row::FindingRow {
                origin: origin(&row.process),
                kind: row.finding.kind,
                severity: row.finding.severity.as_str().to_owned(),
                title: row.finding.title,
            });
        }
        Ok(())
    }

    fn holder(&mut self, row: HolderRow) -> Result<(), Stop> {
        if self.wants(&row.process) && self.scope.wants_time(row.at_ns.div_euclid(1000)) {
            self.gathered.holder(row::HolderRow {
                origin: origin(&row.process),
                is_of_device: row.holder.memory.is_device(),
                place: place(&row.holder.file, row.holder.line.into(), &row.holder.function),
                bytes: i64::try_from(row.holder.bytes).unwrap_or(i64::MAX),
            });
        }
        Ok(())
    }

    fn problem(&mut self, problem: Problem) -> Result<(), Stop> {
        self.problems.torn(sentence(&problem));
        Ok(())
    }
}

/// `model.py:31 build`: with the file's own name, which is the same wherever the program is installed.
pub(super) fn place(file: &str, line: i64, function: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    match line {
        _ if name.is_empty() => function.to_owned(),
        0 => format!("{name} {function}"),
        line => format!("{name}:{line} {function}"),
    }
}
