//! The recording of this process: its live file, the slots in it, and the end. Must never overwrite a file or fail the program.
//!
//! [`State`] is in memory that the kernel clears in a forked child. A child therefore finds a recording without a process id and
//! begins a file of its own before it records anything, however it was forked.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use stormlog_capture::layout::{
    DIRECTORY, HEADER_SIZE, LIVE_MAGIC, MAX_SLOTS, SLOT_SIZE, SLOTS, VERSION, flags, header, slot_state,
    state,
};

use stormlog_model::scrub::{REDACTED, is_plain_argument};

use crate::descriptor::{self, Opened};
use crate::options::{Options, Text};
use crate::sys;
use crate::thread::Thread;

/// A thread that finds no free slot in a bounded file waits for the compactor in this many steps ...
const STEPS: u32 = 1000;
/// ... of this many nanoseconds.
const STEP: i64 = 1_000_000;
/// Slots of a bounded file for each thread, however small the bound, and ...
const SLOTS_A_THREAD: u32 = 2;
/// ... those that may wait for the compactor besides.
const WAITING_SLOTS: u32 = 32;
const PAGE: usize = 4096;

/// The recording that threads write for; 0 when there is none. Every event compares it with its thread's.
pub static EPOCH: AtomicU32 = AtomicU32::new(0);

static STATE: AtomicPtr<State> = AtomicPtr::new(null_mut());
static RECORDINGS: AtomicU32 = AtomicU32::new(0);
static OPTIONS: Guarded<Options> = Guarded(core::cell::UnsafeCell::new(Options::EMPTY));
static PRELOADED: AtomicU32 = AtomicU32::new(0);
/// Survives a fork, so that the child can close what it inherited.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// A value that is only written while nothing is recorded.
struct Guarded<T>(core::cell::UnsafeCell<T>);
// SAFETY: written only in `start`, before `EPOCH` says that anything is recorded; read only while it does.
unsafe impl<T> Sync for Guarded<T> {}

// SAFETY: all fields are atomic or guard themselves, but `path`, which is written before `process` is published and only read after.
unsafe impl Sync for State {}

/// What a recording knows about itself.
#[repr(C)]
pub struct State {
    lock: AtomicU32,
    /// 0 until the file is there; 0 again in a forked child.
    process: AtomicU32,
    /// Header and directory of the live file.
    header: AtomicPtr<u8>,
    start: AtomicU64,
    /// Ties the live file to the finished one.
    id: AtomicU64,
    /// Locks that threads of the parent held at the fork were released in this process ([`State::adopt`]); true from the start where it was not forked.
    adopted: AtomicBool,
    /// One of the three below.
    cut: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
    /// The path of the live file, written before `process`.
    path: core::cell::UnsafeCell<Text>,
    /// No slot of a bounded file was handed back in time: records are dropped until one is.
    starved: AtomicBool,
    next_stream: AtomicU32,
    /// Threads being set up, which [`Thread`]'s list does not show yet.
    pub attaching: AtomicU32,
    /// All thread areas.
    pub threads: AtomicPtr<Thread>,
    /// Areas without a thread.
    pub pool: AtomicPtr<Thread>,
    /// Names of code objects already written.
    pub codes: crate::code_objects::Codes,
    /// Addresses of sampled blocks.
    pub sampled: crate::sample::Sampled,
    /// Names the logical times.
    pub logical_clock: crate::logical_clock::LogicalClock,
    /// The stream says which Python runs.
    pub python_announced: AtomicBool,
    /// What is known of the loader.
    pub modules: crate::loader::Modules,
    /// Loaded libraries that the stream names.
    pub written: crate::native::Written,
    /// The devices whose memory is reported.
    pub devices: crate::devices::Devices,
    /// The callers of an autograd engine.
    pub backward: crate::backward::Backward,
}

/// The file is whole.
const WHOLE: u32 = 0;
/// It was truncated, and its header does not record that yet.
const TRUNCATED: u32 = 1;
/// It was truncated, and its header records that where it could be written.
const TRUNCATED_AND_REPORTED: u32 = 2;

/// The recording's state; `None` before the first recording.
#[inline]
pub fn current() -> Option<&'static State> {
    // SAFETY: set once to a mapping that is never given back; every field may be zero and is safe to share.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// The options of the recording.
#[inline]
pub fn options() -> &'static Options {
    // SAFETY: the options are written before a recording begins and not while one runs (`Guarded`).
    unsafe { &*OPTIONS.0.get() }
}

impl State {
    /// Runs `work` alone. Never held across anything that waits.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        while self.lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            sys::give_way();
        }
        let result = work();
        self.lock.store(0, Ordering::Release);
        result
    }

    /// Number of the next stream.
    pub fn next_stream(&self) -> u32 {
        self.next_stream.fetch_add(1, Ordering::Relaxed)
    }

    /// True when the file of this process is there; a forked child makes its own here.
    pub fn ready(&self) -> bool {
        if self.process.load(Ordering::Acquire) != 0 {
            return true;
        }
        self.alone(|| {
            if self.process.load(Ordering::Acquire) != 0 {
                return true;
            }
            self.adopt();
            let begun = EPOCH.load(Ordering::Acquire) != 0 && self.begin().is_ok();
            if !begun {
                EPOCH.store(0, Ordering::Release);
            }
            begun
        })
    }

    /// In a forked child, once: frees what other threads held when it was forked. Called alone.
    fn adopt(&self) {
        if !self.adopted.swap(true, Ordering::AcqRel) {
            crate::stacks::after_fork();
            crate::bootstrap_heap::after_fork();
            crate::loader_lock::after_fork();
        }
    }

    /// Makes the live file and maps its head.
    fn begin(&self) -> Result<(), sys::Errno> {
        let number = RECORDINGS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: alone by the lock, or before anything is recorded; read only while `process` is set.
        let path = unsafe { &mut *self.path.get() };
        let Opened { number: descriptor, stays } = descriptor::create(options(), number, path)?;
        let head = match sys::map_file(null_mut(), descriptor, 0, SLOTS) {
            Ok(head) => head,
            Err(error) => {
                sys::close(descriptor);
                return Err(error);
            }
        };
        let inherited = DESCRIPTOR.swap(if stays { descriptor } else { -1 }, Ordering::AcqRel);
        if inherited >= 0 && sys::identity(inherited) != sys::identity(descriptor) && is_ours(inherited) {
            sys::close(inherited);
        }
        let (device, inode) = sys::identity(descriptor).unwrap_or_default();
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        INHERITED_DEVICE.store(device, Ordering::Relaxed);
        INHERITED_INODE.store(inode, Ordering::Relaxed);
        if !stays {
            sys::close(descriptor);
        }
        let process = sys::process();
        self.start.store(clock(libc::CLOCK_MONOTONIC_COARSE), Ordering::Relaxed);
        self.id.store(sys::random(), Ordering::Relaxed);
        self.cut.store(WHOLE, Ordering::Relaxed);
        self.starved.store(false, Ordering::Relaxed);
        // SAFETY: `head` is a fresh mapping of `SLOTS` bytes that no other thread knows.
        unsafe { self.fill_header(head, process, 0) };
        self.header.store(head, Ordering::Release);
        self.process.store(process, Ordering::Release);
        Ok(())
    }

    /// # Safety
    /// `head` points to `HEADER_SIZE` writable bytes that are zero.
    unsafe fn fill_header(&self, head: *mut u8, process: u32, more_flags: u32) {
        let start = self.start.load(Ordering::Relaxed);
        let since = clock(libc::CLOCK_MONOTONIC_COARSE).saturating_sub(start);
        let mut metadata = Text::default();
        describe_process(&mut metadata);
        let metadata = metadata.bytes();
        let metadata = if metadata.len() > header_space() { b"{}" } else { metadata };
        let preloaded = if PRELOADED.load(Ordering::Relaxed) != 0 { flags::PRELOADED } else { 0 };
        // SAFETY: all fields lie in the header; the version goes last, so a half-made header is not a header.
        unsafe {
            let u32_at = |offset: usize, value: u32| head.add(offset).cast::<u32>().write(value);
            let u64_at = |offset: usize, value: u64| head.add(offset).cast::<u64>().write(value);
            u32_at(header::SLOT_SIZE, SLOT_SIZE as u32);
            u32_at(header::PID, process);
            u32_at(header::FLAGS, options().flags() | preloaded | more_flags);
            u64_at(header::START_REALTIME_NS, clock(libc::CLOCK_REALTIME).saturating_sub(since));
            u64_at(header::START_MONOTONIC_NS, start);
            u64_at(header::SAMPLE_BYTES, options().sample);
            u64_at(header::PROCESS_START_TICKS, process_start());
            u64_at(header::CAPTURE_ID, self.id.load(Ordering::Relaxed));
            u32_at(header::SLOT_LIMIT, options().slot_limit());
            u32_at(header::METADATA_LEN, metadata.len() as u32);
            head.add(header::METADATA).copy_from_nonoverlapping(metadata.as_ptr(), metadata.len());
            u32_at(header::VERSION, VERSION);
            head.add(header::MAGIC).copy_from_nonoverlapping(LIVE_MAGIC.as_ptr(), LIVE_MAGIC.len());
        }
    }

    /// A field of the header; `None` when there is no file.
    fn field<T>(&self, offset: usize) -> Option<&T> {
        let head = self.header.load(Ordering::Acquire);
        // SAFETY: the header stays mapped while anyone may record; the fields asked for are aligned and atomic.
        (!head.is_null()).then(|| unsafe { &*head.add(offset).cast::<T>() })
    }

    fn directory(&self, index: usize) -> Option<&AtomicU8> {
        if index < MAX_SLOTS { self.field(DIRECTORY + index) } else { None }
    }

    /// Slots that may be in use at once.
    fn slot_limit(&self) -> usize {
        let threads = self
            .next_stream
            .load(Ordering::Relaxed)
            .saturating_mul(SLOTS_A_THREAD)
            .saturating_add(WAITING_SLOTS);
        match options().slot_limit() {
            0 => MAX_SLOTS,
            limit => limit.max(threads) as usize,
        }
    }

    /// As [`Self::take`] for one slot of a bounded file, once the compactor has handed one back. Waits a bounded time: the compactor may be dead.
    fn take_when_free(&self) -> Option<u32> {
        if options().slot_limit() == 0 {
            return None;
        }
        let steps = if self.starved.load(Ordering::Relaxed) { 0 } else { STEPS };
        for _ in 0..steps {
            sys::pause(STEP);
            if let Some(index) = self.take(1) {
                return Some(index);
            }
        }
        self.starved.store(true, Ordering::Relaxed);
        if let Some(bits) = self.field::<AtomicU32>(header::FLAGS) {
            bits.fetch_or(flags::BOUNDED, Ordering::Relaxed);
        }
        None
    }

    /// Finds this many slots in a row: those that are free, or new ones at the end.
    fn take(&self, slots: u32) -> Option<u32> {
        let count = self.field::<AtomicU32>(header::SLOT_COUNT)?;
        let mut from = 0;
        loop {
            let have = count.load(Ordering::Acquire) as usize;
            if from >= have {
                break;
            }
            // SAFETY: the directory is mapped; a stale byte only costs the compare-and-swap.
            let found = unsafe {
                let start = self.header.load(Ordering::Acquire).add(DIRECTORY + from);
                libc::memchr(start.cast(), i32::from(slot_state::FREE), have - from) as usize
            };
            if found == 0 {
                break;
            }
            from = found - self.header.load(Ordering::Acquire) as usize - DIRECTORY;
            match self.take_at(from, slots)? {
                0 => return Some(from as u32),
                taken => from += taken,
            }
        }
        let mut index = count.load(Ordering::Acquire) as usize;
        loop {
            match self.take_at(index, slots)? {
                0 => return Some(index as u32),
                taken => index += taken,
            }
        }
    }

    /// Takes the slots from `index` on. 0, or how far behind `index` to look again; `None` when there are not this many.
    fn take_at(&self, index: usize, slots: u32) -> Option<usize> {
        if index + slots as usize > self.slot_limit() {
            return None;
        }
        for ahead in 0..slots as usize {
            let entry = self.directory(index + ahead);
            let is_taken = entry.is_some_and(|entry| {
                entry
                    .compare_exchange(
                        slot_state::FREE,
                        slot_state::TAKEN,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            });
            if !is_taken {
                (index..index + ahead).filter_map(|index| self.directory(index)).for_each(give_back);
                return entry.map(|_| ahead + 1);
            }
        }
        Some(0)
    }

    /// Does something with the descriptor of the live file. Where none is kept, or the program closed it or put something else at its number,
    /// the file is opened again.
    fn with_descriptor<T>(&self, work: impl FnOnce(i32) -> Option<T>) -> Option<T> {
        let mine = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
        let kept = DESCRIPTOR.load(Ordering::Acquire);
        if kept >= 0 && sys::identity(kept) == Some(mine) {
            return work(kept);
        }
        // SAFETY: a recording that has a file has written its path, and writes it again only after this one has ended.
        let path = unsafe { &*self.path.get() };
        let Opened { number, stays } = descriptor::reopen(path.bytes(), mine)?;
        let result = work(number);
        let stored =
            stays && DESCRIPTOR.compare_exchange(kept, number, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !stored {
            sys::close(number);
        }
        result
    }
}

/// Called by the handler of SIGBUS: if `address` is where this recording writes, plain memory is put there and recording ends. What the file should say is
/// left to [`report_truncation`]: a handler has little stack.
pub fn cut_at(address: usize) -> bool {
    let Some(state) = current() else { return false };
    let page = address & !(PAGE - 1);
    let head = state.header.load(Ordering::Acquire) as usize;
    let end = if head != 0 && (head..head + SLOTS).contains(&address) {
        head + SLOTS
    } else {
        match crate::thread::end_of_slots_at(state, address) {
            Some(end) => end,
            None => return false,
        }
    };
    EPOCH.store(0, Ordering::SeqCst);
    let _ = state.cut.compare_exchange(WHOLE, TRUNCATED, Ordering::SeqCst, Ordering::Relaxed);
    sys::cover(page, end - page)
}

/// Records in the file, once, that it was truncated. A header that was lost is rewritten.
pub fn report_truncation() {
    let Some(state) = current() else { return };
    let first = state
        .cut
        .compare_exchange(TRUNCATED, TRUNCATED_AND_REPORTED, Ordering::SeqCst, Ordering::Relaxed)
        .is_ok();
    let head = state.header.load(Ordering::Acquire);
    if !first || !is_own_process() || head.is_null() {
        return;
    }
    state.with_descriptor(|descriptor| state.write_cut(head, descriptor));
    lost(1);
}

impl State {
    /// Marks the file as truncated, in its header at `head`.
    fn write_cut(&self, head: *mut u8, descriptor: i32) -> Option<()> {
        if sys::length(descriptor) >= HEADER_SIZE {
            self.field::<AtomicU32>(header::FLAGS)?.fetch_or(flags::CUT, Ordering::Relaxed);
            return Some(());
        }
        let page = sys::map_private(HEADER_SIZE);
        if page.is_null() {
            return None;
        }
        // SAFETY: a fresh mapping of this length. The head's first page is ours to replace; it shows the file again from here on.
        unsafe {
            self.fill_header(page, sys::process(), flags::CUT);
            sys::write_at(descriptor, core::slice::from_raw_parts(page, HEADER_SIZE), 0);
            let _ = sys::map_file(head, descriptor, 0, HEADER_SIZE);
        }
        sys::unmap(page, HEADER_SIZE);
        Some(())
    }
}

/// True when the recording ended because its file was truncated.
pub fn was_cut() -> bool {
    current().is_some_and(|state| state.cut.load(Ordering::Relaxed) != WHOLE)
}

static INHERITED_DEVICE: AtomicU64 = AtomicU64::new(0);
static INHERITED_INODE: AtomicU64 = AtomicU64::new(0);

/// True when the descriptor a child inherited is the parent's live file and nothing the program opened since.
fn is_ours(descriptor: i32) -> bool {
    let known = (INHERITED_DEVICE.load(Ordering::Relaxed), INHERITED_INODE.load(Ordering::Relaxed));
    sys::identity(descriptor) == Some(known)
}

/// Slots in a row with this many bytes of each on disk, taken for the caller and mapped, at `place` unless that is null.
pub fn take_slots(slots: u32, reserve: usize, place: *mut u8) -> Option<(u32, *mut u8)> {
    let state = current()?;
    let taken = state.take(slots);
    let index = if slots == 1 { taken.or_else(|| state.take_when_free()) } else { taken }?;
    state.starved.store(false, Ordering::Relaxed);
    let end = index + slots;
    let count = state.field::<AtomicU32>(header::SLOT_COUNT)?;
    // Those that were used before are in memory already.
    let is_new = end > count.load(Ordering::Acquire);
    let start = SLOTS + index as usize * SLOT_SIZE;
    let mapping = state.with_descriptor(|descriptor| {
        let bytes = (slots as usize - 1) * SLOT_SIZE + reserve;
        let is_there = reserve_bytes(descriptor, start, bytes, is_new);
        if is_there { sys::map_file(place, descriptor, start, slots as usize * SLOT_SIZE).ok() } else { None }
    });
    let Some(mapping) = mapping else {
        (index..end).for_each(return_slot);
        return None;
    };
    count.fetch_max(end, Ordering::AcqRel);
    Some((index, mapping))
}

/// Hands a slot back unused.
pub fn return_slot(index: u32) {
    if let Some(entry) = current().and_then(|state| state.directory(index as usize)) {
        give_back(entry);
    }
}

fn give_back(entry: &AtomicU8) {
    entry.store(slot_state::FREE, Ordering::Release);
}

/// Makes sure of disk space for the bytes of a slot from `from` up to `to`, and that they are in memory.
pub fn reserve_slot(index: u32, from: usize, to: usize) -> bool {
    let start = SLOTS + index as usize * SLOT_SIZE + from;
    let reserve = |descriptor| reserve_bytes(descriptor, start, to - from, true).then_some(());
    current().and_then(|state| state.with_descriptor(reserve)).is_some()
}

fn reserve_bytes(descriptor: i32, start: usize, bytes: usize, fill: bool) -> bool {
    let reserved = sys::reserve(descriptor, start, bytes).is_ok();
    // What could not be filled is usable, only slower.
    let _ = reserved && fill && sys::fill(descriptor, start, bytes);
    reserved
}

/// Marks a slot complete.
pub fn give_slot(index: u32) {
    if let Some(entry) = current().and_then(|state| state.directory(index as usize)) {
        entry.store(slot_state::FULL, Ordering::Release);
    }
}

/// Counts events that could not be recorded.
pub fn lost(events: u64) {
    if let Some(counter) = current().and_then(|state| state.field::<AtomicU64>(header::LOST_EVENTS)) {
        counter.fetch_add(events, Ordering::Relaxed);
    }
}

/// The count of requests that the supervisor has written into the header; 0 where there is no file.
#[inline]
pub fn questions() -> u64 {
    let word = current().and_then(|state| state.field::<AtomicU64>(header::QUESTIONS));
    word.map_or(0, |word| word.load(Ordering::Relaxed))
}

/// The current logical time, and its time: nanoseconds since the recording began.
pub fn logical_time() -> (crate::logical_clock::LogicalTime, u64) {
    let Some(state) = current() else { return (crate::logical_clock::LogicalTime::NEVER, 0) };
    let (time, name) = state.logical_clock.now();
    // Logical times are whole microseconds; with another origin two of them could become equal.
    (time, name.saturating_sub(state.start.load(Ordering::Relaxed) / 1000 * 1000))
}

/// True in the recorded process itself; false in a child that shares its memory (`vfork`).
pub fn is_own_process() -> bool {
    current().is_some_and(|state| state.process.load(Ordering::Acquire) == sys::process())
}

/// Writes the state of the recording into the header; `RUNNING` takes it back (an `exec` that failed).
pub fn mark(word: u32) {
    let Some(session) = current() else { return };
    let end = if word == state::RUNNING { 0 } else { clock(libc::CLOCK_MONOTONIC_COARSE) };
    if let Some(time) = session.field::<AtomicU64>(header::END_MONOTONIC_NS) {
        time.store(end, Ordering::Relaxed);
    }
    if let Some(field) = session.field::<AtomicU32>(header::STATE) {
        field.store(word, Ordering::Release);
    }
}

/// Begins a recording. Only one at a time; the caller holds the lock of starting and stopping.
pub fn start(wanted: &Options, preloaded: bool) -> Result<(), sys::Errno> {
    if current().is_none() {
        let state = sys::map_private(size_of::<State>().next_multiple_of(PAGE)).cast::<State>();
        if state.is_null() {
            return Err(libc::ENOSYS);
        }
        // SAFETY: a fresh mapping, of which all zeroes is valid. It came by no fork.
        unsafe { (*state).adopted.store(true, Ordering::Relaxed) };
        STATE.store(state, Ordering::Release);
    }
    let Some(state) = current() else { return Err(libc::ENOMEM) };
    // SAFETY: nothing is recorded now, so no thread reads the options.
    unsafe { *OPTIONS.0.get() = *wanted };
    PRELOADED.store(u32::from(preloaded), Ordering::Relaxed);
    state.next_stream.store(0, Ordering::Relaxed);
    state.codes.clear();
    state.modules.clear();
    state.written.clear();
    state.logical_clock.clear();
    state.devices.clear();
    state.backward.clear();
    state.python_announced.store(false, Ordering::Relaxed);
    crate::clock::find();
    crate::pyalloc::want(wanted.python_allocators && wanted.host);
    if wanted.sample > 0 && !state.sampled.prepare() {
        return Err(libc::ENOMEM);
    }
    state.begin()
}

/// Starts the recording of events, after [`start`]. The number distinguishes this recording from earlier ones.
pub fn open() {
    EPOCH.store(RECORDINGS.load(Ordering::Relaxed).max(1), Ordering::Release);
}

/// A forked child takes over what it inherited, before it starts or stops anything.
pub fn adopt() {
    if let Some(state) = current() {
        state.alone(|| state.adopt());
    }
}

/// Ends the file after all threads have stopped writing. A child that has recorded nothing yet has no file, but its parent's descriptor.
pub fn finish() {
    let Some(state) = current() else { return };
    mark(stormlog_capture::layout::state::STOPPED);
    let head = state.header.swap(null_mut(), Ordering::AcqRel);
    state.process.store(0, Ordering::Release);
    state.cut.store(WHOLE, Ordering::Relaxed);
    if !head.is_null() {
        sys::unmap(head, SLOTS);
    }
    let descriptor = DESCRIPTOR.swap(-1, Ordering::AcqRel);
    if descriptor >= 0 && is_ours(descriptor) {
        sys::close(descriptor);
    }
}

const fn header_space() -> usize {
    DIRECTORY - header::METADATA
}

/// Nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

/// Nanoseconds of a clock.
fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` to `time`, a local.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// JSON about the process: its command line and its parent.
fn describe_process(text: &mut Text) {
    let mut buffer = [0; 2048];
    let command = sys::read_file(b"/proc/self/cmdline\0", &mut buffer);
    let whole = command.len() < 2048;
    let command = command.strip_suffix(&[0]).unwrap_or(command);
    text.push(b"{\"command\":[");
    let mut before = None;
    for (index, argument) in command.split(|byte| *byte == 0).enumerate() {
        if index > 0 {
            text.push(b",");
        }
        let word = core::str::from_utf8(argument).ok();
        // Passwords are given on command lines; where one may be, the whole word is left out.
        let is_plain = word.is_some_and(|word| is_plain_argument(before, word));
        text.json_string(if is_plain { argument } else { REDACTED.as_bytes() });
        before = word;
    }
    text.push(if whole { b"]" } else { b"],\"command_truncated\":true" });
    if let Some(library) = crate::operators::unrecorded() {
        text.push(b",\"operator_new\":");
        text.json_string(library);
    }
    text.push(b",\"python\":null,\"parent_pid\":");
    // SAFETY: this system call takes no arguments and touches no memory of the process.
    text.number(unsafe { sys::call(libc::SYS_getppid, [0; 6]) }.unwrap_or(0) as u64);
    text.push(b"}");
}

/// Field 22 of `/proc/self/stat`.
fn process_start() -> u64 {
    let mut buffer = [0; 1024];
    let stat = sys::read_file(b"/proc/self/stat\0", &mut buffer);
    let Some(name_end) = stat.iter().rposition(|byte| *byte == b')') else { return 0 };
    let field = stat[name_end + 1..].split(|byte| *byte == b' ').nth(20);
    field.and_then(|digits| core::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or(0)
}
