//! The end of a run: what is left of its processes is closed, its record is written, its captures are completed.
//!
//! Nothing here can fail the run any more: what cannot be written is left out, and the program's exit status is kept. How a single death is
//! judged is in `evidence.rs`.

use stormlog_catalog::run::{exceptions, unfinished_captures};
use stormlog_pidfd::Standby;
use stormlog_postmortem::Cause;

use crate::evidence::RunEvidence;
use crate::heap::{WaitPhase, WaitReporter, complete_all, is_small, wait_for_ended};
use crate::lineage::Delivered;
use crate::outcome::{Ended, ProcessOutcome, RunOutcome};
use crate::sampler::SamplerOutput;
use crate::termination::TerminationLog;
use crate::tracked_process::TrackedProcess;

/// The kernel counts one peak for the program and the descendants it waited for: whose it is, the program's or a descendant's. A descendant may have grown
/// by some megabytes after it was last looked at.
fn share_exit_peak(exit_peak: Option<u64>, seen: u64, others_peak: u64) -> (Option<u64>, Option<u64>) {
    const LATE_GROWTH: u64 = 16 << 20;
    let is_own = |peak: u64| seen >= others_peak || peak > others_peak + others_peak / 8 + LATE_GROWTH;
    match exit_peak {
        Some(peak) if is_own(peak) => (Some(peak), None),
        peak => (None, peak.filter(|peak| *peak > others_peak)),
    }
}

/// Ends what is left of a run and returns its outcome.
///
/// `exit_peak` is the most that the program, or a descendant it waited for, had resident, as the kernel counted it.
pub(crate) fn finish(
    output: SamplerOutput,
    pid: u32,
    ended: Ended,
    ended_ns: u64,
    exit_peak: Option<u64>,
    delivered: Option<Delivered>,
) -> RunOutcome {
    let SamplerOutput {
        mut evidence,
        at_end,
        alive,
        peak_total_rss,
        lost_records,
        limit_bytes,
        mut termination,
    } = output;
    evidence.delivered = delivered;
    let exit_peak = exit_peak.filter(|peak| Some(*peak) > evidence.own_peak_rss);
    let duration_ns = u64::try_from(evidence.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    if let Some(captures) = &mut evidence.captures {
        evidence.wait_reporter =
            Some(WaitReporter::after(evidence.started.elapsed(), evidence.heap_finish.report));
        captures.halt();
    }
    let mut processes = Vec::new();
    let mut left_behind = Vec::new();
    let (main, others): (Vec<TrackedProcess>, Vec<TrackedProcess>) =
        alive.into_iter().partition(|tracked| tracked.pid == pid);
    let seen = main.first().and_then(|tracked| tracked.session.seen().peak_rss).unwrap_or(0);
    let (own_peak, descendants_peak) = share_exit_peak(exit_peak, seen, evidence.others_peak_rss);
    for mut tracked in others.into_iter().chain(main) {
        if tracked.pid == pid {
            tracked.session.raise_peak(own_peak);
            processes.push(evidence.main_ended(tracked, ended, ended_ns, &at_end));
        } else {
            left_behind.push(evidence.outlived(tracked, ended_ns));
        }
    }
    processes.append(&mut evidence.children);
    processes.append(&mut left_behind);
    let largest =
        processes.iter_mut().filter(|process| process.pid != pid).max_by_key(|process| process.peak_rss);
    if let Some(largest) = largest {
        largest.peak_rss = largest.peak_rss.max(descendants_peak);
    }
    if let Some(log) = &mut termination {
        settle_message(log, ended, processes.first());
    }
    exceptions::bound(&evidence.run.exceptions(), |_| false);
    evidence.read_heaps(&mut processes);
    let peak_rss = processes.iter().map(|process| process.peak_rss).max().flatten().max(exit_peak);
    evidence.record.insert("peak_rss_bytes".into(), peak_rss.into());
    evidence.write_record(ended, ended_ns, &processes);
    evidence.run.forget_ends();
    evidence.complete_heaps();
    // The limit that a death reached is the limit to report.
    let met = processes.first().filter(|main| main.cause.is_some_and(Cause::is_memory));
    let met = met.and_then(|main| main.limit_bytes);
    let limit_bytes = met.or_else(|| [limit_bytes, evidence.limit_as].into_iter().flatten().min());
    RunOutcome {
        directory: evidence.run.path().to_owned(),
        program: evidence.program,
        ended,
        duration_ns,
        processes,
        peak_rss,
        peak_total_rss: peak_total_rss.max(peak_rss.unwrap_or(0)),
        limit_bytes,
        lost_records,
        warnings: evidence.warnings.into(),
        unrecordable: evidence.unrecordable,
        termination,
        shipping: None,
    }
}

/// An exit with 0 leaves no termination message. For any other end the verdict is written at once: the complete answer takes time that a container may not have.
fn settle_message(log: &mut TerminationLog, ended: Ended, main: Option<&ProcessOutcome>) {
    if ended.is_clean() {
        log.clear();
    } else if let Some(sentence) = main.and_then(|main| main.verdict.clone()) {
        log.end(&[sentence]);
    }
}

impl RunEvidence {
    /// What the captures of children come to, as far as that is not known yet.
    fn read_heaps(&mut self, processes: &mut [ProcessOutcome]) {
        let (Some(captures), Some(wait_reporter)) = (&self.captures, &mut self.wait_reporter) else { return };
        if !self.heap_finish.read {
            return;
        }
        let others = processes.iter_mut().skip(1).filter(|process| process.heap.is_none());
        let others: Vec<&mut ProcessOutcome> = others.collect();
        let directories = others.iter().map(|process| process.directory.clone()).collect();
        let mut digests =
            wait_reporter.wait(WaitPhase::Reading, captures.digests(directories)).unwrap_or_default();
        for process in others {
            process.heap = digests.remove(&process.directory);
        }
    }

    /// Has the captures completed: by the finisher, or here where there can be none.
    fn complete_heaps(&mut self) {
        let Some(captures) = self.captures.take() else { return };
        captures.end();
        let run = self.run.path().to_owned();
        let Some(mut wait_reporter) = self.wait_reporter.take() else { return };
        let left = unfinished_captures(&run);
        if left.is_empty() {
            return;
        }
        let (options, finisher) = (self.heap_options.clone(), self.finisher.take());
        if self.heap_finish.is_done_here || finisher.is_none() || is_small(&left) {
            let directory = run.clone();
            let is_done =
                wait_reporter.wait(WaitPhase::Compressing, move || complete_all(&directory, &options));
            // Two must never work on one capture: a thread that was not waited for continues until this process ends.
            if is_done.is_none() || unfinished_captures(&run).is_empty() {
                return;
            }
        }
        // What is left is large, or is written by processes that still run.
        if let Some(finisher) = finisher.and_then(Standby::begin)
            && self.heap_finish.waits
        {
            wait_reporter.wait(WaitPhase::Compressing, move || wait_for_ended(&run, &finisher));
        }
    }

    fn write_record(&mut self, ended: Ended, ended_ns: u64, processes: &[ProcessOutcome]) {
        let (exit_code, signal) = match ended {
            Ended::Code(code) => (Some(code), None),
            Ended::Signal(signal) => (None, Some(signal)),
            Ended::Unknown => (None, None),
        };
        let main = processes.first();
        let dropped = self.dropped_sessions;
        let warnings: Vec<String> = self.warnings.iter().cloned().collect();
        let clean = ended == Ended::Code(0);
        let rows: Vec<serde_json::Value> = processes
            .iter()
            .map(|process| {
                serde_json::json!({
                    "pid": process.pid, "program": process.program, "worker": process.worker, "session_id": process.session_id, "peak_rss_bytes": process.peak_rss,
                    "cause": process.cause.map(|cause| cause.as_str()), "verdict": process.verdict,
                    "ended": process.judged.as_str(), "confidence": process.confidence,
                    "heap_peak_bytes": process.heap.as_ref().map(|heap| heap.peak_bytes),
                })
            })
            .collect();
        let deaths: serde_json::Map<String, serde_json::Value> = self
            .deaths
            .iter()
            .filter_map(|(cause, count)| Some((cause.as_str().to_owned(), serde_json::to_value(count).ok()?)))
            .collect();
        let mut put = |key: &str, value: serde_json::Value| self.record.insert(key.to_owned(), value);
        put("status", if clean { "completed" } else { "interrupted" }.into());
        put("ended_at_ns", ended_ns.into());
        put("exit_code", exit_code.into());
        put("signal", signal.into());
        put("cause", main.and_then(|main| main.cause).map(|cause| cause.as_str()).into());
        put("verdict", main.and_then(|main| main.verdict.clone()).into());
        put("processes", rows.into());
        put("deaths", deaths.into());
        put("sessions_dropped", dropped.into());
        put("warnings", warnings.into());
        // A run directory that can no longer be written keeps what it had.
        let _ = self.run.write(&self.record);
    }
}

#[cfg(test)]
mod tests {
    use super::share_exit_peak;

    const MIB: u64 = 1 << 20;

    #[test]
    fn peak_that_the_kernel_counted_is_given_to_the_process_that_can_have_had_it() {
        let share = |exit, seen, others| share_exit_peak(Some(exit * MIB), seen * MIB, others * MIB);
        assert_eq!(share(223, 20, 222), (None, Some(223 * MIB)), "a child grew after the last look");
        assert_eq!(share(900, 20, 222), (Some(900 * MIB), None), "more than a child can have grown");
        assert_eq!(share(101, 100, 5), (Some(101 * MIB), None), "the program was the largest");
        assert_eq!(share(200, 20, 222), (None, None), "the largest was not waited for");
        assert_eq!(share_exit_peak(None, 0, 0), (None, None));
    }
}
