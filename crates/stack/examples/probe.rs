//! A library the tests load into real interpreters: it walks the stack from inside C calls and from inside Python's own allocator,
//! and hands what it saw to the test as text.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    clippy::unwrap_used,
    reason = "a test's library: its callers are the tests, and a panic is their report"
)]

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{LazyLock, Mutex};

use stormlog_stack::line_table::line_for;
use stormlog_stack::python::{CodeSink, CodeWatch, Interpreter, PythonStack, Text, Unchanged, Unsupported};
use stormlog_stack::{Nodes, python};

#[cfg(feature = "symbols")]
#[path = "probe/merged.rs"]
pub mod merged;
#[path = "probe/native.rs"]
pub mod native;
#[path = "probe/trace.rs"]
pub mod trace;

pub static INTERPRETER: LazyLock<Result<Interpreter, Unsupported>> = LazyLock::new(Interpreter::find);
static TREE: LazyLock<Mutex<Tree>> = LazyLock::new(|| Mutex::new(Tree::default()));
static GENERATION: AtomicU32 = AtomicU32::new(1);
static DESTROYED: AtomicU64 = AtomicU64::new(0);
static READ_WITHOUT_CALL: AtomicU64 = AtomicU64::new(0);
static TURNS: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Frame {
    Python { code: u32, instruction: u32, entry: bool },
    Native(u64),
    Truncated,
}

#[derive(Default)]
pub struct Code {
    name: String,
    file: String,
    first_line: u32,
    lines: Vec<u8>,
    fingerprint: u64,
    watched: bool,
}

/// The tree of stacks, the simple way.
#[derive(Default)]
pub struct Tree {
    pub nodes: Vec<(u32, Frame)>,
    ids: HashMap<(u32, Frame), u32>,
    codes: Vec<Code>,
    by_address: HashMap<usize, u32>,
    watch: Option<CodeWatch>,
    unwatched: u64,
    no_watch: bool,
    thread_state: usize,
    last: u32,
}

// SAFETY: the watch's pointers are into the interpreter, used only from calls that hold the GIL.
unsafe impl Send for Tree {}

extern "C" fn destroyed(code: usize) {
    DESTROYED.fetch_add(1, SeqCst);
    TREE.lock().unwrap().by_address.remove(&code);
    GENERATION.fetch_add(1, SeqCst);
}

/// No test ends Python and begins it again: the hook's do.
extern "C" fn ended() {}

fn text(text: Text<'_>) -> String {
    let units = text.bytes.chunks_exact(text.kind.into()).map(|unit| {
        let mut word = [0; 4];
        word[..unit.len()].copy_from_slice(unit);
        char::from_u32(u32::from_le_bytes(word)).unwrap_or('?')
    });
    units.collect()
}

impl CodeSink for Code {
    fn code(&mut self, name: Text<'_>, file: Text<'_>, first_line: u32, lines: &[u8]) {
        (self.name, self.file, self.first_line, self.lines) =
            (text(name), text(file), first_line, lines.to_vec());
    }
}

impl Tree {
    pub fn intern(&mut self, parent: u32, frame: Frame) -> u32 {
        if self.nodes.is_empty() {
            self.nodes.push((0, Frame::Truncated));
        }
        *self.ids.entry((parent, frame)).or_insert_with(|| {
            self.nodes.push((parent, frame));
            (self.nodes.len() - 1) as u32
        })
    }

    fn watch(&mut self, interpreter: &Interpreter, address: usize) -> bool {
        if self.no_watch {
            return false;
        }
        let watch = self.watch.get_or_insert_with(|| CodeWatch::new(interpreter, destroyed, ended));
        // SAFETY: the thread state is the caller's own, read a moment ago with the GIL held, and `address` a code object of its stack.
        unsafe { watch.watch(interpreter, self.thread_state as *const u8, address, libc::malloc) }
    }

    fn code(&mut self, address: usize) -> u32 {
        let interpreter = INTERPRETER.as_ref().unwrap();
        if let Some(&id) = self.by_address.get(&address) {
            let known = &self.codes[id as usize];
            if known.watched {
                return id;
            }
            // SAFETY: a code object on the walked stack, alive while the GIL is held.
            if known.fingerprint == unsafe { interpreter.fingerprint(address) } {
                let watched = self.watch(interpreter, address);
                self.codes[id as usize].watched = watched;
                self.unwatched -= u64::from(watched);
                return id;
            }
            self.unwatched -= 1;
        }
        let mut code = Code::default();
        // SAFETY: a code object on the walked stack, alive while the GIL is held.
        unsafe {
            interpreter.describe(address, &mut code);
            code.fingerprint = interpreter.fingerprint(address);
        }
        code.watched = self.watch(interpreter, address);
        self.unwatched += u64::from(!code.watched);
        self.codes.push(code);
        let id = (self.codes.len() - 1) as u32;
        self.by_address.insert(address, id);
        id
    }
}

impl Nodes for Tree {
    fn python(&mut self, parent: u32, code: usize, instruction: u32, entry: bool) -> u32 {
        let code = self.code(code);
        self.last = code;
        self.intern(parent, Frame::Python { code, instruction, entry })
    }
    fn unwatched(&self) -> bool {
        !self.codes[self.last as usize].watched
    }
    fn native(&mut self, parent: u32, address: u64) -> u32 {
        self.intern(parent, Frame::Native(address))
    }
    fn truncated(&mut self, parent: u32) -> u32 {
        self.intern(parent, Frame::Truncated)
    }
}

thread_local! {
    static STACK: Box<UnsafeCell<PythonStack>> = Box::new(UnsafeCell::new(PythonStack::new()));
}

/// The node of the stack by the quickest way, which need not know it but must not be wrong.
fn unasked(interpreter: &Interpreter, state: *const u8, generation: u32) -> Option<u32> {
    // SAFETY: the state is what Python just said of the calling thread, whose stack is its own.
    let found = unsafe {
        let read = interpreter.own_state(state)?.read();
        assert!(read.is_null() || read == state, "another state was read than Python says");
        if read.is_null() {
            return None;
        }
        STACK.with(|stack| {
            let stack = &mut *stack.get();
            let known = stack.generation() == generation;
            match interpreter.has_entries() {
                true if known => quickest::<true>(stack, interpreter, read),
                false if known => quickest::<false>(stack, interpreter, read),
                _ => None,
            }
        })
    };
    READ_WITHOUT_CALL.fetch_add(u64::from(found.is_some()), SeqCst);
    found
}

/// # Safety
/// As for `PythonStack::unchanged`.
unsafe fn quickest<const ENTRY: bool>(
    stack: &mut PythonStack,
    interpreter: &Interpreter,
    state: *const u8,
) -> Option<u32> {
    // SAFETY: the caller guarantees that `state` is this thread's and not null, and the generation what it was at the last
    // call.
    unsafe {
        let shallow = stack.unchanged::<ENTRY, false>(interpreter, state);
        let deep = stack.unchanged::<ENTRY, true>(interpreter, state);
        assert!(shallow == deep || shallow == Unchanged::TooDeep, "{shallow:?} {deep:?}");
        match deep {
            Unchanged::Yes(node) => Some(node),
            Unchanged::ButForAStep => stack.after_step::<ENTRY>(interpreter),
            _ => None,
        }
    }
}

/// How often the quickest way knew the stack.
#[unsafe(no_mangle)]
pub extern "C" fn probe_unasked() -> u64 {
    READ_WITHOUT_CALL.load(SeqCst)
}

/// The thread's stack through the cache, and the plain walk's.
pub fn both_walks(tree: &mut Tree) -> (u32, Vec<Frame>) {
    let interpreter = INTERPRETER.as_ref().unwrap();
    // SAFETY: every probe is called by the interpreter's own thread.
    let state = unsafe { interpreter.thread_state() };
    tree.thread_state = state as usize;
    let generation = GENERATION.load(SeqCst);
    // With and without a native stack beside it, in turn: what is compared differs, the answer must not.
    let native = TURNS.fetch_add(1, SeqCst).is_multiple_of(2);
    let before = unasked(interpreter, state, generation);
    // SAFETY: the cell is this thread's alone and is borrowed once; the state is the calling thread's.
    let node =
        STACK.with(|stack| unsafe { (*stack.get()).current(interpreter, state, generation, native, tree) });
    for quick in [before, unasked(interpreter, state, generation)] {
        assert!(quick.is_none_or(|quick| quick == node), "the quickest way is wrong");
    }
    let mut plain = Vec::new();
    // SAFETY: the state is the calling thread's, whose frames do not move while it is in here.
    unsafe {
        interpreter.each_frame(state, |code, instruction, entry| {
            plain.push(Frame::Python { code: tree.code(code), instruction, entry });
            true
        });
    }
    (node, plain)
}

/// The frames of a node, innermost first.
pub fn frames(tree: &Tree, mut node: u32) -> Vec<Frame> {
    let mut frames = Vec::new();
    while node != 0 {
        let (parent, frame) = tree.nodes[node as usize];
        frames.push(frame);
        node = parent;
    }
    frames
}

/// Whether the cached walk saw what the plain one did; of a stack too deep to keep whole, the two ends are compared.
pub fn same(cached: &[Frame], plain: &[Frame]) -> bool {
    match cached.iter().position(|frame| *frame == Frame::Truncated) {
        None => cached == plain,
        Some(cut) => {
            let bottom = &cached[cut + 1..];
            plain.len() > cached.len()
                && cached[..cut] == plain[..cut]
                && bottom == &plain[plain.len() - bottom.len()..]
        }
    }
}

/// Hands a text over, as much of it as there is room for; its whole length.
///
/// # Safety
/// `out` has `room` bytes to write to.
pub unsafe fn give(answer: &str, out: *mut u8, room: usize) -> usize {
    let length = answer.len().min(room);
    // SAFETY: the caller guarantees that `out` has `room` bytes; no more are written.
    unsafe { std::ptr::copy_nonoverlapping(answer.as_ptr(), out, length) };
    answer.len()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_version(out: *mut u8, room: usize) -> usize {
    let answer = match &*INTERPRETER {
        Ok(interpreter) => format!("ok {:x}", interpreter.version()),
        Err(error) => format!("refused {error}"),
    };
    // SAFETY: the caller (the test, through ctypes) passes a buffer of `room` bytes, as `give` requires.
    unsafe { give(&answer, out, room) }
}

/// Writes the stack as lines of `name TAB file TAB line TAB entry`, innermost first; `...` where frames are hidden.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_walk(out: *mut u8, room: usize) -> usize {
    let mut tree = TREE.lock().unwrap();
    let (node, plain) = both_walks(&mut tree);
    let cached = frames(&tree, node);
    let mut answer = String::new();
    if !same(&cached, &plain) {
        answer.push_str("the two walks differ\n");
    }
    for frame in cached {
        match frame {
            Frame::Python { code, instruction, entry } => {
                let code = &tree.codes[code as usize];
                let line = line_for(&code.lines, code.first_line, instruction).unwrap_or(code.first_line);
                answer.push_str(&format!("{}\t{}\t{line}\t{}\n", code.name, code.file, u8::from(entry)));
            }
            _ => answer.push_str("...\n"),
        }
    }
    // SAFETY: the caller (the test, through ctypes) passes a buffer of `room` bytes, as `give` requires.
    unsafe { give(&answer, out, room) }
}

/// As `probe_walk`, on a new thread that Python never heard of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_walk_on_native_thread(out: *mut u8, room: usize) -> usize {
    let address = out as usize;
    // SAFETY: the caller's buffer outlives the thread, which is joined here.
    std::thread::spawn(move || unsafe { probe_walk(address as *mut u8, room) }).join().unwrap()
}

/// From now on no code object is watched, only compared by fingerprint.
#[unsafe(no_mangle)]
pub extern "C" fn probe_without_watch() {
    TREE.lock().unwrap().no_watch = true;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_counts(
    nodes: *mut u64,
    codes: *mut u64,
    unwatched: *mut u64,
    destroyed: *mut u64,
) {
    let tree = TREE.lock().unwrap();
    // SAFETY: the caller guarantees that all four pointers can be written to.
    unsafe {
        *nodes = tree.nodes.len() as u64;
        *codes = tree.codes.len() as u64;
        *unwatched = tree.unwatched;
        *destroyed = DESTROYED.load(SeqCst);
    }
}

/// The number of frames that are compared while the present stack does not change.
#[unsafe(no_mangle)]
pub extern "C" fn probe_compared() -> u64 {
    both_walks(&mut TREE.lock().unwrap());
    // SAFETY: the cell is this thread's alone.
    STACK.with(|stack| unsafe { (*stack.get()).compared_frames() }) as u64
}

/// Nanoseconds of processor time this thread has used.
pub fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place of our own to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds for one quick walk of the present stack, when nothing changed since the last.
#[unsafe(no_mangle)]
pub extern "C" fn probe_time(rounds: u64) -> f64 {
    let interpreter = INTERPRETER.as_ref().unwrap();
    let mut tree = TREE.lock().unwrap();
    both_walks(&mut tree);
    let generation = GENERATION.load(SeqCst);
    STACK.with(|stack| {
        let mut last = 0;
        let start = cpu_time();
        for _ in 0..rounds {
            // SAFETY: every probe is called by the interpreter's own thread.
            let state = unsafe { interpreter.thread_state() };
            // SAFETY: the cell is this thread's alone and is borrowed once; the state is the calling thread's.
            last ^= unsafe { (*stack.get()).current(interpreter, state, generation, false, &mut *tree) };
        }
        std::hint::black_box(last);
        (cpu_time() - start) / rounds as f64
    })
}

pub fn python_symbol(name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: a name that ends in a zero byte.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast::<c_char>()) }
}

pub const CAPACITY: usize = python::CAPACITY;
