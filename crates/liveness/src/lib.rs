//! Whether a recorded process still lives: the one place that decides it.
//!
//! A process number says little by itself: it is another one in each PID namespace, is used again, and means nothing on another machine or
//! after a restart. The evidence, in this order:
//!
//! 1. A kernel lock on a file of the process's own ([`lock`]). It is visible in every namespace of that kernel, and released by the kernel
//!    when the process ends, however it ends.
//! 2. The boot: a process of an earlier boot of this machine is gone.
//! 3. Number and start time, within one PID namespace.
//!
//! Where none of these can be compared (another machine, a network file system, another namespace without a lock) the answer is
//! [`Life::Unknown`]. Must never call a process dead that may live, and must never write.
#![forbid(unsafe_code)]

pub mod lock;
mod process;
mod site;

pub use process::{
    INITIAL_NAMESPACE, ProcessId, boot_id, exists, host_name, of_session, pid_namespace, start_ticks,
};
pub use site::{Site, is_on_network};

/// Whether a process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Alive,
    /// It has ended.
    Dead,
    /// That cannot be found out from here.
    Unknown,
}

/// What was recorded about a process when it started, for readers to judge it by later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Number, start time, namespace and boot.
    pub process: ProcessId,
    /// The machine's name.
    pub host: Option<String>,
    /// Where its files are.
    pub site: Option<Site>,
}

/// What its lock file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Some process holds it.
    Held,
    /// No process holds it.
    Free,
    /// There is none, or it cannot be read.
    Missing,
}

impl Evidence {
    /// Judges a process whose files are below `directory` now.
    ///
    /// `keeps_lock`: it holds its lock until it ends, so that a free one on the same file system proves its end. A program may become
    /// another one by `exec`, which releases the lock; a supervisor does not.
    #[must_use]
    pub fn life(&self, directory: &std::path::Path, lock: LockState, keeps_lock: bool) -> Life {
        if lock == LockState::Held {
            return Life::Alive;
        }
        let site = Site::of(directory);
        match self.process.is_of_this_boot() {
            // The kernel releases a lock before the number: the first process of a namespace waits for all others before it is gone.
            Some(true) if keeps_lock && lock == LockState::Free && self.is_at(site) => Life::Dead,
            Some(true) => self.process.life_by_number(),
            // After a restart of the machine that has the files where they were, and not a copy of them elsewhere. A container has a name of its own.
            Some(false) if self.has_inode_of(site) && (self.is_of_this_host() || self.is_born_with(site)) => {
                Life::Dead
            }
            Some(false) | None => Life::Unknown,
        }
    }

    /// Whether locks taken there are visible here: the same file system, and one whose locks the kernel keeps itself.
    fn is_at(&self, site: Option<Site>) -> bool {
        let recorded = self.site.map(|site| (site.device, site.inode));
        site.is_some_and(|site| !site.is_on_network && Some((site.device, site.inode)) == recorded)
    }

    /// A device has another number after a restart; an inode has not.
    fn has_inode_of(&self, site: Option<Site>) -> bool {
        let recorded = self.site.map(|site| site.inode);
        site.is_some_and(|site| !site.is_on_network && Some(site.inode) == recorded)
    }

    fn is_born_with(&self, site: Option<Site>) -> bool {
        let recorded = self.site.and_then(|site| site.born_ns);
        recorded.is_some() && site.and_then(|site| site.born_ns) == recorded
    }

    fn is_of_this_host(&self) -> bool {
        self.host.is_some() && self.host.as_deref() == Some(&host_name())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::path::Path;

    fn evidence(directory: &Path) -> Evidence {
        Evidence { process: ProcessId::own(), host: Some(host_name()), site: Site::of(directory) }
    }

    #[test]
    fn held_locks_outweigh_every_other_sign() {
        let place = tempfile::tempdir().unwrap();
        let mut gone = evidence(place.path());
        gone.process.start_ticks = Some(1);
        assert_eq!(gone.life(place.path(), LockState::Held, true), Life::Alive);
        assert_eq!(gone.life(place.path(), LockState::Free, true), Life::Dead);
        let dying = evidence(place.path());
        assert_eq!(dying.life(place.path(), LockState::Free, true), Life::Dead, "its number is still taken");
        assert_eq!(
            dying.life(place.path(), LockState::Free, false),
            Life::Alive,
            "a program may have let go of it"
        );
    }

    #[test]
    fn another_namespace_is_dead_only_by_a_lock_that_proves_it() {
        let place = tempfile::tempdir().unwrap();
        let mut other = evidence(place.path());
        // Without its start time it is not found from the namespace that sees all.
        (other.process.pid_namespace, other.process.start_ticks) = (Some(1), None);
        for (lock, keeps_lock, life) in [
            (LockState::Free, true, Life::Dead),
            (LockState::Free, false, Life::Unknown),
            (LockState::Missing, true, Life::Unknown),
        ] {
            assert_eq!(other.life(place.path(), lock, keeps_lock), life, "{lock:?} {keeps_lock}");
        }
        other.site = Site::of(Path::new("/"));
        let elsewhere = other.life(place.path(), LockState::Free, true);
        assert_eq!(elsewhere, Life::Unknown, "a copy has no locks");
    }

    #[test]
    fn another_boot_is_dead_only_on_the_same_machine_and_file_system() {
        let place = tempfile::tempdir().unwrap();
        let mut before = evidence(place.path());
        before.process.boot_id = Some("an earlier one".to_owned());
        let life = |evidence: &Evidence| evidence.life(place.path(), LockState::Free, true);
        assert_eq!(life(&before), Life::Dead);
        let mut elsewhere = Evidence { host: Some("another".to_owned()), ..before.clone() };
        let is_born = elsewhere.site.is_some_and(|site| site.born_ns.is_some());
        assert_eq!(life(&elsewhere) == Life::Dead, is_born, "a container has a name of its own");
        elsewhere.site = elsewhere.site.map(|site| Site { born_ns: Some(1), ..site });
        assert_eq!(life(&elsewhere), Life::Unknown);
        let copied = Evidence { site: Site::of(Path::new("/")), ..before.clone() };
        assert_eq!(life(&copied), Life::Unknown);
        before.process.boot_id = None;
        assert_eq!(life(&before), Life::Unknown);
    }
}
