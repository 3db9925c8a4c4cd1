//! The Firefox Profiler's format: each stack's bytes as one retained allocation, so that its memory panels show them.

use std::time::{Duration, SystemTime};

use fxprof_processed_profile::{
    CategoryHandle, Frame as Shown, FrameFlags, FrameInfo, Profile, SamplingInterval, Timestamp,
};
use stormlog_model::stacks::StackProfile;

use crate::{About, all_in_frames, label, outermost_first};

/// JSON text of the profile.
#[must_use]
pub fn firefox(held: &StackProfile, about: &About<'_>) -> String {
    let held = &*all_in_frames(held);
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(about.start_ms);
    let zero = Timestamp::from_millis_since_reference(0.0);
    let mut profile = Profile::new(about.title, started.into(), SamplingInterval::from_millis(1));
    let process = profile.add_process(about.title, about.pid, zero);
    // The format keeps a process's allocations on one thread; ours become the outermost frame of each stack.
    let thread = profile.add_thread(process, about.pid, zero, true);
    profile.set_thread_name(thread, "allocations");
    let names: Vec<_> = held.tree.frames.iter().map(|frame| profile.intern_string(&label(frame))).collect();
    let threads: Vec<_> = held.threads.iter().map(|name| profile.intern_string(name)).collect();
    let info = |name| FrameInfo {
        frame: Shown::Label(name),
        category_pair: CategoryHandle::OTHER.into(),
        flags: FrameFlags::empty(),
    };
    for (address, row) in held.rows.iter().enumerate() {
        let outer = threads.get(row.thread as usize).copied().filter(|_| threads.len() > 1);
        let path = outermost_first(held, row.node);
        let frames = outer.into_iter().chain(path.into_iter().map(|frame| names[frame as usize])).map(info);
        let stack = profile.intern_stack_frames(thread, frames.collect::<Vec<_>>().into_iter());
        let bytes = i64::try_from(row.bytes).unwrap_or(i64::MAX);
        profile.add_allocation_sample(thread, zero, stack, address as u64 + 1, bytes);
    }
    serde_json::to_string(&profile).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stack_is_a_retained_allocation() {
        let text = firefox(&crate::testing::held(), &About { title: "t", start_ms: 1000, pid: 7 });
        let file: serde_json::Value = serde_json::from_str(&text).unwrap();
        let weights = &file["threads"][0]["nativeAllocations"]["weight"];
        let sum: i64 = weights.as_array().unwrap().iter().map(|weight| weight.as_i64().unwrap()).sum();
        assert_eq!(sum, 45, "{text}");
        assert_eq!(file["meta"]["startTime"], 1000.0);
    }
}
