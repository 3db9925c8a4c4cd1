//! What a run reports while it lasts: forecasts and deaths, put into the courier's queue. Never waits.

use std::path::PathBuf;

use serde_json::{Value, json};
use stormlog_alert::alerts::AlertEvent;
use stormlog_collect::host::HostFacts;
use stormlog_model::Identity;
use stormlog_push::{Courier, Event, Notice};
use stormlog_store::wall_ns;

use crate::outcome::{ProcessOutcome, RunOutcome};

/// The reports of one run.
#[derive(Debug)]
pub(crate) struct Notices {
    courier: Courier,
    run: PathBuf,
    program: String,
    host: String,
}

impl Notices {
    pub(crate) fn new(courier: Courier, run: PathBuf, program: String, host: String) -> Self {
        Notices { courier, run, program, host }
    }

    /// A forecast became an alert, or is none any more.
    pub(crate) fn alert(&self, alert: &AlertEvent, pid: u32, identity: &Identity) {
        let event = if alert.is_start() { Event::Alert } else { Event::Resolved };
        let details =
            json!({"alert": alert.kind.as_str(), "severity": alert.event_type, "facts": alert.metadata});
        let notice = self.notice(event, alert.timestamp_ns, pid, identity, details);
        self.courier.send(Notice { headline: vec![alert.context.clone()], ..notice });
    }

    /// A process ended that the program outlives. Its headline is the run's answer, as far as it is known by then.
    pub(crate) fn child_ended(&self, outcome: &ProcessOutcome) {
        if outcome.judged == stormlog_postmortem::Ended::Failed {
            let notice =
                self.notice(Event::Death, wall_ns(), outcome.pid, &outcome.identity, details(outcome, false));
            self.courier.send(notice);
        }
    }

    fn notice(&self, event: Event, at_ns: u64, pid: u32, identity: &Identity, details: Value) -> Notice {
        Notice {
            event,
            at_ns,
            run: self.run.clone(),
            program: self.program.clone(),
            pid,
            host: self.host.clone(),
            job_id: identity.job_id.clone(),
            rank: is_ranked(identity).then_some(identity.rank),
            headline: Vec::new(),
            details,
        }
    }
}

impl RunOutcome {
    /// The report of the program's own death, with the run's answer. `None` where its end is not a failure.
    #[must_use]
    pub fn death_notice(&self, headline: impl FnOnce() -> Vec<String>) -> Option<Notice> {
        let main = self.processes.first()?;
        (main.judged == stormlog_postmortem::Ended::Failed).then(|| Notice {
            event: Event::Death,
            at_ns: wall_ns(),
            run: self.directory.clone(),
            program: self.program.clone(),
            pid: main.pid,
            host: HostFacts::read().hostname.unwrap_or_default(),
            job_id: main.identity.job_id.clone(),
            rank: is_ranked(&main.identity).then_some(main.identity.rank),
            headline: headline(),
            details: details(main, true),
        })
    }
}

/// A rank of 0 in a job of one is the value of nothing.
fn is_ranked(identity: &Identity) -> bool {
    identity.world_size > 1 || identity.rank > 0
}

fn details(outcome: &ProcessOutcome, is_program: bool) -> Value {
    json!({
        "cause": outcome.cause.map(|cause| cause.as_str()), "confidence": outcome.confidence, "verdict": outcome.verdict,
        "is_program": is_program, "peak_rss_bytes": outcome.peak_rss, "last_rss_bytes": outcome.last_rss,
        "limit_bytes": outcome.limit_bytes, "bundle": outcome.bundle.as_ref().map(|path| path.display().to_string()),
    })
}
