//! What ended the program: from the evidence to a cause, one sentence, and what to try.
//!
//! The kernel's own words come first, then its counters, then what the numbers suggest; a guess says that it is one.
//! Pure: the same facts give the same verdict. Must never name the OOM killer without evidence of it, and must never let
//! an unread counter stand for one that did not move.

mod advice;
mod facts;
pub mod kernel;
mod sentence;

pub use sentence::without_message;

pub use facts::{
    CgroupFacts, Change, DeathFacts, Ending, FailedRequest, Growth, HostFacts, ReportedException, Sender,
};

use crate::{Cause, Ended};
use kernel::{KernelKill, Scope};

const SIGKILL: i32 = 9;
const SIGABRT: i32 = 6;
const SIGPIPE: i32 = 13;
/// SIGHUP, SIGINT and SIGTERM: what users, launchers and service managers stop programs with.
const STOPS: [i32; 3] = [1, 2, 15];

/// A program that handles a failed request and gives up ends within this time; later, its exit has another reason.
const HANDLED_SECONDS: f64 = 10.0;
/// How sure it is that such a request is what made it give up.
const HANDLED_CONFIDENCE: f64 = 0.8;

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What ended it.
    pub cause: Cause,
    /// Whether that is a failure.
    pub ended: Ended,
    /// The signal, if one did; also when only a shell reported it as 128 + n.
    pub signal: Option<i32>,
    /// The exit status, if it had one.
    pub exit_code: Option<i32>,
    /// 1 where the kernel or the parent said so; less where it is inferred.
    pub confidence: f64,
    /// One sentence.
    pub sentence: String,
    /// What to try, best first.
    pub tries: Vec<String>,
    /// Evidence that contradicts the verdict or is missing from it.
    pub notes: Vec<String>,
    /// The limit that held.
    pub limit_bytes: Option<u64>,
    /// Whose: `cgroup /train`, `RLIMIT_AS`.
    pub limit_source: Option<String>,
    /// Bytes used against it.
    pub usage_bytes: Option<u64>,
}

/// A cause and how sure it is.
struct JudgedCause {
    cause: Cause,
    confidence: f64,
    /// Which of the cgroups met its limit.
    cgroup: Option<usize>,
}

/// Judges a death.
pub fn judge(facts: &DeathFacts) -> Verdict {
    let mut notes = Vec::new();
    let (signal, exit_code) = match facts.ending {
        Ending::Signaled(signal) => (Some(signal), None),
        // A shell reports a child's signal as 128 + n.
        Ending::Exited(code) if (129..160).contains(&code) => (Some(code - 128), Some(code)),
        Ending::Exited(code) => (None, Some(code)),
        Ending::Vanished | Ending::Running => (None, None),
    };
    let judged = find(facts, signal, &mut notes);
    contradictions(facts, &judged, &mut notes);
    let (limit_bytes, limit_source, usage_bytes) = limit(facts, &judged);
    let mut verdict = Verdict {
        cause: judged.cause,
        ended: ended(facts, judged.cause, signal),
        signal: match judged.cause {
            Cause::Exit => None,
            // Known by what it does, also where nothing saw how the process ended.
            Cause::GlobalOomKill | Cause::CgroupOomKill => Some(signal.unwrap_or(SIGKILL)),
            _ => signal,
        },
        exit_code,
        confidence: judged.confidence,
        sentence: String::new(),
        tries: Vec::new(),
        notes,
        limit_bytes,
        limit_source,
        usage_bytes,
    };
    verdict.sentence = sentence::sentence(facts, &verdict);
    verdict.tries = advice::tries(facts, &verdict);
    verdict
}

/// Whether an end is a failure. Only evidence makes it a deliberate one.
fn ended(facts: &DeathFacts, cause: Cause, signal: Option<i32>) -> Ended {
    let is_stop = signal.is_some_and(|signal| STOPS.contains(&signal));
    let is_in_charge = facts.sender.as_ref().is_some_and(Sender::is_in_charge);
    let has_raised = facts.exception.as_ref().is_some_and(|exception| exception.is_fatal);
    match (cause, facts.ending) {
        (_, Ending::Running) => Ended::Running,
        (Cause::Unknown, _) => Ended::Unknown,
        (Cause::Exit, Ending::Exited(0)) => Ended::Completed,
        (Cause::Exit, _) if has_raised => Ended::Failed,
        (Cause::Exit, _) if facts.has_chosen_status => Ended::Deliberate,
        // A shell, or a handler, that reports the signal it was stopped with.
        (Cause::Exit, _) if is_stop => {
            if is_in_charge {
                Ended::Deliberate
            } else {
                Ended::Unknown
            }
        }
        // The kernel sends it to a program whose reader has closed the pipe.
        (Cause::Signal, _) if signal == Some(SIGPIPE) => Ended::Deliberate,
        (Cause::Signal, _) if is_stop => {
            if is_in_charge {
                Ended::Deliberate
            } else {
                Ended::Unknown
            }
        }
        (Cause::SigKill, _) if is_in_charge => Ended::Deliberate,
        _ => Ended::Failed,
    }
}

fn find(facts: &DeathFacts, signal: Option<i32>, notes: &mut Vec<String>) -> JudgedCause {
    let sure = |cause| JudgedCause { cause, confidence: 1.0, cgroup: None };
    let exception = facts.exception.as_ref().filter(|exception| exception.is_fatal);
    let exception = exception.and_then(|exception| exception.cause);
    match facts.ending {
        Ending::Signaled(SIGKILL) => killed(facts, notes),
        // An uncaught C++ exception ends in abort().
        Ending::Signaled(SIGABRT) if exception.is_some() => sure(exception.unwrap_or(Cause::OomException)),
        Ending::Signaled(_) => sure(Cause::Signal),
        Ending::Running => sure(exception.or(reported(facts)).unwrap_or(Cause::Exit)),
        Ending::Exited(_) if exception.is_some() => sure(exception.unwrap_or(Cause::OomException)),
        Ending::Exited(_) if handled_request(facts).is_some() => {
            let is_device = handled_request(facts).is_some_and(|request| request.is_device);
            let cause = if is_device { Cause::OomException } else { Cause::MemoryError };
            JudgedCause { cause, confidence: HANDLED_CONFIDENCE, cgroup: None }
        }
        Ending::Exited(_) if signal == Some(SIGKILL) => {
            // Only evidence of a kill makes more of it than the exit it is.
            let judged = killed(facts, notes);
            if judged.cause == Cause::SigKill { sure(Cause::Exit) } else { judged }
        }
        Ending::Exited(_) => sure(Cause::Exit),
        Ending::Vanished => match exception {
            Some(cause) => JudgedCause { cause, confidence: 0.9, cgroup: None },
            None => {
                let judged = killed(facts, notes);
                if judged.cause == Cause::SigKill {
                    notes.push("an exit, a signal and a stopped machine look the same afterwards".to_owned());
                    return JudgedCause { cause: Cause::Unknown, confidence: 1.0, cgroup: None };
                }
                // The number in the log may have been used again; counters and usage say less of a process that was not seen to end.
                let trust = if kernel_report(facts).is_some() { 0.97 } else { 0.95 };
                JudgedCause { confidence: judged.confidence * trust, ..judged }
            }
        },
    }
}

/// The request that got no memory just before the program exited with a status of its own and no uncaught exception: it handled the error and gave up.
fn handled_request(facts: &DeathFacts) -> Option<&FailedRequest> {
    let is_exit = matches!(facts.ending, Ending::Exited(code) if code != 0 && !(129..160).contains(&code));
    let has_raised = facts.exception.as_ref().is_some_and(|exception| exception.is_fatal);
    let request = facts.failed_request.as_ref()?;
    (is_exit && !has_raised && request.seconds_before <= HANDLED_SECONDS).then_some(request)
}

fn reported(facts: &DeathFacts) -> Option<Cause> {
    facts.exception.as_ref().and_then(|exception| exception.cause)
}

/// What sent a SIGKILL: the kernel for a cgroup, the kernel for the machine, or a process.
fn killed(facts: &DeathFacts, notes: &mut Vec<String>) -> JudgedCause {
    let log = facts.kernel.as_deref();
    if let Some(kill) = kernel_report(facts) {
        return match kill.scope {
            Some(Scope::Global) => JudgedCause { cause: Cause::GlobalOomKill, confidence: 1.0, cgroup: None },
            _ => JudgedCause { cause: Cause::CgroupOomKill, confidence: 1.0, cgroup: named(facts, kill) },
        };
    }
    // The log may have rolled over or be of another pid namespace, so its silence is weak evidence.
    let counted = |cgroup: &CgroupFacts| Some((cgroup.oom_kill.rise()?, cgroup.kills_elsewhere));
    if let Some((rise, elsewhere)) = facts.cgroups.iter().find_map(counted) {
        if rise > elsewhere {
            let met = facts.cgroups.iter().position(|cgroup| cgroup.oom.rose());
            let silent = log.is_some_and(|kills| !kills.is_empty());
            let confidence = if silent { 0.8 } else { 0.95 };
            let host_is_full = is_host_full(facts);
            // Version 1 has no sure count of met limits: there the limit itself decides.
            let is_uncounted = facts.cgroups.iter().all(|cgroup| cgroup.oom.rise().is_none());
            let nearest = limiting(facts).filter(|at| is_reached(&facts.cgroups[*at]).unwrap_or(true));
            return match met {
                Some(cgroup) => JudgedCause { cause: Cause::CgroupOomKill, confidence, cgroup: Some(cgroup) },
                None if is_uncounted && nearest.is_some() && !host_is_full => {
                    JudgedCause { cause: Cause::CgroupOomKill, confidence: confidence * 0.9, cgroup: nearest }
                }
                None => {
                    JudgedCause { cause: Cause::GlobalOomKill, confidence: confidence * 0.9, cgroup: None }
                }
            };
        }
        if rise > 0 {
            notes.push(format!("the cgroup had {rise} OOM kills, all of other processes"));
        }
        return JudgedCause { cause: Cause::SigKill, confidence: 0.95, cgroup: None };
    }
    match facts.host.oom_kill.rise() {
        Some(0) => return JudgedCause { cause: Cause::SigKill, confidence: 0.95, cgroup: None },
        Some(_) if (is_host_full(facts) || is_large(facts)) && facts.sender.is_none() => {
            return JudgedCause { cause: Cause::GlobalOomKill, confidence: 0.7, cgroup: None };
        }
        _ => {}
    }
    guess(facts, notes)
}

/// Without the kernel's word: only usage at the limit itself makes a kill an OOM kill, and then it is a guess.
fn guess(facts: &DeathFacts, notes: &mut Vec<String>) -> JudgedCause {
    let at_limit = limiting(facts).filter(|at| is_reached_soon(&facts.cgroups[*at]));
    if let Some(at) = at_limit.filter(|_| facts.sender.is_none()) {
        let note = match facts.cgroups[at].soon_bytes {
            Some(_) => "the cgroup's OOM counters are gone: inferred from its last recorded usage and growth",
            None => "the cgroup's OOM counters could not be read: inferred from its usage",
        };
        notes.push(note.into());
        return JudgedCause { cause: Cause::CgroupOomKill, confidence: 0.6, cgroup: Some(at) };
    }
    if is_host_full(facts) && facts.sender.is_none() {
        notes.push("no OOM counter could be read: inferred from the machine's available memory".into());
        return JudgedCause { cause: Cause::GlobalOomKill, confidence: 0.5, cgroup: None };
    }
    if facts.kernel.is_none() {
        notes.push("neither OOM counters nor the kernel log could be read".into());
    }
    JudgedCause {
        cause: Cause::SigKill,
        confidence: if facts.sender.is_some() { 1.0 } else { 0.7 },
        cgroup: None,
    }
}

/// The kernel's own report of this kill.
fn kernel_report(facts: &DeathFacts) -> Option<&KernelKill> {
    facts.kernel.as_deref()?.iter().rev().find(|kill| kill.pid == facts.pid)
}

/// The cgroup that the kernel named, among those the process was known to be in. It may have moved to another since, whose
/// limit only the report knows.
fn named(facts: &DeathFacts, kill: &KernelKill) -> Option<usize> {
    // A container sees its groups by another root than the kernel does.
    let is_same = |path: &str, seen: &str| path.ends_with(seen) && seen != "/" || path == seen;
    let is_it = |cgroup: &CgroupFacts| kill.cgroup.as_deref().is_some_and(|path| is_same(path, &cgroup.path));
    let position = facts.cgroups.iter().position(|cgroup| is_it(cgroup) && cgroup.limit_bytes.is_some());
    position.or_else(|| kill.limit_bytes.is_none().then(|| limiting(facts)).flatten())
}

/// The cgroup whose limit is nearest.
fn limiting(facts: &DeathFacts) -> Option<usize> {
    let limited = facts.cgroups.iter().enumerate().filter(|(_, cgroup)| cgroup.limit_bytes.is_some());
    let key = |cgroup: &CgroupFacts| {
        cgroup.limit_bytes.map(|limit| limit.saturating_sub(cgroup.usage_bytes.unwrap_or(0)))
    };
    limited.min_by_key(|(_, cgroup)| key(cgroup)).map(|(at, _)| at)
}

/// Whether its usage was at the limit itself; `None` when unknown.
fn is_reached(cgroup: &CgroupFacts) -> Option<bool> {
    share(cgroup).map(|share| share >= 0.97)
}

/// Whether it was at the limit when it was last looked at, or grew so that it was there before the next look.
fn is_reached_soon(cgroup: &CgroupFacts) -> bool {
    let soon = CgroupFacts { usage_bytes: cgroup.soon_bytes.or(cgroup.usage_bytes), ..cgroup.clone() };
    is_reached(&soon) == Some(true)
}

fn share(cgroup: &CgroupFacts) -> Option<f64> {
    let limit = cgroup.limit_bytes.filter(|limit| *limit > 0)?;
    Some(cgroup.usage_bytes? as f64 / limit as f64)
}

/// Whom the killer takes: a process with a good part of the machine's memory.
fn is_large(facts: &DeathFacts) -> bool {
    facts.peak_rss_bytes.zip(facts.host.total_bytes).is_some_and(|(peak, total)| peak >= total / 4)
}

/// Less than a thirtieth available is what precedes a global kill.
fn is_host_full(facts: &DeathFacts) -> bool {
    match (facts.host.available_bytes, facts.host.total_bytes) {
        (Some(available), Some(total)) => available < total / 32,
        _ => false,
    }
}

fn limit(facts: &DeathFacts, judged: &JudgedCause) -> (Option<u64>, Option<String>, Option<u64>) {
    let of_cgroup = |at: usize| {
        let cgroup = &facts.cgroups[at];
        (cgroup.limit_bytes, Some(format!("cgroup {}", cgroup.path)), cgroup.usage_bytes)
    };
    match judged.cause {
        Cause::GlobalOomKill => {
            let used = facts.host.total_bytes.zip(facts.host.available_bytes);
            let used = used.map(|(total, available)| total.saturating_sub(available));
            (facts.host.total_bytes, Some("the machine".to_owned()), used)
        }
        Cause::MemoryError if facts.rlimit_as_bytes.is_some() => {
            (facts.rlimit_as_bytes, Some("RLIMIT_AS".to_owned()), facts.peak_vms_bytes)
        }
        _ => match (judged.cgroup, kernel_report(facts).filter(|kill| kill.limit_bytes.is_some())) {
            (None, Some(kill)) if judged.cause == Cause::CgroupOomKill => {
                let name = kill.cgroup.as_deref().map(|path| format!("cgroup {path}"));
                (kill.limit_bytes, name, kill.usage_bytes)
            }
            (at, _) => at.or_else(|| limiting(facts)).map_or((None, None, None), of_cgroup),
        },
    }
}

/// What does not fit the verdict is said, not dropped.
fn contradictions(facts: &DeathFacts, judged: &JudgedCause, notes: &mut Vec<String>) {
    if judged.cause == Cause::CgroupOomKill
        && let Some(share) =
            judged.cgroup.and_then(|at| share(&facts.cgroups[at])).filter(|share| *share < 0.8)
    {
        let percent = share * 100.0;
        notes.push(format!(
            "the last sample had only {percent:.0}% of the limit in use: memory rose after it"
        ));
    }
    if judged.cause == Cause::CgroupOomKill && facts.sender.is_some() {
        notes.push("a process also sent it SIGKILL; the kernel's record decides".into());
    }
    let kills = facts.kernel.as_deref().unwrap_or_default();
    let named = kills.iter().any(|kill| kill.pid == facts.pid);
    if named && !matches!(judged.cause, Cause::CgroupOomKill | Cause::GlobalOomKill) {
        let why = "the process did not end by SIGKILL: the pid was used again";
        notes.push(format!("the kernel reports an OOM kill of this pid, but {why}"));
    }
    if let Some(exception) = facts.exception.as_ref().filter(|exception| exception.cause.is_some())
        && !matches!(judged.cause, Cause::OomException | Cause::MemoryError)
    {
        notes.push(format!("it reported {} before and continued", exception.type_name));
    }
}
