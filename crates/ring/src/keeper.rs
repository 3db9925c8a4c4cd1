//! What the writers of one process share: the file they write now, and how they get to the next one.
//!
//! A [`Keeper`] belongs to one process. A forked child does not touch its parent's keeper, whose lock may be held by a thread that
//! does not exist there; it makes its own. Processes agree through the file system alone.
//!
//! Must never park a thread, and never release a file in a way that a `fork` in the middle would show the child half done.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::thread;
use std::time::Duration;

use crate::error::Error;
use crate::file::StoreFile;
use crate::process;
use crate::record::{Loss, LossReason};

/// First and longest pause between attempts to make a file that could not be made.
const RETRY_MS: u64 = 100;
const RETRY_MOST_MS: u64 = 5_000;
/// Pause of a thread that waits for another to make the next file.
const WAIT: Duration = Duration::from_micros(50);
/// Tries of a child at a lock its parent's threads may have held when it was forked, before it continues without.
const INHERITED_LOCK_TRIES: usize = 8;

/// How a kind of recording comes to its next file.
pub(crate) trait Maker: Clone + Send + Sync {
    /// The file to write after `old`, which is full or in trouble; the newest one when there is no `old`.
    fn successor(&self, old: Option<&StoreFile>) -> Result<StoreFile, Error>;

    /// Whether files that are no longer written may be deleted by the writers themselves.
    fn retires(&self) -> bool;
}

/// One process's share in a recording.
pub(crate) struct Keeper<M: Maker> {
    maker: M,
    pid: u32,
    state: Mutex<State>,
    owed: UnrecordedLoss,
    heir: Mutex<Weak<Keeper<M>>>,
}

struct State {
    current: Arc<StoreFile>,
    retry_at: u64,
    pause: u64,
    trouble: LossReason,
}

/// Losses that no file could take note of yet.
#[derive(Default)]
struct UnrecordedLoss {
    records: AtomicU64,
    bytes: AtomicU64,
    reason: AtomicU64,
}

impl<M: Maker> Keeper<M> {
    pub(crate) fn new(maker: M, file: Arc<StoreFile>) -> Arc<Self> {
        let pid = process::pid();
        file.header().register(pid);
        let state = State { current: file, retry_at: 0, pause: RETRY_MS, trouble: LossReason::Other };
        let (state, heir) = (Mutex::new(state), Mutex::new(Weak::new()));
        Arc::new(Keeper { maker, pid, state, owed: UnrecordedLoss::default(), heir })
    }

    /// The keeper for this process: itself, or in a forked child one that all handles from the parent find here.
    pub(crate) fn home(self: &Arc<Self>, file: Option<&Arc<StoreFile>>) -> Result<Arc<Self>, Error> {
        if self.pid == process::pid() {
            return Ok(self.clone());
        }
        let mut heir = try_often(&self.heir);
        if let Some(found) =
            heir.as_deref().and_then(Weak::upgrade).filter(|found| found.pid == process::pid())
        {
            return Ok(found);
        }
        let inherited = || try_often(&self.state).map(|state| state.current.clone());
        let file = match file.cloned().or_else(inherited) {
            Some(file) => file,
            None => Arc::new(self.maker.successor(None)?),
        };
        let home = Keeper::new(self.maker.clone(), file);
        if let Some(heir) = &mut heir {
            **heir = Arc::downgrade(&home);
        }
        Ok(home)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn maker(&self) -> &M {
        &self.maker
    }

    pub(crate) fn current(&self) -> Arc<StoreFile> {
        lock(&self.state).current.clone()
    }

    /// The file that follows `old`, made by us unless another thread or process was faster.
    pub(crate) fn after(&self, old: &Arc<StoreFile>) -> Result<Arc<StoreFile>, LossReason> {
        let mut state = lock(&self.state);
        if !Arc::ptr_eq(&state.current, old) {
            return Ok(state.current.clone());
        }
        let now = process::coarse_ms();
        if now < state.retry_at {
            return Err(state.trouble);
        }
        match self.maker.successor(Some(old)) {
            Ok(file) => {
                file.header().register(self.pid);
                let file = Arc::new(file);
                (state.retry_at, state.pause) = (0, RETRY_MS);
                // One pointer changes, and the old file is released only afterwards: a child forked at any moment finds a
                // file here that it owns a share of.
                let old = mem::replace(&mut state.current, file.clone());
                drop(state);
                drop(old);
                Ok(file)
            }
            Err(error) => {
                state.trouble = error.loss_reason();
                state.retry_at = now + state.pause;
                state.pause = (state.pause * 2).min(RETRY_MOST_MS);
                Err(state.trouble)
            }
        }
    }

    /// Takes note of a loss until a file can.
    pub(crate) fn owe(&self, loss: Loss) {
        self.owed.records.fetch_add(loss.records, Ordering::Relaxed);
        self.owed.bytes.fetch_add(loss.bytes, Ordering::Relaxed);
        self.owed.reason.store(loss.reason.map_or(0, LossReason::code), Ordering::Relaxed);
    }

    /// Writes what is owed into a file.
    pub(crate) fn settle(&self, file: &StoreFile) {
        let records = self.owed.records.swap(0, Ordering::Relaxed);
        if records == 0 {
            return;
        }
        let bytes = self.owed.bytes.swap(0, Ordering::Relaxed);
        let reason = LossReason::from_code(self.owed.reason.swap(0, Ordering::Relaxed));
        file.header().lose(Loss { records, bytes, reason });
    }
}

impl<M: Maker> Drop for Keeper<M> {
    fn drop(&mut self) {
        // In a forked child this is the parent's; the parent continues.
        if self.pid == process::pid() {
            let file = self.current();
            self.settle(&file);
            file.close(self.pid);
        }
    }
}

/// Locks without parking. The critical sections are short, but for the making of a file.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => thread::sleep(WAIT),
        }
    }
}

/// Locks what may be locked for ever. `None` when it seems to be.
fn try_often<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..INHERITED_LOCK_TRIES {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(WAIT),
        }
    }
    None
}
