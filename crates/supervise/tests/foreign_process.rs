//! Processes that are not ours to wait for: their end is noticed, and reported as far as it is known.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::process::{Child, Command};
use std::time::Duration;

use stormlog_postmortem::Cause;
use stormlog_supervise::{Attached, Departure};

const LONG: Duration = Duration::from_secs(20);

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().unwrap()
}

fn departure(mut attached: Attached) -> Departure {
    (0..100).find_map(|_| attached.wait(LONG)).unwrap()
}

#[test]
fn a_kill_is_seen_while_the_process_waits_for_its_parent() {
    let mut child = sleeper();
    let mut attached = Attached::open(child.id()).unwrap();
    assert_eq!(attached.name(), "sleep");
    assert!(attached.wait(Duration::from_millis(10)).is_none());
    child.kill().unwrap();
    let departure = departure(attached);
    child.wait().unwrap();
    let verdict = departure.verdict.unwrap();
    assert_eq!((verdict.cause, verdict.signal), (Cause::SigKill, Some(9)));
    assert!(departure.sentence.contains("sleep (pid "), "{}", departure.sentence);
}

#[test]
fn exit_is_reported_with_its_status() {
    for (status, says) in [("0", "exited 0"), ("7", "exited with status 7")] {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; exit $0", status]);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let attached = Attached::open(child.id()).unwrap();
        drop(child.stdin.take());
        let departure = departure(attached);
        assert!(departure.sentence.contains(says), "{}", departure.sentence);
        child.wait().unwrap();
    }
}

#[test]
fn reaped_process_gets_the_kernels_evidence_or_none() {
    let mut child = sleeper();
    let attached = Attached::open(child.id()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let departure = departure(attached);
    match departure.verdict {
        Some(verdict) => assert_eq!(verdict.cause, Cause::SigKill),
        None => assert!(departure.sentence.contains("cannot be seen"), "{}", departure.sentence),
    }
    assert!(Attached::open(child.id()).unwrap_err().is_gone());
}
