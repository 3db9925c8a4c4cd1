//! Verdicts: each way to die distinguished, and evidence that does not agree with itself.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use stormlog_postmortem::bundle::HeldBy;
use stormlog_postmortem::verdict::kernel::{KernelKill, Scope};
use stormlog_postmortem::verdict::{
    CgroupFacts, Change, DeathFacts, Ending, FailedRequest, Growth, HostFacts, ReportedException, Sender,
    Verdict, judge,
};
use stormlog_postmortem::{Cause, Ended};

const GIB: u64 = 1 << 30;
const PID: u64 = 4711;

fn facts(ending: Ending) -> DeathFacts {
    DeathFacts {
        ran_seconds: Some(2472.0),
        last_rss_bytes: Some(15 * GIB),
        ..DeathFacts::of("train.py", PID, ending)
    }
}

fn rose(by: u64) -> Change {
    Change { before: Some(3), after: Some(3 + by) }
}

fn cgroup(oom: u64, oom_kill: u64) -> CgroupFacts {
    CgroupFacts {
        path: "/train".into(),
        limit_bytes: Some(16 * GIB),
        usage_bytes: Some(16 * GIB - (20 << 20)),
        soon_bytes: None,
        oom: rose(oom),
        oom_kill: rose(oom_kill),
        kills_elsewhere: 0,
    }
}

fn kill(pid: u64, scope: Scope) -> KernelKill {
    KernelKill {
        pid,
        name: Some("python".into()),
        scope: Some(scope),
        cgroup: Some("/train".into()),
        limit_bytes: None,
        usage_bytes: None,
        rss_bytes: Some(15 * GIB),
    }
}

fn exception(cause: Option<Cause>, is_fatal: bool) -> Option<ReportedException> {
    Some(ReportedException {
        type_name: "OutOfMemoryError".into(),
        message: "CUDA out of memory. Tried to allocate 2.00 GiB.\nmore".into(),
        cause,
        is_fatal,
    })
}

#[test]
fn death_together_with_the_supervisor_is_a_probable_kill_where_the_limit_was_about_to_be_met() {
    let mut facts = facts(Ending::Vanished);
    let last = CgroupFacts {
        path: "/".into(),
        limit_bytes: Some(16 * GIB),
        usage_bytes: Some(14 * GIB),
        soon_bytes: Some(17 * GIB),
        ..CgroupFacts::default()
    };
    facts.cgroups = vec![last.clone()];
    let verdict = judge(&facts);
    assert_eq!(verdict.cause, Cause::CgroupOomKill);
    assert!(verdict.confidence > 0.5 && verdict.confidence < 0.75, "{}", verdict.confidence);
    let sentence =
        "was probably killed by the kernel's OOM killer after 41 min 12 s: its container reached its limit";
    assert!(verdict.sentence.contains(sentence), "{}", verdict.sentence);
    assert!(has_note(&verdict, "counters are gone"));
    facts.cgroups = vec![CgroupFacts { soon_bytes: Some(15 * GIB), ..last }];
    assert_eq!(judge(&facts).cause, Cause::Unknown, "far from its limit nothing points to memory");
}

const KILLED: Ending = Ending::Signaled(9);

fn has_note(verdict: &Verdict, part: &str) -> bool {
    verdict.notes.iter().any(|note| note.contains(part))
}

#[test]
fn a_cgroup_kill_names_limit_and_usage() {
    let mut facts = facts(KILLED);
    facts.cgroups = vec![cgroup(1, 1)];
    facts.kernel = Some(vec![kill(PID, Scope::Cgroup)]);
    facts.growth = Some(Growth { bytes_per_second: 37.0 * 1048576.0 / 60.0, confidence: 0.9, since_ns: 0 });
    facts.held_by = vec![HeldBy {
        place: "dataset.py:88 Cache.put".into(),
        bytes: 11 * GIB,
        note: Some("still growing".into()),
    }];
    let verdict = judge(&facts);
    assert_eq!((verdict.cause, verdict.signal, verdict.exit_code), (Cause::CgroupOomKill, Some(9), None));
    assert_eq!((verdict.limit_bytes, verdict.confidence), (Some(16 * GIB), 1.0));
    assert_eq!(
        verdict.sentence,
        "train.py (pid 4711) was killed by the kernel's OOM killer after 41 min 12 s: cgroup /train reached its limit of \
         16.00 GiB, 15.98 GiB in use at the last sample, growing 37.00 MiB/min."
    );
    assert_eq!(verdict.tries[0], "cap what dataset.py:88 Cache.put holds (11.00 GiB, still growing)");
    assert!(verdict.notes.is_empty(), "{:?}", verdict.notes);
}

#[test]
fn a_cgroup_it_moved_to_has_the_limit_that_the_kernel_reports() {
    let mut facts = facts(KILLED);
    facts.cgroups = vec![cgroup(0, 0)];
    let elsewhere = KernelKill { cgroup: Some("/jobs/7".into()), ..kill(PID, Scope::Cgroup) };
    facts.kernel =
        Some(vec![KernelKill { limit_bytes: Some(GIB), usage_bytes: Some(GIB), ..elsewhere.clone() }]);
    let verdict = judge(&facts);
    assert_eq!((verdict.limit_bytes, verdict.usage_bytes), (Some(GIB), Some(GIB)));
    assert_eq!(verdict.limit_source.as_deref(), Some("cgroup /jobs/7"));
    // A log that rolled over knows the group but not its limit: the nearest known one is better than none.
    facts.kernel = Some(vec![elsewhere]);
    assert_eq!(judge(&facts).limit_bytes, Some(16 * GIB));
}

#[test]
fn counters_alone_prove_a_cgroup_kill() {
    let mut facts = facts(KILLED);
    facts.cgroups = vec![cgroup(1, 1)];
    facts.uses_gpu = Some(false);
    let verdict = judge(&facts);
    assert_eq!(verdict.cause, Cause::CgroupOomKill);
    assert!(verdict.confidence > 0.9);
    assert!(verdict.tries.iter().any(|line| line.contains("--limit 15.20GiB")), "{:?}", verdict.tries);
}

#[test]
fn the_limit_may_be_that_of_a_cgroup_above() {
    let mut facts = facts(KILLED);
    let own = CgroupFacts { path: "/train/worker".into(), limit_bytes: None, ..cgroup(0, 1) };
    facts.cgroups = vec![own, cgroup(1, 2)];
    let verdict = judge(&facts);
    assert_eq!(verdict.cause, Cause::CgroupOomKill);
    assert_eq!(verdict.limit_source.as_deref(), Some("cgroup /train"));
}

#[test]
fn a_crash_near_the_address_space_limit_may_be_a_failed_request() {
    let mut facts = facts(Ending::Signaled(6));
    facts.rlimit_as_bytes = Some(GIB);
    facts.peak_vms_bytes = Some(GIB - 1);
    assert!(judge(&facts).tries[0].starts_with("raise --limit (now 1.00 GiB)"));
    facts.peak_vms_bytes = Some(GIB / 10);
    assert!(judge(&facts).tries.is_empty(), "far from it there is no reason to think so");
}

#[test]
fn a_single_request_can_be_too_large_for_the_address_space() {
    let mut facts = facts(Ending::Exited(1));
    facts.exception = exception(Some(Cause::MemoryError), true);
    facts.rlimit_as_bytes = Some(GIB);
    facts.peak_vms_bytes = Some(GIB / 10);
    assert!(judge(&facts).sentence.contains("one request was too large for the address space limit"));
    facts.peak_vms_bytes = Some(GIB - (1 << 20));
    assert!(judge(&facts).sentence.contains("it reached the address space limit"));
}

#[test]
fn version_one_counts_kills_only() {
    let mut facts = facts(KILLED);
    facts.cgroups = vec![CgroupFacts { oom: Change::default(), ..cgroup(0, 1) }];
    assert_eq!(judge(&facts).cause, Cause::CgroupOomKill);
    // A limit far away was not what it met.
    facts.cgroups[0].usage_bytes = Some(GIB);
    assert_eq!(judge(&facts).cause, Cause::GlobalOomKill);
}

#[test]
fn a_global_kill_by_the_kernels_word_or_by_counters() {
    let mut by_log = facts(KILLED);
    by_log.kernel = Some(vec![kill(PID, Scope::Global)]);
    by_log.host = HostFacts { total_bytes: Some(64 * GIB), ..HostFacts::default() };
    let verdict = judge(&by_log);
    assert_eq!((verdict.cause, verdict.confidence), (Cause::GlobalOomKill, 1.0));
    assert!(
        verdict.sentence.contains("the machine ran out of its memory of 64.00 GiB; it held 15.00 GiB"),
        "{}",
        verdict.sentence
    );
    // Its cgroup counts a kill, but no limit was met.
    let mut by_counter = facts(KILLED);
    by_counter.cgroups = vec![CgroupFacts { limit_bytes: None, ..cgroup(0, 1) }];
    assert_eq!(judge(&by_counter).cause, Cause::GlobalOomKill);
    // No cgroup at all: the machine's counter, and a full machine.
    let mut by_host = facts(KILLED);
    by_host.host = HostFacts { total_bytes: Some(64 * GIB), available_bytes: Some(GIB), oom_kill: rose(1) };
    let verdict = judge(&by_host);
    assert_eq!(verdict.cause, Cause::GlobalOomKill);
    assert!(verdict.sentence.contains("probably"), "{}", verdict.sentence);
    // Its own memory is free again by the time anyone looks: then a large one was the victim, a small one was not.
    by_host.host.available_bytes = Some(40 * GIB);
    by_host.peak_rss_bytes = Some(30 * GIB);
    assert_eq!(judge(&by_host).cause, Cause::GlobalOomKill);
    by_host.peak_rss_bytes = Some(GIB);
    assert_eq!(judge(&by_host).cause, Cause::SigKill);
}

#[test]
fn kill_by_another_process_names_the_evidence_against_an_oom_kill() {
    let mut facts = facts(KILLED);
    facts.cgroups = vec![cgroup(0, 0)];
    facts.kernel = Some(vec![]);
    let verdict = judge(&facts);
    assert_eq!((verdict.cause, verdict.signal), (Cause::SigKill, Some(9)));
    let evidence =
        "another process sent it: neither the kernel's log nor the cgroup's counters show an OOM kill of it.";
    assert!(verdict.sentence.ends_with(evidence), "{}", verdict.sentence);
    let unread = DeathFacts { kernel: None, cgroups: vec![], ..facts.clone() };
    assert!(judge(&unread).sentence.ends_with("sent it: nothing shows an OOM kill of it."));
    assert!(!verdict.sentence.contains("probably"));
    assert_eq!(verdict.ended, Ended::Failed);
    facts.sender = Some(Sender::Run { pid: 999 });
    let verdict = judge(&facts);
    assert!(verdict.sentence.contains("killed with SIGKILL by process 999 of the same run"), "{verdict:?}");
    assert_eq!(verdict.ended, Ended::Failed, "only a process above it is in charge");
    facts.sender = Some(Sender::Above { pid: 7, program: Some("main.py".to_owned()), is_parent: true });
    let verdict = judge(&facts);
    assert!(verdict.sentence.contains("by its parent, main.py (pid 7)"), "{verdict:?}");
    assert_eq!((verdict.ended, verdict.tries.len()), (Ended::Deliberate, 0));
}

#[test]
fn unread_counters_do_not_prove_innocence() {
    let mut at_limit = facts(KILLED);
    at_limit.cgroups =
        vec![CgroupFacts { oom: Change::default(), oom_kill: Change::default(), ..cgroup(0, 0) }];
    let verdict = judge(&at_limit);
    assert_eq!(verdict.cause, Cause::CgroupOomKill);
    assert!(verdict.sentence.contains("probably") && has_note(&verdict, "could not be read"), "{verdict:?}");
    // Far from the limit, or with a known sender, it is no OOM kill.
    at_limit.sender = Some(Sender::Run { pid: 1 });
    assert_eq!(judge(&at_limit).cause, Cause::SigKill);
    let mut unknown = facts(KILLED);
    let verdict = judge(&unknown);
    assert_eq!(verdict.cause, Cause::SigKill);
    assert!(has_note(&verdict, "neither OOM counters"), "{verdict:?}");
    // A counter that went back was reset: nothing is known.
    unknown.cgroups = vec![CgroupFacts {
        oom_kill: Change { before: Some(9), after: Some(0) },
        usage_bytes: Some(GIB),
        ..cgroup(0, 0)
    }];
    assert_eq!(judge(&unknown).cause, Cause::SigKill);
}

#[test]
fn a_memory_error_under_an_address_space_limit() {
    let mut facts = facts(Ending::Exited(1));
    facts.exception = exception(Some(Cause::MemoryError), true);
    facts.rlimit_as_bytes = Some(4 * GIB);
    facts.peak_vms_bytes = Some(3 * GIB);
    // The cgroup's limit is not the one that was met.
    facts.cgroups = vec![cgroup(0, 0)];
    let verdict = judge(&facts);
    assert_eq!((verdict.cause, verdict.exit_code, verdict.signal), (Cause::MemoryError, Some(1), None));
    assert_eq!((verdict.limit_bytes, verdict.limit_source.as_deref()), (Some(4 * GIB), Some("RLIMIT_AS")));
    assert!(
        verdict
            .sentence
            .contains("(RLIMIT_AS) of 4.00 GiB, at most 3.00 GiB of address space were seen in use"),
        "{}",
        verdict.sentence
    );
    facts.rlimit_as_bytes = None;
    assert_eq!(judge(&facts).limit_source.as_deref(), Some("cgroup /train"));
}

#[test]
fn an_exception_while_it_runs_and_when_it_ends() {
    for ending in [Ending::Running, Ending::Exited(1), Ending::Signaled(6), Ending::Vanished] {
        let mut facts = facts(ending);
        facts.exception = exception(Some(Cause::OomException), true);
        let verdict = judge(&facts);
        assert_eq!(verdict.cause, Cause::OomException, "{ending:?}");
        assert!(
            verdict.sentence.ends_with("OutOfMemoryError (CUDA out of memory. Tried to allocate 2.00 GiB)."),
            "{}",
            verdict.sentence
        );
    }
}

#[test]
fn other_signals_and_plain_exits() {
    let of = |ending| judge(&facts(ending));
    let verdict = of(Ending::Signaled(15));
    assert_eq!((verdict.cause, verdict.signal), (Cause::Signal, Some(15)));
    assert!(
        verdict.sentence.contains("was terminated by SIGTERM from an unknown sender after"),
        "{}",
        verdict.sentence
    );
    assert!(of(Ending::Signaled(7)).tries[0].contains("/dev/shm"));
    assert!(of(Ending::Exited(0)).sentence.contains("exited 0"));
    let verdict = of(Ending::Exited(3));
    assert_eq!((verdict.cause, verdict.exit_code, verdict.signal), (Cause::Exit, Some(3), None));
    assert!(verdict.tries.is_empty());
    let verdict = of(Ending::Exited(143));
    assert_eq!((verdict.cause, verdict.exit_code), (Cause::Exit, Some(143)));
    assert!(verdict.sentence.contains("SIGTERM"), "{}", verdict.sentence);
}

#[test]
fn a_shell_that_reports_137_is_believed_only_with_evidence() {
    let mut facts = facts(Ending::Exited(137));
    facts.cgroups = vec![cgroup(1, 1)];
    let verdict = judge(&facts);
    assert_eq!(
        (verdict.cause, verdict.exit_code, verdict.signal),
        (Cause::CgroupOomKill, Some(137), Some(9))
    );
    facts.cgroups = vec![cgroup(0, 0)];
    let verdict = judge(&facts);
    assert_eq!((verdict.cause, verdict.signal), (Cause::Exit, None));
}

#[test]
fn vanished_process_has_an_unknown_cause_unless_its_cgroup_killed() {
    let mut facts = facts(Ending::Vanished);
    let verdict = judge(&facts);
    assert_eq!((verdict.cause, verdict.signal, verdict.exit_code), (Cause::Unknown, None, None));
    assert!(verdict.sentence.contains("its exit status was not recorded"), "{}", verdict.sentence);
    facts.cgroups = vec![cgroup(1, 1)];
    let verdict = judge(&facts);
    // The OOM killer has one way to kill, seen or not.
    assert_eq!((verdict.cause, verdict.signal), (Cause::CgroupOomKill, Some(9)));
}

#[test]
fn contradictions_are_noted() {
    // The cgroup's kills were of others: a worker died by the OOM killer, this one by hand.
    let mut others = facts(KILLED);
    others.cgroups = vec![CgroupFacts { kills_elsewhere: 2, ..cgroup(2, 2) }];
    let verdict = judge(&others);
    assert_eq!(verdict.cause, Cause::SigKill);
    assert!(has_note(&verdict, "2 OOM kills, all of other processes"), "{verdict:?}");
    // A kill is counted although usage was low: it rose between two looks.
    let mut low = facts(KILLED);
    low.cgroups = vec![CgroupFacts { usage_bytes: Some(GIB), ..cgroup(1, 1) }];
    let verdict = judge(&low);
    assert_eq!(verdict.cause, Cause::CgroupOomKill);
    assert!(has_note(&verdict, "only 6% of the limit"), "{verdict:?}");
    // The log names the pid, but the process exited by itself.
    let mut stale = facts(Ending::Exited(0));
    stale.kernel = Some(vec![kill(PID, Scope::Cgroup)]);
    let verdict = judge(&stale);
    assert_eq!(verdict.cause, Cause::Exit);
    assert!(has_note(&verdict, "used again"), "{verdict:?}");
    // An exception that was caught explains nothing that comes later.
    let mut caught = facts(KILLED);
    caught.cgroups = vec![cgroup(0, 0)];
    caught.exception = exception(Some(Cause::OomException), false);
    let verdict = judge(&caught);
    assert_eq!(verdict.cause, Cause::SigKill);
    assert!(has_note(&verdict, "continued"), "{verdict:?}");
    // A fatal exception, then SIGKILL while it unwound: the kernel decides.
    let mut both = facts(KILLED);
    both.cgroups = vec![cgroup(1, 1)];
    both.exception = exception(Some(Cause::OomException), true);
    assert_eq!(judge(&both).cause, Cause::CgroupOomKill);
    // The log knows other victims only, the counter one more: the counter wins, with less certainty.
    let mut silent = facts(KILLED);
    silent.cgroups = vec![cgroup(1, 1)];
    silent.kernel = Some(vec![kill(1, Scope::Cgroup)]);
    let verdict = judge(&silent);
    assert_eq!(verdict.cause, Cause::CgroupOomKill);
    assert!(verdict.confidence < 0.9);
}

#[test]
fn a_program_that_handles_its_failed_request_and_gives_up_failed() {
    let of = |code, seconds_before, is_device| {
        let failed_request = Some(FailedRequest { is_device, bytes: 20 << 20, seconds_before });
        judge(&DeathFacts { failed_request, has_chosen_status: true, ..facts(Ending::Exited(code)) })
    };
    let verdict = of(2, 0.1, false);
    assert_eq!((verdict.cause, verdict.ended, verdict.confidence), (Cause::MemoryError, Ended::Failed, 0.8));
    assert_eq!(
        verdict.sentence,
        "train.py (pid 4711) exited with status 2 after 41 min 12 s, 100 ms after a request for 20.00 MiB of host memory failed; it handled the error."
    );
    assert_eq!(of(2, 0.1, true).cause, Cause::OomException);
    assert_eq!(of(2, 60.0, false).ended, Ended::Deliberate, "long before it exited");
    assert_eq!(of(0, 0.1, false).ended, Ended::Completed, "it went on without");
}

#[test]
fn an_end_is_deliberate_with_evidence_only() {
    let ended = |ending: Ending, sender: Option<Sender>, has_chosen_status: bool| {
        judge(&DeathFacts { sender, has_chosen_status, ..facts(ending) }).ended
    };
    let parent = || Some(Sender::Above { pid: 7, program: None, is_parent: true });
    let supervisor = || Some(Sender::Supervisor { pid: None });
    for (ending, sender, has_chosen_status, expected) in [
        (Ending::Exited(0), None, false, Ended::Completed),
        (Ending::Exited(3), None, false, Ended::Failed),
        (Ending::Exited(3), None, true, Ended::Deliberate),
        (Ending::Exited(143), None, false, Ended::Unknown),
        (Ending::Exited(139), None, false, Ended::Failed),
        (Ending::Signaled(15), None, false, Ended::Unknown),
        (Ending::Signaled(15), parent(), false, Ended::Deliberate),
        (Ending::Signaled(15), Some(Sender::Run { pid: 8 }), false, Ended::Unknown),
        (Ending::Signaled(2), supervisor(), false, Ended::Deliberate),
        (Ending::Signaled(13), None, false, Ended::Deliberate),
        (Ending::Signaled(9), None, false, Ended::Failed),
        (Ending::Signaled(9), parent(), false, Ended::Deliberate),
        (Ending::Signaled(9), Some(Sender::Itself), false, Ended::Failed),
        (Ending::Signaled(11), parent(), false, Ended::Failed),
        (Ending::Vanished, None, false, Ended::Unknown),
        (Ending::Running, None, false, Ended::Running),
    ] {
        assert_eq!(ended(ending, sender.clone(), has_chosen_status), expected, "{ending:?} {sender:?}");
    }
    let raised = ReportedException {
        type_name: "ValueError".to_owned(),
        message: String::new(),
        cause: None,
        is_fatal: true,
    };
    let uncaught =
        DeathFacts { exception: Some(raised), has_chosen_status: true, ..facts(Ending::Exited(1)) };
    assert_eq!(judge(&uncaught).ended, Ended::Failed, "an exception is not a choice");
}
