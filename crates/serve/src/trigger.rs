//! `POST /runs/RUN/snapshot` and `/runs/RUN/heap`: leave a request for a process of a run, and nothing else.
//!
//! Only for owners (the token, or a Unix socket), only for runs of the service's own user, even where the service is root's, and at a limited rate. Every
//! attempt is a line for the log. Must never touch a process, nor name a path to a client.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use stormlog_catalog::request::{Answer, Kind, RequestError, State, ask, asked_of, targets};
use stormlog_model::text::short_name;

use crate::http::Reply;

/// Between two requests to one run, and to all of them.
const PAUSE_OF_A_RUN: Duration = Duration::from_secs(10);
const MOST_PER_MINUTE: usize = 30;
const MINUTE: Duration = Duration::from_secs(60);
/// A process that does not take it within this time is not asked any more.
const PATIENCE: Duration = Duration::from_secs(120);

/// The run and what is wanted of it, by the path of a request below `/runs/`.
pub(crate) fn wanted(path: &str) -> Option<(&str, Kind)> {
    let snapshot = path.strip_suffix("/snapshot").map(|id| (id, Kind::Snapshot));
    snapshot.or_else(|| path.strip_suffix("/heap").map(|id| (id, Kind::Heap)))
}

fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Snapshot => "snapshot",
        Kind::Heap => "heap recording",
    }
}

/// Gets a line for each attempt.
pub type Audit = dyn Fn(&str) + Send + Sync;

/// Takes requests of clients.
pub(crate) struct Trigger {
    audit: Box<Audit>,
    accepted: Mutex<Accepted>,
}

/// The requests of the last minute, the oldest first.
#[derive(Default)]
struct Accepted {
    last: VecDeque<(PathBuf, Instant)>,
}

impl Accepted {
    /// Whether one more is allowed now; then it counts.
    fn allows(&mut self, run: &Path, now: Instant) -> bool {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        self.last.retain(|(_, at)| age(at) < MINUTE);
        let is_soon = self.last.iter().any(|(other, at)| other == run && age(at) < PAUSE_OF_A_RUN);
        if is_soon || self.last.len() >= MOST_PER_MINUTE {
            return false;
        }
        self.last.push_back((run.to_owned(), now));
        true
    }
}

impl Trigger {
    pub(crate) fn new(audit: Box<Audit>) -> Self {
        Trigger { audit, accepted: Mutex::default() }
    }

    /// Leaves a request for a process of the run in `directory`: for `pid`, or for the first one that takes requests.
    pub(crate) fn post(&self, id: &str, kind: Kind, directory: &Path, pid: Option<u32>) -> Reply {
        let (reply, outcome) = self.try_post(kind, directory, pid);
        (self.audit)(&format!(
            "{} of run {id}, pid {}: {outcome}",
            noun(kind),
            pid.map_or("-".to_owned(), |pid| pid.to_string())
        ));
        reply
    }

    /// Counts an attempt that was refused before it got here.
    pub(crate) fn refused(&self, id: &str, kind: Kind, reason: &str) {
        // A client without the token chose the name: it gets one line, and not a long one.
        (self.audit)(&format!("{} of run {}: refused, {reason}", noun(kind), short_name(id)));
    }

    fn try_post(&self, kind: Kind, directory: &Path, pid: Option<u32>) -> (Reply, String) {
        let refuse = |status: &'static str, sentence: &str| {
            (Reply::text(status, &format!("{sentence}\n")), format!("refused, {sentence}"))
        };
        let owner = std::fs::symlink_metadata(directory).map(|there| there.uid());
        if owner.is_ok_and(|owner| owner != rustix::process::geteuid().as_raw()) {
            return refuse("403 Forbidden", "The run belongs to another user.");
        }
        let found = targets(directory).unwrap_or_default();
        let chosen = found.into_iter().find(|target| pid.is_none_or(|pid| target.pid == pid));
        let Some(target) = chosen else {
            return refuse(
                "409 Conflict",
                "No such process of this run takes requests; it has ended, or never ran here.",
            );
        };
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if !accepted.allows(directory, Instant::now()) {
            return refuse(
                "429 Too Many Requests",
                "Too many requests: one per run every 10 s is accepted, and 30 per minute in all.",
            );
        }
        drop(accepted);
        let mut request = asked_of(&target, kind, "stormlog serve");
        request.expires_at_ns = Some(request.asked_at_ns.saturating_add(PATIENCE.as_nanos() as i64));
        match ask(target, request) {
            Ok(asked) => {
                let (pid, id) = (asked.target.pid, asked.request.id);
                let text = json!({"pid": pid, "id": id, "state": "asked"});
                let reply = Reply::ok("application/json", format!("{text:#}\n").into_bytes().into());
                (Reply { status: "202 Accepted", ..reply }, format!("accepted as {pid}-{id}"))
            }
            Err(RequestError::Busy(_)) => {
                refuse("429 Too Many Requests", "Too many requests are waiting for an answer.")
            }
            Err(_) => refuse("500 Internal Server Error", "The request cannot be written."),
        }
    }
}

/// What is answered so far to the request `PID-ID` of a run, without paths.
pub(crate) fn answer(directory: &Path, name: &str) -> Reply {
    let parts = name.split_once('-').and_then(|(pid, id)| Some((pid.parse::<u32>().ok()?, id)));
    let found = parts
        .filter(|(_, id)| stormlog_catalog::run::layout::is_request_id(id))
        .and_then(|(pid, id)| Answer::read(directory, pid, id));
    let Some(found) = found else {
        return Reply::text("404 Not Found", "This request has no answer yet.\n");
    };
    let snapshot = found.path.as_deref().filter(|_| found.state == State::Done);
    let snapshot = snapshot.and_then(stormlog_heap_report::snapshot::MemorySnapshot::read);
    let text = json!({
        "pid": found.pid, "id": found.id, "state": found.state, "reason": found.reason, "step": found.step,
        "lines": snapshot.as_ref().map(|snapshot| snapshot.lines()),
        "components": snapshot.as_ref().map(|snapshot| &snapshot.components),
        "holders": snapshot.as_ref().map(|snapshot| &snapshot.holders),
    });
    Reply::ok("application/json", format!("{text:#}\n").into_bytes().into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn attempt_without_a_token_is_one_short_line() {
        let lines = std::sync::Arc::new(Mutex::new(Vec::new()));
        let log = std::sync::Arc::clone(&lines);
        let trigger = Trigger::new(Box::new(move |line| log.lock().unwrap().push(line.to_owned())));
        let forged =
            format!("x\n2026-11-18 11:00:00Z snapshot of run y: accepted\u{1b}[31m{}", "z".repeat(8000));
        trigger.refused(&forged, Kind::Snapshot, "no token");
        let lines = lines.lock().unwrap();
        assert!(lines[0].chars().all(|letter| !letter.is_control()), "{:?}", lines[0]);
        assert!(lines[0].chars().count() < 500 && lines[0].ends_with("refused, no token"), "{:?}", lines[0]);
    }

    #[test]
    fn requests_to_a_run_and_to_all_are_limited() {
        let (mut accepted, now) = (Accepted::default(), Instant::now());
        assert!(accepted.allows(Path::new("a"), now));
        assert!(!accepted.allows(Path::new("a"), now + PAUSE_OF_A_RUN / 2));
        assert!(accepted.allows(Path::new("a"), now + PAUSE_OF_A_RUN));
        let allowed = (0..100).filter(|run| accepted.allows(Path::new(&run.to_string()), now)).count();
        assert_eq!(allowed, MOST_PER_MINUTE - 2, "the two of run a count as well");
        assert!(accepted.allows(Path::new("b"), now + MINUTE * 2));
    }
}
