//! Real cgroups with hard limits and real OOM kills in them. Needs root and a memory controller; says so when it skips.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test's helper may panic, and a skipped test says so"
)]

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use common::{Child, wait_until};
use stormlog_collect::cgroup::{Limit, MemoryCgroup, OomScope, OomWatch, Version};
use stormlog_collect::kernel_log::{Constraint, DEFAULT_RECORDS, KernelLog};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 64 * MIB;

/// A limited group with a group inside it; removed at the end, whatever happened.
struct TestGroup {
    outer: PathBuf,
    inner: PathBuf,
    version: Version,
}

impl TestGroup {
    fn create(name: &str) -> Option<TestGroup> {
        let name = format!("stormlog-collect-{name}-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let v2 = Path::new("/sys/fs/cgroup");
        let (mount, version, file) = if v1.join("memory.limit_in_bytes").exists() {
            (v1, Version::V1, "memory.limit_in_bytes")
        } else if v2.join("cgroup.controllers").exists() {
            (v2, Version::V2, "memory.max")
        } else {
            eprintln!("skipped: no memory cgroup is mounted");
            return None;
        };
        let outer = mount.join(name);
        let group = TestGroup { inner: outer.join("inner"), outer, version };
        if let Err(error) = group.prepare(file) {
            eprintln!("skipped: cannot make a limited cgroup in {}: {error}", mount.display());
            return None;
        }
        Some(group)
    }

    fn prepare(&self, file: &str) -> std::io::Result<()> {
        fs::create_dir(&self.outer)?;
        // Exists only where the controller is on: writing must not make a plain file.
        fs::metadata(self.outer.join(file))?;
        fs::write(self.outer.join(file), LIMIT.to_string())?;
        if self.version == Version::V2 {
            fs::write(self.outer.join("memory.swap.max"), "0").ok();
            fs::write(self.outer.join("cgroup.subtree_control"), "+memory")?;
        }
        fs::create_dir(&self.inner)
    }

    fn take(&self, pid: u32) {
        fs::write(self.inner.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        for level in [&self.inner, &self.outer] {
            for _ in 0..200 {
                if fs::remove_dir(level).is_ok() || !level.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn a_real_oom_kill_is_counted_named_and_explained() {
    // The group is dropped after the child.
    let Some(group) = TestGroup::create("kill") else { return };
    let mut child = Child::start("hog");
    group.take(child.pid());

    let cgroup = MemoryCgroup::of(child.pid()).unwrap();
    assert_eq!((cgroup.version, &cgroup.directory), (group.version, &group.inner));
    let memory = cgroup.read();
    let limit = memory.effective_limit.unwrap();
    assert_eq!((limit.bytes, limit.directory.as_deref()), (LIMIT, Some(group.outer.as_path())));
    assert_eq!(memory.levels[0].limit, Some(Limit::Unlimited));
    assert_eq!(memory.levels[0].events.oom_kill, Some(0));
    assert!(cgroup.usage_reader().unwrap().usage().unwrap() < LIMIT);

    let level = MemoryCgroup { directory: group.outer.clone(), ..cgroup.clone() };
    assert_eq!((level.limit(), cgroup.limit()), (Some(Limit::Bytes(LIMIT)), Some(Limit::Unlimited)));

    let watch = OomWatch::start(cgroup);
    let mut log = KernelLog::from_now();
    child.send("go");
    let status = child.wait();
    assert_eq!(status.signal(), Some(9));

    let report = watch.look();
    assert_eq!(report.kills, Some(1), "{report:?}");
    assert_eq!(
        report.scope,
        OomScope::Cgroup { directory: group.outer.clone(), limit: Some(LIMIT) },
        "{report:?}"
    );
    let peak = report.levels[1].peak.unwrap();
    assert!(peak > LIMIT - 4 * MIB && peak <= LIMIT, "{peak}");

    match &mut log {
        Err(error) => eprintln!("the kernel log was not looked at: {error}"),
        Ok(log) => {
            let mut kills = Vec::new();
            wait_until(|| {
                kills.extend(log.read(DEFAULT_RECORDS).unwrap().kills);
                kills.iter().any(|kill| kill.pid == child.pid())
            });
            let kill = kills.iter().find(|kill| kill.pid == child.pid()).unwrap();
            assert_eq!(kill.constraint, Some(Constraint::Memcg));
            assert_eq!(kill.comm.len().min(15), kill.comm.len());
            assert!(kill.rss().unwrap() > LIMIT / 2, "{kill:?}");
            let name = group.outer.file_name().unwrap().to_str().unwrap();
            assert!(kill.cgroup.as_deref().unwrap().ends_with(name), "{kill:?}");
            assert!(kill.task_cgroup.as_deref().unwrap().ends_with("/inner"), "{kill:?}");
            assert_eq!(kill.limit, Some(LIMIT), "{kill:?}");
            let again = KernelLog::kills_since(kill.at_us.unwrap()).unwrap();
            assert!(again.kills.iter().any(|seen| seen == kill));
            let later = KernelLog::kills_since(kill.at_us.unwrap() + 1).unwrap();
            assert!(!later.kills.iter().any(|seen| seen.pid == kill.pid));
        }
    }
}

#[test]
fn a_plain_kill_is_not_an_oom_kill() {
    let Some(group) = TestGroup::create("plain") else { return };
    let mut child = Child::start("hold");
    group.take(child.pid());
    let watch = OomWatch::start(MemoryCgroup::of(child.pid()).unwrap());
    child.say("16");
    drop(child);
    let report = watch.look();
    assert_eq!((report.kills, &report.scope), (Some(0), &OomScope::NoKill), "{report:?}");
    assert!(!report.is_group_gone);
    drop(group);
    assert!(watch.look().is_group_gone);
}

#[test]
fn this_process_has_a_cgroup_or_a_reason() {
    match MemoryCgroup::of(std::process::id()) {
        Ok(cgroup) => {
            let memory = cgroup.read();
            assert!(!memory.levels.is_empty());
            assert!(memory.levels.iter().all(|level| level.directory.starts_with(&cgroup.mount)));
        }
        Err(error) => assert!(error.to_string().contains("not available"), "{error}"),
    }
}

/// Not a test: what the children of these tests do.
#[test]
#[ignore = "the program of a child process"]
fn child_program() {
    common::child_program();
}
