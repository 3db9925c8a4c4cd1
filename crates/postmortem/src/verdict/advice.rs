//! What to try, best first: short lines a person can act on.
//!
//! Only what the evidence speaks for; must never advise a limit that was not measured.

use stormlog_model::format_bytes;

use super::{DeathFacts, Verdict, handled_request};
use crate::{Cause, Ended};
use stormlog_model::format_rate as rate;

const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

pub(super) fn tries(facts: &DeathFacts, verdict: &Verdict) -> Vec<String> {
    let mut tries = Vec::new();
    if verdict.cause.is_memory() {
        tries.extend(holder(facts));
    }
    match verdict.cause {
        Cause::CgroupOomKill | Cause::GlobalOomKill => {
            tries.push(growth(facts).unwrap_or_else(|| room(verdict)));
            tries.extend(gentler_end(facts, verdict));
        }
        Cause::MemoryError => tries.push(match facts.rlimit_as_bytes {
            Some(limit) => {
                format!("raise the address space limit (now {}), or hold less at once", format_bytes(limit))
            }
            None if handled_request(facts).is_some() => {
                "hold less at once, or let the error end the program: then its traceback is kept".to_owned()
            }
            None => "hold less at once: the allocation that failed is in the traceback".to_owned(),
        }),
        _ if verdict.ended == Ended::Deliberate => {}
        Cause::SigKill if facts.sender.is_some() => {}
        Cause::SigKill => {
            let who = "a scheduler's time limit, a container being stopped, a person";
            tries.push(format!("find out what sent SIGKILL: {who}"));
        }
        Cause::Signal => {
            tries.extend(failed_request(facts, verdict.signal));
            tries.extend(of_signal(verdict.signal));
        }
        Cause::OomException | Cause::Exit | Cause::Unknown => {}
    }
    tries
}

/// The largest holder is where to look first.
fn holder(facts: &DeathFacts) -> Option<String> {
    let top = facts.held_by.iter().max_by_key(|held| held.bytes)?;
    let note = top.note.as_deref().map_or(String::new(), |note| format!(", {note}"));
    Some(format!("cap what {} holds ({}{note})", top.place, format_bytes(top.bytes)))
}

fn growth(facts: &DeathFacts) -> Option<String> {
    let growth = facts.growth.filter(|growth| growth.confidence >= 0.5 && growth.bytes_per_second > 0.0)?;
    let rate = rate(growth.bytes_per_second);
    Some(format!("find what grows {rate}: a higher limit only delays the end"))
}

fn room(verdict: &Verdict) -> String {
    let less = "reduce peak memory (smaller batches, fewer workers)";
    if verdict.cause == Cause::GlobalOomKill {
        return format!("run fewer programs on this machine at once, or {less}");
    }
    let whose = verdict.limit_source.as_deref().unwrap_or("its cgroup");
    let now = verdict.limit_bytes.map_or(String::new(), |limit| format!(" (now {})", format_bytes(limit)));
    format!("raise the limit of {whose}{now}, or {less}")
}

/// A limit on address space just below the cgroup's. Not with CUDA, which reserves far more address space than it uses: the
/// limit would end it at its first call.
fn gentler_end(facts: &DeathFacts, verdict: &Verdict) -> Option<String> {
    if facts.uses_gpu != Some(false) || verdict.cause != Cause::CgroupOomKill {
        return None;
    }
    let limit = verdict.limit_bytes?;
    let below = format_bytes(limit - limit / 20).replace(' ', "");
    Some(format!("stormlog run --limit {below} …: a MemoryError with a traceback instead of the kill"))
}

/// Native code that gets no memory often ends itself, or by a pointer to nothing.
fn failed_request(facts: &DeathFacts, signal: Option<i32>) -> Option<String> {
    let limit = facts.rlimit_as_bytes.filter(|_| matches!(signal, Some(SIGABRT | SIGSEGV)))?;
    let is_near = facts.peak_vms_bytes.is_none_or(|most| most >= limit / 2);
    let text =
        format!("raise --limit (now {}): a program whose request fails often crashes", format_bytes(limit));
    is_near.then_some(text)
}

fn of_signal(signal: Option<i32>) -> Option<String> {
    let line = match signal? {
        SIGBUS => "check the space in /dev/shm and on disks with mapped files: a full one gives SIGBUS",
        SIGSEGV => "PYTHONFAULTHANDLER=1 shows the Python stack of a segmentation fault",
        SIGTERM => "find out what sent SIGTERM: a scheduler, systemd-oomd, earlyoom",
        _ => return None,
    };
    Some(line.to_owned())
}
