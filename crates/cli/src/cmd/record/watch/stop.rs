//! The signals that end a watch cleanly: Ctrl-C, `kill`, a closed terminal.
//!
//! A signal that is ignored stays ignored: `nohup` and a shell's background jobs mean it. A second Ctrl-C ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Set by the first of the signals.
pub(crate) struct Stop(Arc<AtomicUsize>);

impl Stop {
    pub(crate) fn watch() -> Self {
        let seen = Arc::new(AtomicUsize::new(0));
        let ignored = ignored();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if ignored & 1 << (signal - 1) != 0 {
                continue;
            }
            let again = Arc::new(AtomicBool::new(false));
            // Without a handler the signal still ends the process, only less tidily. The order matters: the second
            // time the first handler finds the flag set.
            let _ =
                signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again));
            let _ = signal_hook::flag::register(signal, again);
            let number = usize::try_from(signal).unwrap_or(0);
            let _ = signal_hook::flag::register_usize(signal, Arc::clone(&seen), number);
        }
        Stop(seen)
    }

    /// The signal that came.
    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }
}

/// The mask of ignored signals, as the kernel reports it for this process.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
