//! A kill as the kernel's log reports it. `stormlog-collect` reads the log; here is what a verdict needs of it.

/// What ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A cgroup's limit.
    Cgroup,
    /// The machine, a cpuset or a node.
    Global,
}

/// One kill the kernel reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelKill {
    /// The victim.
    pub pid: u64,
    /// Its name, as far as the kernel keeps it (15 bytes).
    pub name: Option<String>,
    /// What ran out, where the log says.
    pub scope: Option<Scope>,
    /// The cgroup whose limit was met.
    pub cgroup: Option<String>,
    /// That limit.
    pub limit_bytes: Option<u64>,
    /// What the cgroup used of it.
    pub usage_bytes: Option<u64>,
    /// Resident memory of the victim: anonymous, file and shared.
    pub rss_bytes: Option<u64>,
}
