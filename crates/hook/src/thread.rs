//! The area of one thread, and how a hook is entered and left. Must never wait or allocate on entry.
//!
//! An area belongs to one thread at a time. When the thread ends, the area goes into a pool and a later thread continues with its
//! stream, so that the stacks it already knows need not be written again.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};

use stormlog_capture::record::definition;

use crate::backward::{EngineThread, LastBackward};
use crate::nodes::Nodes;
use crate::session::{self, EPOCH, State};
use crate::stacks::Stacks;
use crate::sys;
use crate::tls;
use crate::writer::Writer;

/// Not inside a hook.
pub const IDLE: u32 = 0;
/// Inside the real function, or in work that may ask for memory: what an allocator asks of another one, or of the kernel, is part of a request
/// that is recorded already.
pub const QUIET: u32 = 1;
/// A record is being written. Only a signal handler can enter now; its event is counted as lost.
pub const WRITING: u32 = 2;

/// The C library runs destructors of thread-specific data this often (`PTHREAD_DESTRUCTOR_ITERATIONS`).
const LAST_ROUND: u32 = 4;

/// What one thread needs to record.
#[repr(C)]
pub struct Thread {
    /// The recording this area was set up for. Zero in a forked child, like everything here.
    epoch: AtomicU32,
    /// The same, 0 where the host's memory is not recorded.
    host_epoch: AtomicU32,
    state: AtomicU32,
    /// Not 0: libraries may be loaded or unloaded in a call whose frame is at this address.
    pub loading: usize,
    /// Where that call returns to.
    pub returns_to: usize,
    /// Events of this thread since the call began.
    pub events_inside: u32,
    /// The loader's counts of libraries added and removed before the call.
    pub counters_before: (u64, u64),
    /// The records.
    pub writer: Writer,
    /// Bytes until the next sample.
    pub countdown: i64,
    /// For drawing the next sample.
    pub seed: u64,
    /// The tree of stacks of the stream.
    pub nodes: Nodes,
    /// Last stacks, for comparing.
    pub stacks: Stacks,
    /// By number: the devices that the stream names.
    pub devices: u64,
    /// The last stack that was taken from the caller of an autograd engine.
    pub backward: LastBackward,
    /// Whether it is a thread of an autograd engine.
    pub engine: EngineThread,
    stream_of: u32,
    /// The thread as the C library and as the kernel know it.
    handle: AtomicU64,
    kernel_id: AtomicU64,
    /// The destructors of the thread have started: it may exit without another call of a hook.
    ending: bool,
    /// How often the thread's destructor has run.
    rounds: u32,
    next: AtomicPtr<Thread>,
    next_in_pool: *mut Thread,
}

/// The thread inside a hook; leaves it when dropped.
pub struct Inside {
    thread: NonNull<Thread>,
}

/// Why a thread enters the recorder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A request for host memory. Symbols may be looked up meanwhile.
    Request,
    /// A host block is freed. Symbols are never looked up: the C library frees blocks while it looks up symbols itself.
    Release,
    /// Libraries are loaded or unloaded, which is followed whatever is recorded. Symbols may be looked up.
    Library,
    /// Anything but host memory (device memory, thread names, …): recorded also where host memory is not. The caller may hold locks, so the loader's lock is
    /// never taken.
    Report,
}

impl Inside {
    /// Enters the recorder for a request. `None`: this call must not be recorded.
    #[inline(always)]
    pub fn enter() -> Option<Self> {
        Self::enter_for(Purpose::Request)
    }

    /// Enters the recorder because libraries are loaded or unloaded.
    #[inline]
    pub fn enter_library() -> Option<Self> {
        Self::enter_for(Purpose::Library)
    }

    /// Enters the recorder for a fact about this thread (its name); `None` where the thread has no other records.
    pub fn enter_if_recorded() -> Option<Self> {
        if EPOCH.load(Ordering::Acquire) == 0 || session::options().host {
            Self::enter()
        } else if tls::get() > tls::ENDING {
            Self::enter_report()
        } else {
            None
        }
    }

    /// Enters the recorder for anything but host memory ([`Purpose::Report`]).
    #[inline]
    pub fn enter_report() -> Option<Self> {
        let word = tls::get();
        if word > tls::ENDING
            && let Some(thread) = NonNull::new(word as *mut Thread)
        {
            // SAFETY: above `ENDING` the word is this thread's area, which stays mapped as long as the thread can record.
            let area = unsafe { thread.as_ref() };
            if area.state.load(Ordering::Relaxed) == IDLE {
                area.state.store(QUIET, Ordering::Release);
                compiler_fence(Ordering::SeqCst);
                if area.epoch.load(Ordering::Relaxed) == EPOCH.load(Ordering::Relaxed) {
                    return Some(Self { thread });
                }
                area.state.store(IDLE, Ordering::Release);
            }
        }
        enter_slowly(word, Purpose::Report)
    }

    /// Enters the recorder for a free. As [`enter`](Self::enter), but symbols are never looked up: the C library frees blocks while it looks up
    /// symbols itself.
    #[inline(always)]
    pub fn enter_release() -> Option<Self> {
        Self::enter_for(Purpose::Release)
    }

    #[inline(always)]
    fn enter_for(purpose: Purpose) -> Option<Self> {
        let word = tls::get();
        if word > tls::ENDING
            && let Some(thread) = NonNull::new(word as *mut Thread)
        {
            // SAFETY: above `ENDING` the word is this thread's area, which stays mapped as long as the thread can record.
            let area = unsafe { thread.as_ref() };
            let state = area.state.load(Ordering::Relaxed);
            // The two loads after the store of the state would be a race with `stop`, were it not for its barrier.
            if state == IDLE && area.loading == 0 {
                area.state.store(QUIET, Ordering::Release);
                compiler_fence(Ordering::SeqCst);
                if area.host_epoch.load(Ordering::Relaxed) == EPOCH.load(Ordering::Relaxed) {
                    return Some(Self { thread });
                }
                area.state.store(IDLE, Ordering::Release);
            } else if state == QUIET {
                return None; // one allocator asks another
            }
        }
        enter_slowly(word, purpose)
    }

    /// The area, for writing a record.
    #[inline(always)]
    pub fn record<T>(&mut self, write: impl FnOnce(&mut Thread) -> T) -> T {
        self.with(WRITING, write)
    }

    /// The area, for what no record is written for. A signal handler finds the thread inside and leaves the area alone.
    #[inline(always)]
    pub fn area(&mut self) -> &mut Thread {
        // SAFETY: only this thread uses its area, and inside of a hook its signal handlers do not.
        unsafe { self.thread.as_mut() }
    }

    /// The area, for writing records in work that may itself ask for memory.
    pub fn record_quietly<T>(&mut self, write: impl FnOnce(&mut Thread) -> T) -> T {
        self.with(QUIET, write)
    }

    #[inline(always)]
    fn with<T>(&mut self, state: u32, write: impl FnOnce(&mut Thread) -> T) -> T {
        // SAFETY: only this thread uses its area, and the state keeps a signal handler out while the reference lives.
        let thread = unsafe { self.thread.as_mut() };
        thread.state.store(state, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        let result = write(thread);
        compiler_fence(Ordering::SeqCst);
        thread.state.store(QUIET, Ordering::Release);
        result
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the area of this thread, which is given to another only after this thread has left it.
        unsafe { self.thread.as_ref() }.state.store(IDLE, Ordering::Release);
    }
}

/// Everything that is not the plain case: a new thread, a forked child, a signal handler, a library that was loaded.
#[cold]
#[inline(never)]
fn enter_slowly(word: usize, purpose: Purpose) -> Option<Inside> {
    let epoch = EPOCH.load(Ordering::Acquire);
    if word == tls::IGNORED {
        return None;
    }
    if epoch == 0 {
        session::report_truncation();
        return None;
    }
    let mine = if word > tls::ENDING { word as *mut Thread } else { null_mut() };
    let is_left_out = matches!(purpose, Purpose::Request | Purpose::Release) && !session::options().host;
    // SAFETY: the word is thread-local: `mine` is null or this thread's own area, which no other thread frees.
    if is_left_out && unsafe { mine.as_ref() }.is_none_or(|area| area.loading == 0) {
        return None;
    }
    if let Some(thread) = NonNull::new(mine) {
        // SAFETY: the area of this thread, which is given to another only after this thread has left it.
        let area = unsafe { thread.as_ref() };
        let before = area.state.load(Ordering::Acquire);
        if before != IDLE {
            // What one allocator asks of another is recorded already; a device's memory is not.
            if before == WRITING || purpose == Purpose::Report {
                session::lost(1);
            }
            return None;
        }
        if area.epoch.load(Ordering::Relaxed) == epoch {
            area.state.store(QUIET, Ordering::Release);
            let mut inside = Inside { thread };
            if matches!(purpose, Purpose::Request | Purpose::Library) && area.loading != 0 {
                let errno = crate::libc_symbols::errno();
                inside.record_quietly(crate::loader::look);
                crate::libc_symbols::set_errno(errno);
            }
            return (!is_left_out).then_some(inside);
        }
    }
    if is_left_out {
        return None;
    }
    let errno = crate::libc_symbols::errno();
    // SAFETY: `attach` is given this thread's own area or none.
    let thread = NonNull::new(unsafe { attach(mine, word == tls::ENDING) })?;
    // SAFETY: `attach` returned the area of this thread, which is given to another only after this thread has left it.
    let area = unsafe { thread.as_ref() };
    area.state.store(QUIET, Ordering::Release);
    let mut inside = Inside { thread };
    inside.record(|thread| {
        thread.write_name(None);
        crate::loader::look_soon(thread);
    });
    crate::libc_symbols::set_errno(errno);
    Some(inside)
}

/// Gives this thread an area for the current recording. Null when there is none.
///
/// # Safety
/// `mine` is null or this thread's area (of an earlier recording, or cleared by a fork).
unsafe fn attach(mine: *mut Thread, ending: bool) -> *mut Thread {
    let Some(state) = session::current() else { return null_mut() };
    let before = tls::get();
    tls::set(tls::IGNORED);
    state.attaching.fetch_add(1, Ordering::SeqCst);
    let epoch = EPOCH.load(Ordering::SeqCst);
    let thread = if epoch != 0 && state.ready() {
        // SAFETY: the caller guarantees that `mine` is null or this thread's own area.
        unsafe { set_up(state, mine, epoch, ending) }
    } else {
        null_mut()
    };
    state.attaching.fetch_sub(1, Ordering::SeqCst);
    // A thread that got no area tries again at its next event, unless it has one of an earlier recording.
    tls::set(if thread.is_null() { before } else { thread as usize });
    thread
}

/// # Safety
/// As [`attach`].
unsafe fn set_up(state: &State, mine: *mut Thread, epoch: u32, ending: bool) -> *mut Thread {
    let mut thread = if mine.is_null() { state.alone(|| take_from_pool(state)) } else { mine };
    let fresh = thread.is_null();
    if fresh {
        thread = sys::map_private(size_of::<Thread>().next_multiple_of(4096)).cast();
    }
    // SAFETY: null, or an area that is this thread's alone: fresh, its own, or just taken out of the pool. Zeroes are a valid area.
    let Some(area) = (unsafe { thread.as_mut() }) else {
        session::lost(1);
        return null_mut();
    };
    let listed = area.stream_of != 0;
    if area.stream_of != epoch {
        area.stream_of = epoch;
        area.nodes.clear();
        area.stacks.clear();
        area.devices = 0;
        area.backward = LastBackward::NONE;
        area.writer.begin(state.next_stream());
    }
    let kernel_id = sys::thread();
    area.writer.begin_thread(kernel_id);
    area.stacks.begin_thread();
    area.engine = EngineThread::Unasked;
    area.kernel_id.store(kernel_id, Ordering::Relaxed);
    // SAFETY: `pthread_self` has no precondition.
    area.handle.store(unsafe { libc::pthread_self() }, Ordering::Relaxed);
    area.ending = ending;
    area.rounds = 0;
    area.loading = 0;
    area.seed = sys::random() | 1;
    area.countdown = crate::sample::draw(&mut area.seed);
    area.state.store(IDLE, Ordering::Release);
    area.epoch.store(epoch, Ordering::Release);
    let host_epoch = if session::options().host { epoch } else { 0 };
    area.host_epoch.store(host_epoch, Ordering::Release);
    if !listed {
        // A forked child's own area and a fresh one are not in the list yet.
        state.alone(|| {
            area.next.store(state.threads.load(Ordering::Relaxed), Ordering::Relaxed);
            state.threads.store(thread, Ordering::Release);
        });
    }
    END.on_exit_of_this_thread(thread);
    thread
}

fn take_from_pool(state: &State) -> *mut Thread {
    let first = state.pool.load(Ordering::Relaxed);
    // SAFETY: areas in the pool are mapped and belong to no thread; the lock is held.
    if let Some(area) = unsafe { first.as_mut() } {
        state.pool.store(area.next_in_pool, Ordering::Relaxed);
        return first;
    }
    let mut at = state.threads.load(Ordering::Acquire);
    // SAFETY: areas in the list stay mapped. One whose thread no longer exists is not used.
    while let Some(area) = unsafe { at.as_mut() } {
        if area.ending && is_gone(area.writer.thread) {
            area.ending = false;
            area.writer.close();
            return at;
        }
        at = area.next.load(Ordering::Relaxed);
    }
    null_mut()
}

fn is_gone(thread: u64) -> bool {
    // SAFETY: signal 0 sends nothing; the call only checks that the thread exists.
    let asked =
        unsafe { sys::call(libc::SYS_tgkill, [sys::process() as usize, thread as usize, 0, 0, 0, 0]) };
    asked == Err(libc::ESRCH)
}

/// The key whose destructor runs when a thread ends.
struct ThreadEnd(AtomicU32);
static END: ThreadEnd = ThreadEnd(AtomicU32::new(0));

impl ThreadEnd {
    fn on_exit_of_this_thread(&self, thread: *mut Thread) {
        let key = self.0.load(Ordering::Acquire);
        if key > 0 {
            // SAFETY: the key was made and is never deleted; this may allocate, which is ignored here.
            unsafe { libc::pthread_setspecific(key - 1, thread.cast()) };
        }
    }
}

/// Creates what [`Thread`]s share; once per process.
pub fn prepare() {
    if END.0.load(Ordering::Acquire) == 0 {
        let mut key = 0;
        // SAFETY: `key` is filled; the destructor lives as long as this library, which is never unloaded.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
            END.0.store(key + 1, Ordering::Release);
        }
    }
}

extern "C" fn thread_ends(thread: *mut libc::c_void) {
    let word = tls::get();
    if word <= tls::ENDING || word != thread as usize {
        return;
    }
    // SAFETY: the word is this thread's area, and the thread is not inside a hook.
    let area = unsafe { &mut *(word as *mut Thread) };
    area.rounds += 1;
    if area.rounds < LAST_ROUND {
        // Other destructors may still allocate: their records go into the same slot, and this one runs once more.
        tls::set(tls::IGNORED);
        END.on_exit_of_this_thread(area);
        tls::set(word);
        return;
    }
    leave(area);
    tls::set(tls::ENDING);
}

/// Gives the area of this thread back.
fn leave(area: &mut Thread) {
    let word = core::ptr::from_mut(area);
    tls::set(tls::IGNORED);
    if let Some(state) = session::current()
        && area.stream_of != 0
    {
        // Stopping looks at areas too: it must not do so in the middle.
        state.attaching.fetch_add(1, Ordering::SeqCst);
        if area.epoch.load(Ordering::SeqCst) == EPOCH.load(Ordering::SeqCst) {
            area.writer.close();
        }
        area.ending = false;
        area.host_epoch.store(0, Ordering::Release);
        area.epoch.store(0, Ordering::Release);
        state.alone(|| {
            area.next_in_pool = state.pool.load(Ordering::Relaxed);
            state.pool.store(word, Ordering::Relaxed);
        });
        state.attaching.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The kernel's number of a thread that is recorded.
pub fn kernel_id(handle: libc::pthread_t) -> Option<u64> {
    let mut at = session::current()?.threads.load(Ordering::Acquire);
    // SAFETY: areas in the list stay mapped; what is read is atomic.
    while let Some(area) = unsafe { at.as_ref() } {
        let recorded = area.epoch.load(Ordering::Acquire) == EPOCH.load(Ordering::Relaxed);
        if recorded && area.handle.load(Ordering::Relaxed) == handle {
            return Some(area.kernel_id.load(Ordering::Relaxed));
        }
        at = area.next.load(Ordering::Relaxed);
    }
    None
}

/// The end of the mapped slots of the thread whose mapping contains `address`.
pub fn end_of_slots_at(state: &State, address: usize) -> Option<usize> {
    let mut at = state.threads.load(Ordering::Acquire);
    // SAFETY: areas in the list stay mapped; where a thread writes is only compared.
    while let Some(area) = unsafe { at.as_ref() } {
        let (start, bytes) = area.writer.mapping();
        if (start..start + bytes).contains(&address) {
            return Some(start + bytes);
        }
        at = area.next.load(Ordering::Relaxed);
    }
    None
}

/// Waits a bounded time until no thread is inside a hook, then seals every slot. Called with `EPOCH` 0. False: a thread did not leave its hook.
pub fn quiesce(state: &State) -> bool {
    sys::barrier();
    let mut attempts_left = 1000;
    // One look that finds a thread outside is enough: a thread that enters after it sees that nothing is recorded and leaves again, so a
    // second look could find it there for an instant.
    let mut wait = |busy: &dyn Fn() -> bool| {
        while busy() {
            if attempts_left == 0 {
                return false;
            }
            attempts_left -= 1;
            sys::pause(1_000_000);
        }
        true
    };
    let mut all = wait(&|| state.attaching.load(Ordering::SeqCst) != 0);
    let mut at = state.threads.load(Ordering::Acquire);
    // SAFETY: areas in the list stay mapped; a thread outside the hooks does not touch its area while nothing is recorded.
    while let Some(area) = unsafe { at.as_mut() } {
        if wait(&|| area.state.load(Ordering::Acquire) != IDLE) {
            area.writer.close();
            area.writer.unmap();
            area.nodes.clear();
        } else {
            all = false;
        }
        at = area.next.load(Ordering::Relaxed);
    }
    all
}

/// Whether nothing of this thread is recorded.
pub fn is_ignored() -> bool {
    tls::get() == tls::IGNORED
}

/// From now on nothing (or everything again) of this thread is recorded.
pub fn ignore(ignore: bool) {
    let word = tls::get();
    if !ignore {
        if word == tls::IGNORED {
            tls::set(tls::FRESH);
        }
        return;
    }
    if word > tls::ENDING {
        // SAFETY: the word is this thread's area, and the thread is not inside a hook.
        leave(unsafe { &mut *(word as *mut Thread) });
    }
    tls::set(tls::IGNORED);
}

impl Thread {
    /// Writes the name of this thread, or the one given.
    pub fn write_name(&mut self, name: Option<&[u8]>) {
        let mut buffer = [0_u8; 16];
        let name = name.unwrap_or_else(|| {
            // SAFETY: the kernel writes at most sixteen bytes, the last of them zero.
            let _ = unsafe {
                sys::call(
                    libc::SYS_prctl,
                    [libc::PR_GET_NAME as usize, buffer.as_mut_ptr() as usize, 0, 0, 0, 0],
                )
            };
            let length = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
            &buffer[..length]
        });
        self.writer.definition(definition::THREAD_NAME, self.writer.thread, &[name]);
    }
}
