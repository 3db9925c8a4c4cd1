//! How far a request to one process is: its state, the step it was answered at, and why there is no result. Both commands that wait
//! for answers (`snapshot --pid`, `trigger`) look through this. Reads only; never waits.

use std::path::Path;

use serde_json::{Value, json};

use super::{Answer, PendingRequest, Request, RequestError, State, Target, ask};

/// A process that was asked, and what came back so far.
#[derive(Debug)]
pub struct RequestProgress {
    /// The process.
    pub target: Target,
    asked: Result<PendingRequest, RequestError>,
    at_step: Option<u64>,
    answer: Option<Answer>,
    has_ended: bool,
}

impl RequestProgress {
    /// Leaves a request for a process. Where that fails, the reason is in the progress.
    #[must_use]
    pub fn ask(target: Target, request: Request) -> Self {
        let at_step = request.at_step;
        RequestProgress {
            asked: ask(target.clone(), request),
            at_step,
            target,
            answer: None,
            has_ended: false,
        }
    }

    /// Follows a request that was left already.
    #[must_use]
    pub fn of(asked: PendingRequest) -> Self {
        let (target, at_step) = (asked.target.clone(), asked.request.at_step);
        RequestProgress { asked: Ok(asked), at_step, target, answer: None, has_ended: false }
    }

    /// Reads what is answered by now.
    pub fn look(&mut self) {
        if let Ok(asked) = &self.asked {
            // In this order: a process answers before it ends.
            let has_ended = asked.has_ended();
            self.answer = asked.answer().or(self.answer.take());
            self.has_ended = has_ended && !self.is_answered();
        }
    }

    /// Whether an answer may still come.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.asked.is_ok() && !self.has_ended && !self.is_answered()
    }

    fn is_answered(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.state.is_final())
    }

    /// Whether the process recorded what it was asked for.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.state == State::Done)
    }

    /// Whether the process ended without a final answer.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The directory of the result, where there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.answer.as_ref()?.path.as_deref()
    }

    /// Takes the request back where no answer came.
    pub fn withdraw(&self) {
        if let (true, Ok(asked)) = (self.is_open(), &self.asked) {
            asked.withdraw();
        }
    }

    /// Its state in a word.
    #[must_use]
    pub fn state(&self) -> &'static str {
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

    /// The step it was answered at: `100`, or `103 (+3)` where a later step than the requested one was recorded.
    #[must_use]
    pub fn step(&self) -> String {
        let step = self.answer.as_ref().and_then(|answer| answer.step);
        match (step, self.at_step) {
            (Some(step), Some(asked)) if step > asked && self.is_done() => {
                format!("{step} (+{})", step - asked)
            }
            (Some(step), _) => step.to_string(),
            (None, _) => "-".to_owned(),
        }
    }

    /// Why there is no result.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let answer = self.answer.as_ref();
        let reported = answer.and_then(|answer| answer.reason.clone());
        match (&self.asked, answer.map(|answer| answer.state), self.at_step) {
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

    /// For scripts.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let answer = self.answer.as_ref();
        json!({
            "run": self.target.run, "pid": self.target.pid, "rank": self.target.rank, "host": self.target.host,
            "state": self.state(), "step": answer.and_then(|answer| answer.step), "at_step": self.at_step,
            "path": self.path(), "reason": self.reason(),
        })
    }
}
