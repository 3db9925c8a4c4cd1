//! The files of a version 1 memory cgroup.
//!
//! "No limit" is a huge number, rounded down to a page. `oom_kill` counts at the group of the victim only, not above it.

use std::path::Path;

use super::{CgroupEvents, CgroupStat, LevelMemory, Limit};
use crate::text::{WHOLE_LIMIT, key_number, lines, read_bounded, read_number};

pub(super) const USAGE: &str = "memory.usage_in_bytes";

/// Limits from here on mean "none": the kernel's own largest value depends on the page size.
const UNLIMITED_FROM: u64 = 1 << 62;

pub(super) fn read(directory: &Path) -> LevelMemory {
    let file = |name: &str| read_number(&directory.join(name));
    let usage = file(USAGE);
    let with_swap = file("memory.memsw.usage_in_bytes");
    let control = oom_control(directory);
    LevelMemory {
        directory: directory.to_path_buf(),
        limit: file("memory.limit_in_bytes").map(limit),
        high: None,
        usage,
        peak: file("memory.max_usage_in_bytes"),
        swap_usage: with_swap.zip(usage).map(|(both, memory)| both.saturating_sub(memory)),
        swap_limit: file("memory.memsw.limit_in_bytes").map(limit),
        stat: stat(directory).0,
        events: CgroupEvents {
            oom_kill: control.kills,
            // Memory and swap together are charged first, so a limit on both counts over there.
            failcnt: add(file("memory.failcnt"), file("memory.memsw.failcnt")),
            ..CgroupEvents::default()
        },
        oom_kill_disabled: control.is_disabled,
    }
}

fn add(memory: Option<u64>, with_swap: Option<u64>) -> Option<u64> {
    Some(memory?.saturating_add(with_swap.unwrap_or(0)))
}

pub(super) fn own_limit(directory: &Path) -> Option<Limit> {
    read_number(&directory.join("memory.limit_in_bytes")).map(limit)
}

fn limit(bytes: u64) -> Limit {
    if bytes >= UNLIMITED_FROM { Limit::Unlimited } else { Limit::Bytes(bytes) }
}

/// The smallest limit from here to the true root, including levels a container cannot see.
pub(super) fn hierarchical_limit(directory: &Path) -> Option<u64> {
    stat(directory).1.map(limit).and_then(Limit::bytes)
}

/// What a group is made of with its descendants, and its hierarchical limit.
fn stat(directory: &Path) -> (CgroupStat, Option<u64>) {
    let mut stat = CgroupStat::default();
    let mut hierarchical = None;
    let text = read_bounded(&directory.join("memory.stat"), WHOLE_LIMIT).unwrap_or_default();
    for (key, value) in lines(&text).filter_map(key_number) {
        let slot = match key {
            b"total_rss" => &mut stat.anonymous,
            b"total_cache" => &mut stat.file,
            b"total_shmem" => &mut stat.shared_memory,
            b"total_inactive_file" => &mut stat.inactive_file,
            b"total_active_file" => &mut stat.active_file,
            b"total_pgmajfault" => &mut stat.major_faults,
            b"hierarchical_memory_limit" => &mut hierarchical,
            _ => continue,
        };
        *slot = Some(value);
    }
    stat.kernel = read_number(&directory.join("memory.kmem.usage_in_bytes"));
    (stat, hierarchical)
}

#[derive(Default)]
struct OomControl {
    is_disabled: Option<bool>,
    kills: Option<u64>,
}

/// Kernels before 4.13 do not count kills here.
fn oom_control(directory: &Path) -> OomControl {
    let mut control = OomControl::default();
    let text = read_bounded(&directory.join("memory.oom_control"), 4096).unwrap_or_default();
    for (key, value) in lines(&text).filter_map(key_number) {
        match key {
            b"oom_kill_disable" => control.is_disabled = Some(value != 0),
            b"oom_kill" => control.kills = Some(value),
            _ => {}
        }
    }
    control
}
