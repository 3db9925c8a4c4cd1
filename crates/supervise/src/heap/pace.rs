//! How often captures are compacted, and how much the threads that do it give way to the program.

use std::time::Duration;

use super::options::HeapOptions;

/// Between two steps where every allocation is recorded.
const EXACT_STEP: Duration = Duration::from_millis(25);
/// Between two steps where a sample is: the live file fills slowly.
const SAMPLED_STEP: Duration = Duration::from_millis(100);
/// Between two looks whether help is needed.
pub(super) const HELP: Duration = Duration::from_millis(500);
/// Niceness of the thread that compacts: a tenth of what a thread of the program gets where there are not processors enough.
pub(super) const GIVES_WAY: i32 = 10;
/// Niceness of the thread that completes captures: what it does can wait.
pub(super) const LEAST: i32 = 19;

impl HeapOptions {
    /// Between two steps of the compactor.
    pub(super) fn pace(&self) -> Duration {
        if self.sample_bytes > 0 { SAMPLED_STEP } else { EXACT_STEP }
    }
}

/// Makes the calling thread less important. Linux counts this by thread; where it is refused, the thread is as important as the others.
pub(super) fn give_way(niceness: i32) {
    let _ = rustix::process::setpriority_process(None, niceness);
}
