//! The kernel's messages about its OOM killer as facts for a verdict.

use stormlog_collect::kernel_log::{Constraint, OomKill};
use stormlog_postmortem::verdict::kernel::{KernelKill, Scope};

/// One kill.
#[must_use]
pub fn kernel_kill(kill: &OomKill) -> KernelKill {
    KernelKill {
        pid: kill.pid.into(),
        name: Some(kill.comm.clone()),
        scope: match kill.constraint {
            Some(Constraint::Memcg) => Some(Scope::Cgroup),
            Some(Constraint::None | Constraint::Cpuset | Constraint::MemoryPolicy) => Some(Scope::Global),
            None => None,
        },
        cgroup: kill.cgroup.clone(),
        limit_bytes: kill.limit,
        usage_bytes: kill.usage,
        rss_bytes: kill.rss(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_collect::kernel_log::kills_in;
    use stormlog_postmortem::Cause;
    use stormlog_postmortem::verdict::{DeathFacts, Ending, Verdict, judge};

    /// The victim in every stand-in.
    const VICTIM: u64 = 4242;

    fn verdict(log: &str, pid: u64) -> Verdict {
        let mut facts = DeathFacts::of("train.py", pid, Ending::Signaled(9));
        facts.kernel = Some(kills_in(log).iter().map(kernel_kill).collect());
        judge(&facts)
    }

    #[test]
    fn a_machine_that_ran_out_is_named_by_stand_ins_of_kernel_logs() {
        for (name, log) in [
            ("3.10", include_str!("../../tests/stand_ins/linux-3.10-global.txt")),
            ("4.15", include_str!("../../tests/stand_ins/linux-4.15-global.txt")),
            ("5.4", include_str!("../../tests/stand_ins/linux-5.4-global-rate-limited.txt")),
            ("5.15", include_str!("../../tests/stand_ins/linux-5.15-global.txt")),
            ("6.8", include_str!("../../tests/stand_ins/linux-6.8-cpuset.txt")),
            ("6.16", include_str!("../../tests/stand_ins/linux-6.16-global.txt")),
        ] {
            let found = verdict(log, VICTIM);
            assert_eq!((found.cause, found.confidence), (Cause::GlobalOomKill, 1.0), "{name}");
            assert!(found.sentence.contains("the machine ran out"), "{name}: {}", found.sentence);
            let other = verdict(log, 77);
            assert_eq!(other.cause, Cause::SigKill, "{name}: the kill of another process is not ours");
        }
    }

    #[test]
    fn full_cgroup_is_identified_by_a_simulated_kernel_log() {
        let log = include_str!("../../tests/stand_ins/linux-6.16-cgroup.txt");
        assert_eq!(verdict(log, VICTIM).cause, Cause::CgroupOomKill);
        assert_eq!(kills_in(log)[0].limit, Some(1 << 30));
    }
}
