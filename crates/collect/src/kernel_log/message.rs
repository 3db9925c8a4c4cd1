//! The texts of the kernel's OOM killer, from Linux 3 to 7.
//!
//! A kill is reported in several lines: the process that asked, the limit (before 4.19 "Task in … killed as a result of limit of …",
//! since then "oom-kill:constraint=…"), and the process that was killed. The first lines may be missing when the kernel limits its
//! rate: then what they say is unknown, never that of the kill before. The victim's name is its own choice.

use serde::Serialize;

/// Whose memory ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// The whole host's.
    None,
    /// That of a cpuset.
    Cpuset,
    /// That of a memory policy.
    MemoryPolicy,
    /// A memory cgroup reached its limit.
    Memcg,
}

/// One kill.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OomKill {
    /// Microseconds since boot by the log's clock.
    pub at_us: Option<u64>,
    /// The process, by its number in the host's first pid namespace.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Whose memory ran out.
    pub constraint: Option<Constraint>,
    /// The cgroup that reached its limit.
    pub cgroup: Option<String>,
    /// The victim's own cgroup.
    pub task_cgroup: Option<String>,
    /// Who asked for the memory that was not there.
    pub invoked_by: Option<String>,
    /// The victim's address space in bytes.
    pub total_vm: Option<u64>,
    /// Its resident bytes of no file.
    pub anonymous_rss: Option<u64>,
    /// Its resident bytes of files.
    pub file_rss: Option<u64>,
    /// Its resident bytes of shared memory.
    pub shared_memory_rss: Option<u64>,
    /// The cgroup's usage at that moment.
    pub usage: Option<u64>,
    /// The cgroup's limit.
    pub limit: Option<u64>,
    /// The victim's user.
    pub uid: Option<u64>,
    /// How much the victim was favoured (−1000) or offered (1000).
    pub oom_score_adj: Option<i64>,
}

impl OomKill {
    /// The victim's resident bytes, as far as known.
    pub fn rss(&self) -> Option<u64> {
        let known = [self.anonymous_rss, self.file_rss, self.shared_memory_rss];
        self.anonymous_rss?;
        Some(known.into_iter().flatten().fold(0, u64::saturating_add))
    }
}

/// What the lines before a kill said.
#[derive(Debug, Default, Clone)]
struct Context {
    invoked_by: Option<String>,
    constraint: Option<Constraint>,
    cgroup: Option<String>,
    task_cgroup: Option<String>,
    usage: Option<u64>,
    limit: Option<u64>,
    uid: Option<u64>,
    /// The victim the new line names; old kernels do not.
    pid: Option<u32>,
}

/// For how long after a kill the rest of its group may follow.
const GROUP_US: u64 = 1_000_000;

/// Puts the lines of a log together into kills.
#[derive(Debug, Default)]
pub struct OomParser {
    context: Context,
    /// What is common to the group of the last victim, and when that was.
    last: Option<(Option<u64>, Context)>,
    /// The rest of that group is being killed.
    is_group: bool,
}

impl OomParser {
    /// Takes in one line without its time; gives a kill when the line completes one.
    pub fn line(&mut self, at_us: Option<u64>, line: &str) -> Option<OomKill> {
        if let Some((name, _)) = line.split_once(" invoked oom-killer:") {
            self.is_group = false;
            self.context = Context { invoked_by: Some(name.to_owned()), ..Context::default() };
        } else if let Some(rest) = line.strip_prefix("oom-kill:constraint=") {
            self.constraint_line(rest);
        } else if let Some(rest) = line.strip_prefix("Task in ") {
            if let Some((task, limit)) = rest.split_once(" killed as a result of limit of ") {
                self.context.task_cgroup = Some(task.to_owned());
                self.context.cgroup = Some(limit.to_owned());
                self.context.constraint = Some(Constraint::Memcg);
            }
        } else if let Some(rest) = line.strip_prefix("memory: usage ") {
            self.context.usage = kilobytes(rest);
            self.context.limit = rest.split_once("limit ").and_then(|(_, rest)| kilobytes(rest));
        } else if line.contains(" are going to be killed due to memory.oom.group set") {
            self.is_group = true;
        } else if line.starts_with("Memory cgroup out of memory: Kill process ") {
            self.context.constraint = Some(Constraint::Memcg);
        } else if line.starts_with("Out of memory: Kill process ") && self.context.constraint.is_none() {
            self.context.constraint = Some(Constraint::None);
        } else if let Some((before, rest)) = killed(line) {
            return self.kill(at_us, before, rest);
        }
        None
    }

    /// `CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=x,pid=1,uid=0`, or
    /// `…,global_oom,task_memcg=…`. Paths and names may hold commas: values are cut at the keys that follow.
    fn constraint_line(&mut self, rest: &str) {
        let (word, rest) = rest.split_once(',').unwrap_or((rest, ""));
        self.context.constraint = match word {
            "CONSTRAINT_NONE" => Some(Constraint::None),
            "CONSTRAINT_CPUSET" => Some(Constraint::Cpuset),
            "CONSTRAINT_MEMORY_POLICY" => Some(Constraint::MemoryPolicy),
            "CONSTRAINT_MEMCG" => Some(Constraint::Memcg),
            _ => None,
        };
        // The user and the number come last, so a name cannot pose as them.
        let (rest, uid) = rest.rsplit_once(",uid=").unwrap_or((rest, ""));
        let (rest, pid) = rest.rsplit_once(",pid=").unwrap_or((rest, ""));
        let (rest, _name) = rest.rsplit_once(",task=").unwrap_or((rest, ""));
        self.context.uid = uid.trim_end().parse().ok();
        self.context.pid = pid.parse().ok();
        let (rest, task) = rest.split_once(",task_memcg=").unwrap_or((rest, ""));
        self.context.task_cgroup = non_empty(task);
        let cgroup = rest.split_once(",oom_memcg=").map_or("", |(_, cgroup)| cgroup);
        self.context.cgroup = non_empty(cgroup);
    }

    fn kill(&mut self, at_us: Option<u64>, before: &str, rest: &str) -> Option<OomKill> {
        let (pid, rest) = rest.split_once(' ')?;
        let pid: u32 = pid.trim_end_matches(',').parse().ok()?;
        // `(name) total-vm:`, `(name), UID 0, total-vm:` or, on 3.x, `(name) vsz:`: cut at the last of them.
        let end =
            [") total-vm:", "), UID ", ") vsz:"].into_iter().filter_map(|mark| rest.rfind(mark)).min()?;
        let comm = rest.get(..end)?.strip_prefix('(')?;
        let tail = &rest[end..];
        let size = |key: &str| tail.split_once(key).and_then(|(_, rest)| kilobytes(rest));
        let context = self.context_of(pid, at_us);
        let constraint = if before.starts_with("Memory cgroup out of memory") {
            Some(Constraint::Memcg)
        } else if before.starts_with("Out of memory") {
            // A cpuset or a policy says the same.
            context
                .constraint
                .filter(|constraint| *constraint != Constraint::Memcg)
                .or(Some(Constraint::None))
        } else {
            context.constraint
        };
        Some(OomKill {
            at_us,
            pid,
            comm: comm.to_owned(),
            constraint,
            cgroup: context.cgroup,
            task_cgroup: context.task_cgroup,
            invoked_by: context.invoked_by,
            total_vm: size("total-vm:").or_else(|| size("vsz:")),
            anonymous_rss: size("anon-rss:"),
            file_rss: size("file-rss:"),
            shared_memory_rss: size("shmem-rss:"),
            usage: context.usage,
            limit: context.limit,
            uid: leading(tail, "UID:").or_else(|| leading(tail, "UID ")).or(context.uid),
            oom_score_adj: tail.split_once("oom_score_adj:").and_then(|(_, adj)| adj.trim().parse().ok()),
        })
    }
}

impl OomParser {
    /// What the lines before said about this victim.
    fn context_of(&mut self, pid: u32, at_us: Option<u64>) -> Context {
        if let (true, Some((began, shared))) = (self.is_group, &self.last) {
            let age = at_us.zip(*began).and_then(|(now, began)| now.checked_sub(began));
            if age.is_some_and(|age| age <= GROUP_US) {
                return shared.clone();
            }
            self.is_group = false;
        }
        if self.context.pid.is_some_and(|named| named != pid) {
            return Context::default();
        }
        let context = std::mem::take(&mut self.context);
        self.last = Some((at_us, context.shared()));
        context
    }
}

impl Context {
    /// What holds for every victim of a group.
    fn shared(&self) -> Context {
        Context {
            invoked_by: self.invoked_by.clone(),
            constraint: self.constraint,
            cgroup: self.cgroup.clone(),
            usage: self.usage,
            limit: self.limit,
            ..Context::default()
        }
    }
}

/// Cuts `…Killed process ` from the line; the mark must be at its start or after the kernel's own words.
fn killed(line: &str) -> Option<(&str, &str)> {
    let (before, rest) = line.split_once("Killed process ")?;
    let known =
        before.is_empty() || before.starts_with("Memory cgroup ") || before.starts_with("Out of memory");
    known.then_some((before, rest))
}

fn kilobytes(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    if !text[end..].starts_with("kB") {
        return None;
    }
    text[..end].parse::<u64>().ok()?.checked_mul(1024)
}

fn leading(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(key)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
