//! Phases: the metadata of 0.4.3, its errors, and what is open when a program dies.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "in a test a panic is the report")]

mod common;

use common::{START, event, record};
use serde_json::{Value, json};
use stormlog_model::Record;
use stormlog_model::phases::{MAX_DEPTH, PhaseBoundary, PhaseError, Phases, Thread, open_phases};

const MAIN: Thread<'static> = Thread { id: 1, name: "MainThread" };
const OTHER: Thread<'static> = Thread { id: 2, name: "" };

#[test]
fn boundaries_carry_the_scope_key_for_key() {
    let mut phases = Phases::default();
    let (outer, first) = phases.enter("s", 0, MAIN, " train ", Record::new()).unwrap();
    let attributes = record(json!({"step": 3}));
    let (inner, second) = phases.enter("s", 0, MAIN, "forward", attributes).unwrap();
    assert_eq!(first.context, "Phase entered: train");
    assert_eq!(second.event_type, "phase_enter");
    let expected = json!({"phase_scope": {"action": "enter", "name": "forward", "path": ["train", "forward"], "depth": 2,
        "scope_id": "s:2", "parent_scope_id": "s:1", "thread_id": 1, "thread_name": "MainThread", "sequence": 2,
        "attributes": {"step": 3}}});
    // The text, so that the order of the keys counts.
    assert_eq!(Value::Object(second.metadata).to_string(), expected.to_string());
    let exit = phases.exit(&inner, 1).unwrap();
    assert_eq!(exit.context, "Phase exited: train / forward");
    assert_eq!(exit.metadata["phase_scope"]["action"], "exit");
    assert_eq!(exit.metadata["phase_scope"]["sequence"], 3);
    let exit = phases.exit(&outer, 1).unwrap();
    assert_eq!(exit.metadata["phase_scope"]["parent_scope_id"], Value::Null);
    assert_eq!(exit.metadata["phase_scope"].get("attributes"), None);
    assert!(phases.is_empty());
}

#[test]
fn wrong_closings_are_refused_and_change_nothing() {
    let mut phases = Phases::default();
    let (outer, _) = phases.enter("s", 0, MAIN, "a", Record::new()).unwrap();
    let (inner, _) = phases.enter("s", 0, MAIN, "b", Record::new()).unwrap();
    let message = |result: Result<PhaseBoundary, PhaseError>| result.unwrap_err().to_string();
    assert_eq!(
        message(phases.exit(&outer, 1)),
        "Phase handles must be closed in strict LIFO order per thread."
    );
    let elsewhere = "Phase handle was closed from a different thread than it was opened.";
    assert_eq!(message(phases.exit(&inner, 2)), elsewhere);
    let (other, boundary) = phases.enter("s", 0, OTHER, "c", Record::new()).unwrap();
    assert_eq!(boundary.metadata["phase_scope"]["thread_name"], "thread-2");
    assert_eq!(boundary.path.len(), 1, "another thread starts its own path");
    assert_eq!(message(phases.exit(&inner, 2)), elsewhere);
    phases.exit(&other, 2).unwrap();
    assert_eq!(message(phases.exit(&other, 2)), "No active phase stack exists for this thread.");
    assert_eq!(message(phases.exit(&other, 1)), "Unknown phase scope_id 's:3' for active tracker state.");
    phases.exit(&inner, 1).unwrap();
    phases.exit(&outer, 1).unwrap();
    assert_eq!(phases.enter("s", 0, MAIN, "  ", Record::new()).unwrap_err(), PhaseError::EmptyName);
}

#[test]
fn depth_is_bounded() {
    let mut phases = Phases::default();
    for _ in 0..MAX_DEPTH {
        phases.enter("s", 0, MAIN, "x", Record::new()).unwrap();
    }
    let error = phases.enter("s", 0, MAIN, "y", Record::new()).unwrap_err();
    assert!(matches!(error, PhaseError::TooDeep { depth: MAX_DEPTH, .. }), "{error}");
}

#[test]
fn phases_open_at_death_are_found_in_the_events() {
    let mut phases = Phases::default();
    let mut events = Vec::new();
    let mut at = START;
    let mut push = |boundary: PhaseBoundary| {
        at += 1;
        events.push(event(at, boundary.event_type, -1, None, Value::Object(boundary.metadata)));
    };
    let (lost, _) = phases.enter("session-1", 1, MAIN, "rolled out of the ring", Record::new()).unwrap();
    push(phases.exit(&lost, 1).unwrap());
    let (_, boundary) = phases.enter("session-1", 1, MAIN, "train", Record::new()).unwrap();
    push(boundary);
    let (load, boundary) = phases.enter("session-1", 1, OTHER, "load", Record::new()).unwrap();
    push(boundary);
    let attributes = record(json!({"step": 1840}));
    let (_, boundary) = phases.enter("session-1", 1, MAIN, "forward", attributes).unwrap();
    push(boundary);
    push(phases.exit(&load, 2).unwrap());
    // Damaged scopes are passed over.
    for broken in [json!({}), json!({"phase_scope": 7}), json!({"phase_scope": {"path": "x", "scope_id": 1}})]
    {
        events.push(event(START, "phase_enter", -1, None, broken));
    }
    let open = open_phases(&events);
    let paths: Vec<_> = open.iter().map(|phase| phase.path.join("/")).collect();
    assert_eq!(paths, ["train", "train/forward"]);
    assert_eq!(open[1].to_record()["attributes"], json!({"step": 1840}));
    assert_eq!((open[1].rank, open[1].entered_at_ns), (1, START + 4));
}

/// The real recorder, doing the same: what it says about its phases is what we say, to the byte.
#[test]
fn boundaries_are_those_of_the_real_one() {
    let Some(python) = std::env::var_os("STORMLOG_PEER_PYTHON") else {
        eprintln!("skipped: STORMLOG_PEER_PYTHON is not set to a Python that has stormlog 0.4.3");
        return;
    };
    let script = "import json, threading\nfrom stormlog.phases import PhaseRecorder\n\
        r = PhaseRecorder(); out = []\n\
        a, b = r.enter(session_id='s', rank=0, name=' train '); out.append(b)\n\
        c, b = r.enter(session_id='s', rank=0, name='forward', attrs={'step': 3}); out.append(b)\n\
        out.append(r.exit(c)); out.append(r.exit(a))\n\
        print(threading.get_ident())\n\
        for b in out: print(json.dumps([b.event_type, b.context, b.metadata, b.scope_id, list(b.path)], separators=(',', ':')))";
    let output = std::process::Command::new(python).args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    let thread = Thread { id: lines.next().unwrap().parse().unwrap(), name: "MainThread" };
    let mut phases = Phases::default();
    let (outer, first) = phases.enter("s", 0, thread, " train ", Record::new()).unwrap();
    let (inner, second) = phases.enter("s", 0, thread, "forward", record(json!({"step": 3}))).unwrap();
    let (third, fourth) = (phases.exit(&inner, thread.id).unwrap(), phases.exit(&outer, thread.id).unwrap());
    for (ours, theirs) in [first, second, third, fourth].into_iter().zip(lines.by_ref()) {
        let path: Vec<&str> = ours.path.iter().map(|part| &**part).collect();
        let ours = json!([ours.event_type, ours.context, ours.metadata, ours.scope_id, path]);
        assert_eq!(ours.to_string(), theirs);
    }
    assert_eq!(lines.next(), None);
}
