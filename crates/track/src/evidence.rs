//! What this process can say of itself at the moment memory ran out: limits, peak, and what its memory is made of.
//!
//! Reads files only, each once; what cannot be read is left out. Must not need memory in proportion to the program's.

use stormlog_collect::cgroup::MemoryCgroup;
use stormlog_collect::process::{MapGroup, MapLimits, ProcessReader};
use stormlog_postmortem::Cause;
use stormlog_postmortem::bundle::{Evidence, MapRow};

/// Files named one by one; the others are in the sum.
const FILES: usize = 8;

/// The evidence of this process, now.
pub fn evidence_now(cause: Cause) -> Evidence {
    let mut evidence = Evidence::of(cause);
    if let Ok(cgroup) = MemoryCgroup::of(std::process::id())
        && let Some(limit) = cgroup.read().effective_limit
    {
        evidence.limit_bytes = Some(limit.bytes);
        evidence.usage_bytes = limit.usage;
        evidence.limit_source = Some(format!("cgroup {}", cgroup.path));
    }
    let Ok(mut process) = ProcessReader::this() else { return evidence };
    evidence.peak_rss_bytes = process.status().ok().and_then(|status| status.peak_rss);
    if let Ok(maps) = process.map_summary(MapLimits { top_files: FILES, ..MapLimits::default() }) {
        let groups = [
            ("[heap]", maps.heap),
            ("[anon]", maps.anonymous),
            ("[stack]", maps.stack),
            ("[shared]", maps.shared_memory),
            ("[devices]", maps.devices),
            ("[files]", maps.files),
        ];
        evidence.memory_map = groups.map(|(name, group)| row(name, &group)).to_vec();
    }
    evidence
}

fn row(name: &str, group: &MapGroup) -> MapRow {
    MapRow {
        name: name.to_owned(),
        mappings: group.mappings,
        size_bytes: Some(group.size),
        rss_bytes: group.rss,
        swap_bytes: group.swap,
        pss_bytes: group.pss,
    }
}
