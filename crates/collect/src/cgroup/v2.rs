//! The files of a version 2 cgroup with the memory controller.
//!
//! Events count at the group where they happen and at every level above. The true root has no `memory.max` and no
//! `memory.current`: there everything is unknown, which is right.

use std::path::Path;

use super::{CgroupEvents, CgroupStat, LevelMemory, Limit};
use crate::text::{WHOLE_LIMIT, key_number, lines, number, read_bounded, read_number};

pub(super) const USAGE: &str = "memory.current";

pub(super) fn read(directory: &Path) -> LevelMemory {
    LevelMemory {
        directory: directory.to_path_buf(),
        limit: limit(directory, "memory.max"),
        high: limit(directory, "memory.high"),
        usage: read_number(&directory.join(USAGE)),
        peak: read_number(&directory.join("memory.peak")),
        swap_usage: read_number(&directory.join("memory.swap.current")),
        swap_limit: limit(directory, "memory.swap.max"),
        stat: stat(directory),
        events: events(directory),
        oom_kill_disabled: None,
    }
}

pub(super) fn own_limit(directory: &Path) -> Option<Limit> {
    limit(directory, "memory.max")
}

fn limit(directory: &Path, name: &str) -> Option<Limit> {
    let bytes = read_bounded(&directory.join(name), 64).ok()?;
    match bytes.trim_ascii() {
        b"max" => Some(Limit::Unlimited),
        digits => number(digits).map(Limit::Bytes),
    }
}

fn events(directory: &Path) -> CgroupEvents {
    let mut events = CgroupEvents::default();
    let text = read_bounded(&directory.join("memory.events"), 4096).unwrap_or_default();
    for (key, value) in lines(&text).filter_map(key_number) {
        let slot = match key {
            b"low" => &mut events.low,
            b"high" => &mut events.high,
            b"max" => &mut events.max,
            b"oom" => &mut events.oom,
            b"oom_kill" => &mut events.oom_kill,
            b"oom_group_kill" => &mut events.oom_group_kill,
            _ => continue,
        };
        *slot = Some(value);
    }
    events
}

fn stat(directory: &Path) -> CgroupStat {
    let mut stat = CgroupStat::default();
    let text = read_bounded(&directory.join("memory.stat"), WHOLE_LIMIT).unwrap_or_default();
    for (key, value) in lines(&text).filter_map(key_number) {
        let slot = match key {
            b"anon" => &mut stat.anonymous,
            b"file" => &mut stat.file,
            b"shmem" => &mut stat.shared_memory,
            b"inactive_file" => &mut stat.inactive_file,
            b"active_file" => &mut stat.active_file,
            b"kernel" => &mut stat.kernel,
            b"slab" => &mut stat.slab,
            b"pgmajfault" => &mut stat.major_faults,
            _ => continue,
        };
        *slot = Some(value);
    }
    stat
}
