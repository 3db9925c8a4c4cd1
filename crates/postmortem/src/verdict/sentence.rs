//! The one sentence: the process, what ended it, after how long, and the limit it reached.
//!
//! Sizes as people read them. Must never state as known what was inferred.

use std::borrow::Cow;

use stormlog_model::format_bytes;

use super::{DeathFacts, Ending, Verdict, handled_request};
use crate::{Cause, Ended, signal_name};
use stormlog_model::{format_duration as duration, format_rate as rate};

/// Messages are quoted up to here.
const MAX_QUOTE: usize = 200;
/// Characters of a message that identify it in a sentence.
const START: usize = 24;

pub(super) fn sentence(facts: &DeathFacts, verdict: &Verdict) -> String {
    let who = format!("{} (pid {})", facts.program, facts.pid);
    let after = facts.ran_seconds.map_or(String::new(), |seconds| format!(" after {}", duration(seconds)));
    let sure = if verdict.confidence < 0.75 { "probably " } else { "" };
    let signal = verdict.signal.map_or_else(|| "a signal".to_owned(), signal_name);
    if let (Some(request), true) = (handled_request(facts), verdict.cause.is_memory()) {
        let memory = if request.is_device { "device" } else { "host" };
        return format!(
            "{who} exited with status {}{after}, {} after a request for {} of {memory} memory failed; it handled the error.",
            verdict.exit_code.unwrap_or(1),
            duration(request.seconds_before),
            format_bytes(request.bytes),
        );
    }
    match verdict.cause {
        Cause::CgroupOomKill => {
            let name = match verdict.limit_source.as_deref() {
                // Only inside a container has the root of what is visible a limit.
                Some("cgroup /") => "its container",
                source => source.unwrap_or("its cgroup"),
            };
            let limit =
                known(verdict.limit_bytes, " reached its limit of ").unwrap_or(" ran out of memory".into());
            let usage = at_last_look(facts, verdict);
            format!("{who} was {sure}killed by the kernel's OOM killer{after}: {name}{limit}{usage}.")
        }
        Cause::GlobalOomKill => {
            let total = known(verdict.limit_bytes, " of ").unwrap_or_default();
            let rss = known(facts.last_rss_bytes, "; it held ").unwrap_or_default();
            format!(
                "{who} was {sure}killed by the kernel's OOM killer{after}: \
                 the machine ran out of its memory{total}{rss}{}.",
                growing(facts)
            )
        }
        Cause::Unknown => {
            let last = known(facts.last_rss_bytes, "; ")
                .map_or(String::new(), |text| text + " resident at the last sample");
            format!("{who} ended{after}; its exit status was not recorded; nothing shows an OOM kill{last}.")
        }
        Cause::SigKill => match &facts.sender {
            Some(sender) => {
                let last =
                    if verdict.ended == Ended::Failed { at_last_look(facts, verdict) } else { String::new() };
                format!("{who} was killed with SIGKILL by {}{after}{last}.", sender.words())
            }
            None => format!(
                "{who} was {sure}killed with SIGKILL{after}{}; another process sent it: {}.",
                at_last_look(facts, verdict),
                no_oom_kill(facts)
            ),
        },
        Cause::Signal => match (&facts.sender, verdict.ended) {
            (Some(sender), Ended::Deliberate) => {
                format!("{who} was stopped with {signal} by {}{after}.", sender.words())
            }
            (Some(sender), _) => format!("{who} was terminated by {signal} from {}{after}.", sender.words()),
            (None, Ended::Unknown) => format!(
                "{who} was terminated by {signal} from an unknown sender{after}{}.",
                at_last_look(facts, verdict)
            ),
            (None, _) => format!("{who} was terminated by {signal}{after}{}.", at_last_look(facts, verdict)),
        },
        Cause::MemoryError => match facts.rlimit_as_bytes {
            Some(limit) => {
                // Far below its limit a program meets it with one large request.
                let is_far = facts.peak_vms_bytes.is_some_and(|most| most < limit / 2);
                let how = if is_far { "one request was too large for the" } else { "it reached the" };
                let vms = known(facts.peak_vms_bytes, ", at most ")
                    .map_or(String::new(), |text| text + " of address space were seen in use");
                format!(
                    "{who} raised MemoryError{after}: {how} address space limit (RLIMIT_AS) of {}{vms}{}.",
                    format_bytes(limit),
                    quoted(facts)
                )
            }
            None => {
                // The last look may come when the exception has released everything.
                let most = known(facts.peak_rss_bytes, ", ").map(|text| text + " resident at most");
                let most = most.unwrap_or_else(|| at_last_look(facts, verdict));
                format!("{who} raised MemoryError{after}{}{most}.", quoted(facts))
            }
        },
        Cause::OomException => {
            let name =
                facts.exception.as_ref().map_or("an out-of-memory error", |exception| &exception.type_name);
            format!("{who} ran out of memory{after}: {name}{}.", quoted(facts))
        }
        Cause::Exit => match (facts.ending, verdict.exit_code) {
            (Ending::Running, _) => format!("{who} is still running{after}."),
            (_, Some(0)) => format!("{who} exited 0{after}."),
            (_, Some(code @ 129..160)) => {
                format!("{who} exited with status {code} (128 + {}){after}.", signal_name(code - 128))
            }
            (_, Some(code)) if verdict.ended == Ended::Deliberate => {
                format!("{who} called sys.exit({code}){after}.")
            }
            (_, Some(code)) => format!("{who} exited with status {code}{after}."),
            (_, None) => format!("{who} ended{after}."),
        },
    }
}

/// The evidence that the kernel's OOM killer was not involved, as far as it could be read.
fn no_oom_kill(facts: &DeathFacts) -> &'static str {
    let has_counters = facts.cgroups.iter().any(|cgroup| cgroup.oom_kill.after.is_some());
    match (facts.kernel.is_some(), has_counters) {
        (true, true) => "neither the kernel's log nor the cgroup's counters show an OOM kill of it",
        (true, false) => "the kernel's log shows no OOM kill of it",
        (false, true) => "the cgroup's counters show no OOM kill of it",
        (false, false) => "nothing shows an OOM kill of it",
    }
}

fn known(bytes: Option<u64>, before: &str) -> Option<String> {
    Some(format!("{before}{}", format_bytes(bytes?)))
}

fn at_last_look(facts: &DeathFacts, verdict: &Verdict) -> String {
    let usage = match verdict.usage_bytes {
        Some(_) => known(verdict.usage_bytes, ", ").map(|text| text + " in use at the last sample"),
        None => known(facts.last_rss_bytes, ", ").map(|text| text + " resident at the last sample"),
    };
    usage.unwrap_or_default() + &growing(facts)
}

fn growing(facts: &DeathFacts) -> String {
    let growth = facts.growth.filter(|growth| growth.confidence >= 0.5 && growth.bytes_per_second > 0.0);
    growth.map_or(String::new(), |growth| format!(", growing {}", rate(growth.bytes_per_second)))
}

/// The first line of the exception's message.
fn quoted(facts: &DeathFacts) -> String {
    let message = facts.exception.as_ref().map_or("", |exception| exception.message.as_str());
    let line = message.lines().next().unwrap_or("").trim();
    if line.is_empty() {
        return String::new();
    }
    let cut: String = line.chars().take(MAX_QUOTE).collect();
    let dots = if cut.len() < line.len() { "…" } else { "" };
    format!(" ({}{dots})", cut.trim_end_matches('.'))
}

/// The sentence without the exception's message, for a page that shows the message on a line of its own.
#[must_use]
pub fn without_message<'a>(sentence: &'a str, message: &str) -> Cow<'a, str> {
    let start: String = message.trim().chars().take(START).collect();
    match sentence.find(&format!(" ({start}")).filter(|_| !start.is_empty()) {
        Some(at) => Cow::Owned(format!("{}.", &sentence[..at])),
        None => Cow::Borrowed(sentence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_has_its_own_line_is_left_out() {
        let message =
            "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 139.80 GiB";
        let sentence = "train.py ran out of memory after 5.1 s: torch.OutOfMemoryError (CUDA out of memory. Tried to all…).";
        let short = "train.py ran out of memory after 5.1 s: torch.OutOfMemoryError.";
        assert_eq!(without_message(sentence, message), short);
        assert_eq!(without_message(short, message), short);
        assert_eq!(without_message(sentence, ""), sentence);
    }
}
