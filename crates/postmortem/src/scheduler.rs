//! What a scheduler or a service manager reports of a death: lines of SLURM in a job's output, and the result that systemd hands to `ExecStopPost=`. Evidence beside
//! the kernel's; pure. Must never take a line for evidence that a program could not have got from SLURM by chance: the whole form must match.

use serde::Serialize;

use crate::Cause;

/// Most reports that are kept.
const MOST: usize = 16;

/// A report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchedulerReport {
    /// `slurm` or `systemd`.
    pub scheduler: &'static str,
    /// What it reported.
    pub text: String,
    /// Whether that is a kill by the kernel's OOM killer.
    pub is_oom_kill: bool,
    /// The job, where the line names it.
    pub job_id: Option<String>,
}

/// The lines of SLURM in a job's output. Those that name another job than `job_id` are left out.
///
/// ```text
/// slurmstepd: error: Detected 1 oom_kill event in StepId=42.0. Some of the step tasks have been OOM Killed.
/// slurmstepd-node1: error: Detected 1 oom-kill event(s) in StepId=42.0 cgroup. Some of your processes may have been killed …
/// srun: error: node1: task 0: Out Of Memory
/// slurmstepd: error: *** STEP 42.0 ON node1 CANCELLED AT 2026-11-16T12:00:00 DUE TO TIME LIMIT ***
/// ```
#[must_use]
pub fn slurm_reports(output: &str, job_id: Option<&str>) -> Vec<SchedulerReport> {
    let reports = output.lines().filter_map(slurm_line);
    let is_wanted = |report: &SchedulerReport| match (report.job_id.as_deref(), job_id) {
        (Some(named), Some(wanted)) => named == wanted,
        _ => true,
    };
    let mut found: Vec<SchedulerReport> = Vec::new();
    for report in reports.filter(is_wanted) {
        if found.len() < MOST && !found.contains(&report) {
            found.push(report);
        }
    }
    found
}

fn slurm_line(line: &str) -> Option<SchedulerReport> {
    let report = |text: &str, is_oom_kill, job_id: Option<&str>| {
        let job_id = job_id.map(str::to_owned);
        Some(SchedulerReport { scheduler: "slurm", text: text.to_owned(), is_oom_kill, job_id })
    };
    // A program may have ended its last line without a line end.
    let from = ["slurmstepd", "srun"].iter().filter_map(|name| line.find(name)).min()?;
    let (source, text) = line[from..].split_once(": error: ")?;
    // Newer versions name the node: `slurmstepd-node1`.
    if source.contains([' ', ':']) {
        return None;
    }
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("Detected ") {
        let (count, rest) = rest.split_once(' ')?;
        let is_oom = ["oom-kill event", "oom_kill event"].iter().any(|word| rest.starts_with(word));
        let step = rest.split_once("StepId=")?.1;
        let step = step.split([' ', ',']).next().unwrap_or_default().trim_end_matches('.');
        let job = step.split('.').next().filter(|job| !job.is_empty());
        count.parse::<u64>().ok().filter(|count| is_oom && *count > 0)?;
        let events = if count == "1" { "event" } else { "events" };
        return report(&format!("{count} oom-kill {events} in step {step}"), true, job);
    }
    if let Some((task, "Out Of Memory")) = text.rsplit_once(": ") {
        return task.contains("task ").then(|| report(text, true, None))?;
    }
    let cancelled = text.strip_prefix("*** ").and_then(|text| text.strip_suffix(" ***"))?;
    let mut words = cancelled.split(' ');
    let (kind, step) = (words.next()?, words.next()?);
    let is_end = matches!(kind, "STEP" | "JOB") && cancelled.contains("CANCELLED");
    is_end.then(|| report(cancelled, false, step.split('.').next()))?
}

/// What systemd passes to the commands of `ExecStopPost=`: `$SERVICE_RESULT`, `$EXIT_CODE` and `$EXIT_STATUS`.
#[must_use]
pub fn systemd_report(result: &str, code: Option<&str>, status: Option<&str>) -> Option<SchedulerReport> {
    if result.is_empty() {
        return None;
    }
    let how: Vec<&str> = [code, status].into_iter().flatten().filter(|word| !word.is_empty()).collect();
    let how = if how.is_empty() { String::new() } else { format!(" ({})", how.join(", ")) };
    Some(SchedulerReport {
        scheduler: "systemd",
        text: format!("the service ended with result {result}{how}"),
        is_oom_kill: result == "oom-kill",
        job_id: None,
    })
}

/// What the reports add to a verdict whose cause is this; `None` where they agree with it.
#[must_use]
pub fn disagreement(cause: Option<Cause>, reports: &[SchedulerReport]) -> Option<String> {
    let report = reports.iter().find(|report| report.is_oom_kill)?;
    match cause {
        Some(Cause::SigKill | Cause::Unknown) | None => Some(format!(
            "{} counted an OOM kill that the supervisor could not see: the kernel's OOM killer most likely ended it",
            report.scheduler
        )),
        Some(Cause::Exit | Cause::Signal) => {
            Some(format!("{} counted an OOM kill of another process of the job", report.scheduler))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "step 7 loss 0.1slurmstepd: error: Detected 1 oom_kill event in StepId=42.0. Some of the step tasks have been OOM Killed.
srun: error: node1: task 0: Out Of Memory
srun: error: node1: task 0: Out Of Memory
slurmstepd-node1: error: Detected 2 oom-kill event(s) in StepId=41.batch cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.
slurmstepd: error: *** STEP 42.0 ON node1 CANCELLED AT 2026-11-16T12:00:00 DUE TO TIME LIMIT ***
";

    #[test]
    fn lines_of_slurm_are_read_once_and_of_this_job_only() {
        let found = slurm_reports(OUTPUT, Some("42"));
        let texts: Vec<&str> = found.iter().map(|report| report.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "1 oom-kill event in step 42.0",
                "node1: task 0: Out Of Memory",
                "STEP 42.0 ON node1 CANCELLED AT 2026-11-16T12:00:00 DUE TO TIME LIMIT",
            ]
        );
        assert_eq!(found.iter().map(|report| report.is_oom_kill).collect::<Vec<_>>(), [true, true, false]);
        let all = slurm_reports(OUTPUT, None);
        assert!(all.iter().any(|report| report.text == "2 oom-kill events in step 41.batch"), "{all:#?}");
    }

    #[test]
    fn other_lines_are_not_evidence() {
        for line in [
            "Out Of Memory",
            "srun: error: ",
            "slurmstepd: error: Detected",
            "slurmstepd is not here: error: Detected 1 oom-kill event(s) in StepId=1.0",
            "slurmstepd: error: Detected many oom-kill event(s) in StepId=1.0",
            "slurmstepd: error: Detected 0 oom-kill event(s) in StepId=1.0",
            "slurmstepd: error: Detected 3 errors in StepId=1.0",
            "srun: error: node1: Out Of Memory",
            "srun: error: *** ***",
        ] {
            assert_eq!(slurm_reports(line, None), [], "{line}");
        }
    }

    #[test]
    fn oom_kill_that_only_the_scheduler_saw_is_added_to_the_verdict() {
        let reports = systemd_report("oom-kill", Some("killed"), Some("KILL"));
        let reports: Vec<SchedulerReport> = reports.into_iter().collect();
        assert_eq!(reports[0].text, "the service ended with result oom-kill (killed, KILL)");
        assert_eq!(disagreement(Some(Cause::CgroupOomKill), &reports), None);
        assert!(disagreement(Some(Cause::SigKill), &reports).unwrap().contains("most likely"));
        assert!(disagreement(Some(Cause::Exit), &reports).unwrap().contains("another process"));
        assert_eq!(disagreement(Some(Cause::SigKill), &[]), None);
        assert_eq!(systemd_report("", None, None), None);
    }
}
