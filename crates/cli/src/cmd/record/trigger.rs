//! `stormlog trigger`: asks every recorded process at a path for the same, at the same step, and waits for their answers.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stormlog_catalog::request::{
    Answer, Kind, PendingRequest, RequestError, State, Target, ask, asked_of, targets, that_may_step,
};
use stormlog_model::text::inert_lines;

use crate::exit::{CtrlC, Exit, MissingInput};
use crate::table::Table;

const LOOK: Duration = Duration::from_millis(50);

pub(crate) struct Options {
    pub(crate) directory: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) at_step: Option<u64>,
    pub(crate) timeout: Duration,
    pub(crate) json: bool,
}

/// A process and how far it is.
struct Row {
    target: Target,
    asked: Result<PendingRequest, RequestError>,
    answer: Option<Answer>,
    /// It ended without a final answer.
    has_ended: bool,
}

impl Row {
    fn is_open(&self) -> bool {
        self.asked.is_ok() && !self.has_ended && !self.is_answered()
    }

    fn is_answered(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.state.is_final())
    }

    fn look(&mut self) {
        if let Ok(asked) = &self.asked {
            // In this order: a process answers before it ends.
            let has_ended = asked.has_ended();
            self.answer = asked.answer().or(self.answer.take());
            self.has_ended = has_ended && !self.is_answered();
        }
    }

    fn is_done(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.state == State::Done)
    }

    fn state(&self) -> &'static str {
        match self.answer.as_ref().map(|answer| answer.state) {
            _ if self.asked.is_err() => "not asked",
            _ if self.has_ended => "ended",
            None => "no answer",
            Some(State::Waiting) => "waiting",
            Some(State::Done) => "recorded",
            Some(State::Refused) => "refused",
            Some(State::Failed) => "failed",
        }
    }

    /// `100`, `103 (+3)`.
    fn step(&self, at_step: Option<u64>) -> String {
        let step = self.answer.as_ref().and_then(|answer| answer.step);
        match (step, at_step) {
            (Some(step), Some(asked)) if step > asked && self.is_done() => {
                format!("{step} (+{})", step - asked)
            }
            (Some(step), _) => step.to_string(),
            (None, _) => "-".to_owned(),
        }
    }

    /// Why there is no result.
    fn reason(&self, at_step: Option<u64>) -> Option<String> {
        let answer = self.answer.as_ref();
        let reported = answer.and_then(|answer| answer.reason.clone());
        match (&self.asked, answer.map(|answer| answer.state), at_step) {
            (Err(error), ..) => Some(error.to_string()),
            (Ok(_), Some(State::Done), _) => None,
            _ if reported.is_some() => reported,
            _ if self.has_ended => Some("the process ended before it answered".to_owned()),
            (Ok(_), Some(State::Waiting), Some(step)) => {
                Some(format!("step {step} or the step after it did not end in time"))
            }
            (Ok(_), Some(State::Waiting), None) => Some("it did not finish in time".to_owned()),
            _ => {
                Some("it did not take the request in time; it may be stopped, or in one long call".to_owned())
            }
        }
    }

    fn result(&self, at_step: Option<u64>) -> String {
        let path = self.answer.as_ref().and_then(|answer| answer.path.as_ref());
        path.map(|path| path.display().to_string()).or_else(|| self.reason(at_step)).unwrap_or_default()
    }

    fn to_value(&self, at_step: Option<u64>) -> Value {
        let answer = self.answer.as_ref();
        json!({
            "run": self.target.run, "pid": self.target.pid, "rank": self.target.rank, "host": self.target.host,
            "state": self.state(), "step": answer.and_then(|answer| answer.step), "at_step": at_step,
            "path": answer.and_then(|answer| answer.path.as_ref()), "reason": self.reason(at_step),
        })
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let found = targets(&options.directory)?;
    let found = if options.at_step.is_some() { that_may_step(found) } else { found };
    if found.is_empty() {
        return Err(MissingInput(format!(
            "{}: no running process is recorded here; start the ranks with `stormlog run --dir DIR`",
            options.directory.display()
        ))
        .into());
    }
    let mut rows: Vec<Row> = found.into_iter().map(|target| asked(options, target)).collect();
    let (begun, stop) = (Instant::now(), CtrlC::watch());
    while rows.iter().any(Row::is_open) && begun.elapsed() < options.timeout && stop.check().is_ok() {
        std::thread::sleep(LOOK);
        rows.iter_mut().for_each(Row::look);
    }
    for asked in rows.iter().filter(|row| row.is_open()).filter_map(|row| row.asked.as_ref().ok()) {
        asked.withdraw();
    }
    let done = rows.iter().filter(|row| row.is_done()).count();
    let mut out = io::stdout().lock();
    if options.json {
        let values: Vec<Value> = rows.iter().map(|row| row.to_value(options.at_step)).collect();
        writeln!(out, "{:#}", json!({"asked": rows.len(), "recorded": done, "processes": values}))?;
    } else {
        let mut table = Table::new(&["rank", "host", "pid", "state", "step", "result"], &[0, 2]);
        for row in &rows {
            table.row([
                row.target.rank.to_string(),
                inert_lines(row.target.host.as_deref().unwrap_or("-")).to_string(),
                row.target.pid.to_string(),
                row.state().to_owned(),
                row.step(options.at_step),
                inert_lines(&row.result(options.at_step)).to_string(),
            ]);
        }
        write!(out, "{table}")?;
        writeln!(out, "{done} of {} processes recorded", rows.len())?;
    }
    stop.check()?;
    Ok(if done == rows.len() { Exit::Ok } else { Exit::Error })
}

fn asked(options: &Options, target: Target) -> Row {
    let mut request = asked_of(&target, options.kind, "stormlog trigger");
    request.at_step = options.at_step;
    request.expires_at_ns = Some(request.asked_at_ns.saturating_add(options.timeout.as_nanos() as i64));
    Row { asked: ask(target.clone(), request), target, answer: None, has_ended: false }
}
