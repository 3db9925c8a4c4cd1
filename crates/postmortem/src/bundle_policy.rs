//! Which ends of processes leave a bundle. Every end leaves a line in `run.json`.

use crate::verdict::Verdict;
use crate::{Cause, Ended};

/// Which ends leave a bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BundlePolicy {
    /// Ends because memory ran out.
    Oom,
    /// These, exceptions that were not caught, and fatal signals; not an exit with a status, nor a signal that programs are stopped with.
    #[default]
    Crash,
    /// Every end but an exit with status 0.
    Always,
}

impl BundlePolicy {
    const ALL: [BundlePolicy; 3] = [BundlePolicy::Oom, BundlePolicy::Crash, BundlePolicy::Always];

    /// The word of the option and of `run.json`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BundlePolicy::Oom => "oom",
            BundlePolicy::Crash => "crash",
            BundlePolicy::Always => "always",
        }
    }

    /// The policy of that word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == word)
    }

    /// Whether this end leaves one. `has_raised`: an exception that was not caught ended it.
    #[must_use]
    pub fn wants(self, verdict: &Verdict, has_raised: bool) -> bool {
        match (self, verdict.cause) {
            (_, cause) if cause.is_memory() => true,
            (BundlePolicy::Oom, _) => false,
            (BundlePolicy::Always, _) => true,
            (BundlePolicy::Crash, Cause::Signal | Cause::SigKill) => verdict.ended == Ended::Failed,
            (BundlePolicy::Crash, _) => has_raised,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{DeathFacts, Ending, judge};

    #[test]
    fn ends_leave_bundles_by_what_ended_them() {
        let wants = |policy: BundlePolicy, ending, has_raised| {
            policy.wants(&judge(&DeathFacts::of("x", 7, ending)), has_raised)
        };
        use BundlePolicy::{Always, Crash, Oom};
        for (ending, has_raised, by_crash) in [
            (Ending::Exited(3), false, false),
            (Ending::Exited(143), false, false),
            (Ending::Exited(1), true, true),
            (Ending::Signaled(11), false, true),
            (Ending::Signaled(9), false, true),
            (Ending::Signaled(15), false, false),
            (Ending::Signaled(2), false, false),
            (Ending::Signaled(13), false, false),
            (Ending::Vanished, false, false),
        ] {
            let found = [Oom, Crash, Always].map(|policy| wants(policy, ending, has_raised));
            assert_eq!(found, [false, by_crash, true], "{ending:?}");
        }
    }
}
