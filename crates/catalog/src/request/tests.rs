use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::run::layout::{request_name, snapshot_name};

fn own_target(run: &Path) -> Target {
    let pid = std::process::id();
    let start_ticks = stormlog_liveness::start_ticks(pid);
    Target { run: run.to_owned(), pid, start_ticks, rank: 0, world_size: None, host: None, listens: true }
}

#[test]
fn request_is_taken_once_and_its_answer_read_back() {
    let run = tempfile::tempdir().unwrap();
    let target = own_target(run.path());
    let asked = ask(target.clone(), asked_of(&target, Kind::Snapshot, "test")).unwrap();
    let file = run.path().join(REQUESTS_DIRECTORY).join(request_name(target.pid, &asked.request.id));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let inbox = Inbox::own(run.path());
    assert_eq!(inbox.take(), std::slice::from_ref(&asked.request));
    assert!(inbox.take().is_empty(), "it is gone");
    assert!(asked.answer().is_none());
    let mut answer = Answer {
        id: asked.request.id.clone(),
        pid: target.pid,
        state: State::Done,
        path: Some(run.path().join("snapshots").join(snapshot_name(target.pid, "ab"))),
        reason: None,
        step: Some(7),
        answered_at_ns: 1,
    };
    answer.write(run.path()).unwrap();
    assert_eq!(asked.answer(), Some(answer.clone()));
    // A result elsewhere is not one of the run.
    answer.path = Some(run.path().join("../elsewhere"));
    answer.write(run.path()).unwrap();
    assert_eq!(asked.answer().unwrap().path, None);
}

#[test]
fn result_is_found_whatever_path_of_the_run_was_asked_with() {
    let run = tempfile::tempdir().unwrap();
    let target = own_target(run.path());
    let asked = ask(target.clone(), asked_of(&target, Kind::Snapshot, "test")).unwrap();
    let name = snapshot_name(target.pid, "ab");
    let answer = Answer {
        id: asked.request.id.clone(),
        pid: target.pid,
        state: State::Done,
        path: Some(run.path().join("snapshots").join(&name)),
        reason: None,
        step: None,
        answered_at_ns: 1,
    };
    answer.write(run.path()).unwrap();
    // The process wrote its absolute path; the directory that was asked is the same one by another path.
    let other = tempfile::tempdir().unwrap();
    let linked = other.path().join("linked");
    symlink(run.path(), &linked).unwrap();
    let seen = Answer::read(&linked, target.pid, &asked.request.id).unwrap();
    assert_eq!(seen.path, Some(linked.join("snapshots").join(&name)));
    for hostile in ["/etc/passwd", "snapshots/..", "/x/snapshots/../..", "snapshots", "/"] {
        Answer { path: Some(hostile.into()), ..answer.clone() }.write(run.path()).unwrap();
        let seen = Answer::read(run.path(), target.pid, &asked.request.id).unwrap();
        assert_eq!(seen.path, None, "{hostile}");
    }
}

#[test]
fn links_pipes_large_files_and_requests_for_others_are_refused() {
    let run = tempfile::tempdir().unwrap();
    let requests = run.path().join(REQUESTS_DIRECTORY);
    fs::create_dir(&requests).unwrap();
    let target = own_target(run.path());
    let request = asked_of(&target, Kind::Snapshot, "test");
    let text = |request: &Request| serde_json::to_string(request).unwrap();
    let named = |id: &str| requests.join(request_name(target.pid, id));
    fs::write(run.path().join("elsewhere"), text(&Request { id: "link".into(), ..request.clone() })).unwrap();
    symlink(run.path().join("elsewhere"), named("link")).unwrap();
    rustix::fs::mknodat(CWD, named("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::write(named("large"), " ".repeat(MAX_BYTES as usize + 1)).unwrap();
    fs::write(named("noise"), "{").unwrap();
    fs::write(named("other"), text(&Request { id: "another".into(), ..request.clone() })).unwrap();
    let later = Request { id: "reused".into(), start_ticks: Some(1), ..request.clone() };
    fs::write(named("reused"), text(&later)).unwrap();
    let late = Request { id: "late".into(), expires_at_ns: Some(1), ..request };
    fs::write(named("late"), text(&late)).unwrap();
    assert!(Inbox::own(run.path()).take().is_empty());
    for id in ["link", "pipe", "large", "noise", "other", "reused", "late"] {
        let answer = Answer::read(run.path(), target.pid, id).unwrap();
        assert_eq!(answer.state, State::Refused, "{id}");
        assert!(!named(id).exists(), "{id}");
    }
    assert!(run.path().join("elsewhere").exists(), "what a link leads to stays");
}

#[test]
fn request_of_another_user_does_not_count() {
    let run = tempfile::tempdir().unwrap();
    let target = own_target(run.path());
    let asked = ask(target.clone(), asked_of(&target, Kind::Snapshot, "test")).unwrap();
    // The process runs as another user than the one that left the file.
    let own = rustix::process::geteuid().as_raw();
    let inbox = Inbox::new(run.path(), target.pid, target.start_ticks, own + 1);
    let is_root = own == 0;
    assert_eq!(inbox.take().len(), usize::from(is_root), "root's requests count for every process");
    if !is_root {
        assert!(asked.answer().unwrap().reason.unwrap().contains("not from the user"));
    }
}

#[test]
fn directory_that_a_process_names_is_its_users_or_a_run_of_the_caller() {
    let (place, own) = (tempfile::tempdir().unwrap(), std::process::id());
    let open = Directory::open(place.path()).unwrap();
    assert!(is_run_of(&open, own));
    assert!(!is_run_of(&open, u32::MAX), "a process that is gone has no user, and this is no run");
    fs::write(place.path().join(RUN_FILE), "{}").unwrap();
    assert!(is_run_of(&open, u32::MAX), "a run of the caller's");
    let links = tempfile::tempdir().unwrap();
    symlink("/etc/passwd", links.path().join(RUN_FILE)).unwrap();
    assert!(!is_run_of(&Directory::open(links.path()).unwrap(), u32::MAX));
}

#[test]
fn request_to_a_process_that_takes_no_more_of_them_has_ended() {
    let run = tempfile::tempdir().unwrap();
    let target = own_target(run.path());
    Listener::own(0).show(run.path()).unwrap();
    let asked = ask(target.clone(), asked_of(&target, Kind::Snapshot, "test")).unwrap();
    assert!(!asked.has_ended());
    Listener::own(0).hide(run.path());
    assert!(asked.has_ended());
    let supervised = PendingRequest { target: Target { listens: false, ..target }, ..asked };
    assert!(!supervised.has_ended(), "its supervisor answers");
}

#[test]
fn waiting_requests_are_bounded() {
    let run = tempfile::tempdir().unwrap();
    let target = own_target(run.path());
    for _ in 0..MAX_PENDING {
        ask(target.clone(), asked_of(&target, Kind::Snapshot, "test")).unwrap();
    }
    let refused = ask(target.clone(), asked_of(&target, Kind::Snapshot, "test")).unwrap_err();
    assert!(matches!(refused, RequestError::Busy(_)), "{refused}");
    let other = Target { pid: target.pid + 1, ..target.clone() };
    ask(other.clone(), asked_of(&other, Kind::Snapshot, "test")).expect("the bound is that of one process");
}

#[test]
fn answers_of_a_process_outlive_requests_to_hundreds_of_others() {
    let run = tempfile::tempdir().unwrap();
    let target = own_target(run.path());
    for rank in 0..600 {
        let target = Target { pid: 1_000_000 + rank, ..target.clone() };
        let asked = ask(target.clone(), asked_of(&target, Kind::Snapshot, "test")).unwrap();
        let answer = Answer {
            id: asked.request.id,
            pid: target.pid,
            state: State::Done,
            path: None,
            reason: None,
            step: None,
            answered_at_ns: 1,
        };
        answer.write(run.path()).unwrap();
    }
    let answers = names(&run.path().join(REQUESTS_DIRECTORY));
    assert_eq!(answers.iter().filter(|name| crate::run::layout::is_answer(name)).count(), 600);
}

#[test]
fn copy_of_a_run_has_no_process_to_ask() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    fs::create_dir(&run).unwrap();
    fs::write(run.join(crate::run::layout::RUN_FILE), r#"{"format": "stormlog.run", "schema_version": 1}"#)
        .unwrap();
    // Of another machine: whether it lives cannot be seen from here.
    let listener = Listener { host: "elsewhere".to_owned(), ..Listener::own(0) };
    listener.show(&run).unwrap();
    assert_eq!(targets(place.path()).unwrap().len(), 1);
    fs::write(run.join(crate::run::layout::SHIPMENT_FILE), "{}").unwrap();
    assert_eq!(targets(place.path()).unwrap(), []);
}

#[test]
fn launcher_beside_ranks_is_not_asked_for_a_step() {
    let place = tempfile::tempdir().unwrap();
    let shown = |run: &Path, pid: u32, rank: u64, world_size: Option<u64>| {
        // Of another machine: whether it lives cannot be seen from here.
        let listener = Listener { pid, host: "elsewhere".to_owned(), world_size, ..Listener::own(rank) };
        fs::create_dir_all(run).unwrap();
        fs::write(
            run.join(crate::run::layout::RUN_FILE),
            r#"{"format": "stormlog.run", "schema_version": 1}"#,
        )
        .unwrap();
        listener.show(run).unwrap();
    };
    let pids = |targets: Vec<Target>| targets.iter().map(|target| target.pid).collect::<Vec<u32>>();
    let run = place.path().join("run");
    shown(&run, 10, 0, Some(1));
    assert_eq!(pids(that_may_step(targets(&run).unwrap())), [10], "a program alone");
    (0..2).for_each(|rank| shown(&run, 11 + rank, rank.into(), Some(2)));
    assert_eq!(pids(targets(&run).unwrap()), [10, 11, 12]);
    assert_eq!(pids(that_may_step(targets(&run).unwrap())), [11, 12]);
    shown(&run, 13, 1, None);
    assert_eq!(pids(that_may_step(targets(&run).unwrap())), [11, 12, 13], "a file of an earlier version");
    shown(&place.path().join("other"), 14, 0, Some(1));
    assert!(pids(that_may_step(targets(place.path()).unwrap())).contains(&14), "another run");
}

#[test]
fn listener_of_a_process_that_has_ended_does_not_count() {
    let run = tempfile::tempdir().unwrap();
    let own = Listener::own(3);
    own.show(run.path()).unwrap();
    assert_eq!(listener_of(run.path(), own.pid), Some(own.clone()));
    let earlier = Listener { start_ticks: Some(1), ..own.clone() };
    earlier.show(run.path()).unwrap();
    assert_eq!(listener_of(run.path(), own.pid), None);
    own.hide(run.path());
    let target = own_target(run.path());
    ask(target.clone(), asked_of(&target, Kind::Snapshot, "test")).unwrap();
    assert_eq!(pending_without_listener(run.path()), [target.pid]);
}
