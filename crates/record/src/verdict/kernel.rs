//! The kernel's own words about an OOM kill, understood: lines of `dmesg` or `/dev/kmsg`.
//!
//! Two lines name a victim: `oom-kill:constraint=…,task=…,pid=…` and `… Killed process PID (name) total-vm:…`. Must never
//! trust a line further than its numbers parse: a process may have any name, commas and brackets included.

/// Lines longer than this are not the kernel's.
const MAX_LINE: usize = 8192;

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
    /// What ran out, where the line says.
    pub scope: Option<Scope>,
    /// The cgroup whose limit was met.
    pub cgroup: Option<String>,
    /// Resident memory of the victim: anonymous, file and shared.
    pub rss_bytes: Option<u64>,
}

/// The kills some lines report, lines about the same victim merged, in the order they are first named.
pub fn kernel_kills<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<KernelKill> {
    let mut kills: Vec<KernelKill> = Vec::new();
    for line in lines {
        let Some(found) = parse(line) else { continue };
        // The two lines about one kill follow each other; an older kill of a pid used again is another one.
        let complements = |last: &KernelKill| last.pid == found.pid && last.rss_bytes.is_none();
        match kills.iter_mut().rev().find(|last| complements(last)) {
            Some(last) => {
                last.name = last.name.take().or(found.name);
                last.scope = last.scope.or(found.scope);
                last.cgroup = last.cgroup.take().or(found.cgroup);
                last.rss_bytes = found.rss_bytes;
            }
            None => kills.push(found),
        }
    }
    kills
}

/// The kill one line reports.
pub fn parse(line: &str) -> Option<KernelKill> {
    if line.len() > MAX_LINE {
        return None;
    }
    match line.split_once("oom-kill:constraint=") {
        Some((_, rest)) => parse_constraint(rest),
        None => parse_killed(line),
    }
}

/// `CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=python,pid=12,uid=0`.
fn parse_constraint(rest: &str) -> Option<KernelKill> {
    // The name comes before `,pid=` and may hold anything, so the last one counts.
    let (before, after) = rest.rsplit_once(",pid=")?;
    let pid = number(after)?;
    let scope = match rest.split(',').next()? {
        "CONSTRAINT_MEMCG" => Scope::Cgroup,
        "CONSTRAINT_NONE" | "CONSTRAINT_CPUSET" | "CONSTRAINT_MEMORY_POLICY" => Scope::Global,
        _ => return None,
    };
    let cgroup = before.split(',').find_map(|part| part.strip_prefix("oom_memcg="));
    let name = before.rsplit_once(",task=").map(|(_, name)| name.to_owned());
    Some(KernelKill { pid, name, scope: Some(scope), cgroup: cgroup.map(str::to_owned), rss_bytes: None })
}

/// `Memory cgroup out of memory: Killed process 12 (python) total-vm:9kB, anon-rss:8kB, file-rss:4kB, shmem-rss:0kB, …`.
fn parse_killed(line: &str) -> Option<KernelKill> {
    let (before, rest) = line.split_once("ut of memory: Killed process ")?;
    let pid = number(rest)?;
    let scope = if before.ends_with("emory cgroup o") { Scope::Cgroup } else { Scope::Global };
    let (named, numbers) =
        rest.rsplit_once(") total-vm:").or_else(|| rest.rsplit_once("), ")).unwrap_or((rest, ""));
    let name = named.split_once(" (").map(|(_, name)| name.to_owned());
    let kib = |key: &str| {
        let (_, after) = numbers.split_once(key)?;
        number(after)
    };
    let parts = [kib("anon-rss:"), kib("file-rss:"), kib("shmem-rss:")];
    let known = parts.iter().flatten().fold(0u64, |sum, kib| sum.saturating_add(kib.saturating_mul(1024)));
    let rss_bytes = parts[0].is_some().then_some(known);
    Some(KernelKill { pid, name, scope: Some(scope), cgroup: None, rss_bytes })
}

fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMCG: [&str; 4] = [
        "6,1201,98123456,-;python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        "6,1230,98123999,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=train,mems_allowed=0,oom_memcg=/train,task_memcg=/train/w,task=python,pid=4711,uid=1000",
        "3,1231,98124001,-;Memory cgroup out of memory: Killed process 4711 (python) total-vm:20971520kB, anon-rss:16700000kB, file-rss:77216kB, shmem-rss:0kB, UID:1000 pgtables:33000kB oom_score_adj:0",
        "6,1232,98130000,-;oom_reaper: reaped process 4711 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    ];

    #[test]
    fn a_cgroup_kill() {
        let kills = kernel_kills(MEMCG);
        let expected = KernelKill {
            pid: 4711,
            name: Some("python".into()),
            scope: Some(Scope::Cgroup),
            cgroup: Some("/train".into()),
            rss_bytes: Some((16_700_000 + 77_216) * 1024),
        };
        assert_eq!(kills, [expected]);
    }

    #[test]
    fn a_global_kill_of_a_process_with_an_evil_name() {
        let lines = [
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/x,task=a,pid=1,b,pid=99,uid=0",
            "[  12.3] Out of memory: Killed process 99 (a) total-vm:1) total-vm:2048kB, anon-rss:1024kB, file-rss:0kB, shmem-rss:0kB",
        ];
        let kills = kernel_kills(lines);
        assert_eq!(kills.len(), 1);
        assert_eq!(
            (kills[0].pid, kills[0].scope, kills[0].rss_bytes),
            (99, Some(Scope::Global), Some(1 << 20))
        );
    }

    #[test]
    fn two_kills_of_one_pid_are_two() {
        let lines = [MEMCG[1], MEMCG[2], MEMCG[1], MEMCG[2]];
        assert_eq!(kernel_kills(lines).len(), 2);
    }

    #[test]
    fn other_lines_are_nothing() {
        let long = format!("{}{}", MEMCG[2], " ".repeat(MAX_LINE));
        for line in [
            "",
            "oom-kill:constraint=",
            "oom-kill:constraint=X,pid=1",
            "Out of memory: Killed process x (y)",
            "oom-kill:constraint=CONSTRAINT_NONE,pid=99999999999999999999",
            MEMCG[0],
            MEMCG[3],
            &long,
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
