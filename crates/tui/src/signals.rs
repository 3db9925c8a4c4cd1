//! What signals ask of a screen. Must not swallow one after the screen was left: what would have ended or stopped the process before
//! does so again.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::SigId;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::flag::{register, register_conditional_default, register_usize};

/// Those that ask the process to end.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Whom Ctrl-C and the like are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// The screen, which is left.
    Ours,
    /// All that runs in front: the screen stays until its caller says that it is over. Other handlers of the signals that end a process are
    /// left alone.
    Shared,
}

/// Set while no screen is on; signals then do what they did before there was one.
static IS_LEFT: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// What was asked for and not done yet.
pub(crate) struct Signals {
    end: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Signals {
    pub(crate) fn watch(keys: Keys) -> io::Result<Signals> {
        restore_later(SIGTSTP)?;
        let mut signals = Signals {
            end: Arc::default(),
            stop: Arc::default(),
            go_on: Arc::default(),
            registered: Vec::new(),
        };
        for signal in ENDING.into_iter().filter(|_| keys == Keys::Ours) {
            restore_later(signal)?;
            let number = usize::try_from(signal).unwrap_or(0);
            signals.registered.push(register_usize(signal, Arc::clone(&signals.end), number)?);
        }
        signals.registered.push(register(SIGTSTP, Arc::clone(&signals.stop))?);
        signals.registered.push(register(SIGCONT, Arc::clone(&signals.go_on))?);
        is_left().store(false, Ordering::SeqCst);
        Ok(signals)
    }

    /// The signal that asks the process to end.
    pub(crate) fn end(&self) -> Option<i32> {
        i32::try_from(self.end.load(Ordering::SeqCst)).ok().filter(|signal| *signal != 0)
    }

    /// Whether it was asked to stop for a while.
    pub(crate) fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::SeqCst)
    }

    /// Whether it continued after it was stopped.
    pub(crate) fn take_go_on(&self) -> bool {
        self.go_on.swap(false, Ordering::SeqCst)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        is_left().store(true, Ordering::SeqCst);
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

fn is_left() -> &'static Arc<AtomicBool> {
    IS_LEFT.get_or_init(Arc::default)
}

/// A signal without another handler has its default effect again once the screen is left. The library would swallow it from then on.
fn restore_later(signal: i32) -> io::Result<()> {
    if is_default(signal) {
        register_conditional_default(signal, Arc::clone(is_left()))?;
    }
    Ok(())
}

/// Neither handled nor ignored so far; a second screen finds the first one's work. What cannot be asked is left alone.
fn is_default(signal: i32) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let has = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_none_or(|mask| mask >> (signal - 1) & 1 == 1)
    };
    !has("SigCgt:") && !has("SigIgn:")
}
