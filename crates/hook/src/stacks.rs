//! Connects the walkers of `stormlog-stack` with the stream: they find frames, this assigns node ids. Must never define a node that could
//! not be written.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_void};
use core::mem::transmute;
use core::ptr::null;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stormlog_capture::record::definition;
use stormlog_stack::native::NativeStack;
use stormlog_stack::python::{CodeSink, CodeWatch, Interpreter, OwnState, PythonStack, Text};

use crate::bootstrap_heap;
use crate::clock;
use crate::code_end;
use crate::code_objects::{DeathNotice, Recheck};
use crate::injected::{self, UNRECORDED_NODE};
use crate::libc_symbols;
use crate::native;
use crate::nodes::Nodes;
use crate::pyalloc;
use crate::session;
use crate::thread::Thread;
use crate::writer::Writer;

/// How a thread's stacks are found.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StackMethod {
    /// CPython is called for the state; Python and native stacks are walked.
    Any = 0,
    /// Only Python stacks are recorded, and the thread's state is read from memory: 3.11.
    Plain311 = 1,
    /// The same, later versions.
    Plain = 2,
}

/// A thread's last stacks. All zeroes: none.
#[repr(C)]
pub struct Stacks {
    pub python: PythonStack,
    native: NativeStack,
    /// The thread state of Python that was met last.
    thread_state: *const u8,
    /// Python, and where to read the state; `None` with [`StackMethod::Any`].
    interpreter: Option<&'static Interpreter>,
    own_state: OwnState,
    /// How the stacks of this thread are found.
    pub way: StackMethod,
    /// How often records had been lost when these were walked: what was cached before that may not be in the stream.
    gaps: u32,
}

impl Stacks {
    /// Forgets them, as for a new tree.
    pub fn clear(&mut self) {
        self.python.clear();
        self.native.clear();
        self.begin_thread();
    }

    /// The area now belongs to another thread.
    pub fn begin_thread(&mut self) {
        self.thread_state = null();
        self.ask();
    }

    fn ask(&mut self) {
        (self.way, self.interpreter, self.own_state) = (StackMethod::Any, None, OwnState::NOWHERE);
    }

    /// The state of this thread, null when it has none.
    #[inline(always)]
    fn thread_state(&mut self, interpreter: &'static Interpreter, generation: u32) -> *const u8 {
        if self.way != StackMethod::Any && generation == self.python.generation() {
            // SAFETY: `own_state` was found in this thread (`begin_thread` clears it for another one), and the equal generation shows that no
            // code object has died since.
            let own = unsafe { self.own_state.read() };
            if !own.is_null() {
                return own;
            }
        }
        // SAFETY: the interpreter is never unloaded: CPython does not support it.
        self.thread_state = unsafe { interpreter.thread_state_after(self.thread_state) };
        let options = session::options();
        self.ask();
        let has_turns = clock::has_turns() || !interpreter.counts_switches();
        if !options.native && options.sample == 0 && has_turns && !pyalloc::is_wanted() {
            // SAFETY: `thread_state_after` has just returned this thread's state from the interpreter of this process.
            if let Some(known) = unsafe { interpreter.own_state(self.thread_state) } {
                (self.interpreter, self.own_state) = (Some(interpreter), known);
                self.way = if interpreter.has_entries() { StackMethod::Plain311 } else { StackMethod::Plain };
            }
        }
        self.thread_state
    }
}

/// The Python of this process.
struct Python {
    found: AtomicBool,
    /// A thread is setting the rest.
    finding: AtomicBool,
    known: UnsafeCell<Option<(Interpreter, CodeWatch)>>,
    /// `Py_GetVersion`.
    version: AtomicUsize,
}
// SAFETY: what is known is written once, by the thread that set `finding`, before `found` is set.
unsafe impl Sync for Python {}

static PYTHON: Python = Python {
    found: AtomicBool::new(false),
    finding: AtomicBool::new(false),
    known: UnsafeCell::new(None),
    version: AtomicUsize::new(0),
};

#[inline(always)]
fn known() -> Option<&'static (Interpreter, CodeWatch)> {
    // SAFETY: `known` is written before `found` is published and never after, so this read is not a race.
    if PYTHON.found.load(Ordering::Acquire) { unsafe { (*PYTHON.known.get()).as_ref() } } else { None }
}

/// The interpreter, once it is found.
#[inline(always)]
pub fn interpreter() -> Option<&'static Interpreter> {
    known().map(|(interpreter, _)| interpreter)
}

/// A forked child has only this thread, whichever was busy.
pub fn after_fork() {
    PYTHON.finding.store(PYTHON.found.load(Ordering::Acquire), Ordering::Release);
    crate::got::after_fork();
    crate::native::after_fork();
}

/// Looks for Python, once. Looks up symbols, so never while a block is freed.
pub fn find_python() {
    if interpreter().is_some() {
        return;
    }
    let found = Interpreter::find();
    // SAFETY: a zero-terminated literal; `dlsym` only looks the name up.
    let version = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"Py_GetVersion".as_ptr()) };
    let Ok(found) = found else {
        // The version of a Python whose stacks cannot be read is in the capture, too.
        PYTHON.version.store(version as usize, Ordering::Relaxed);
        return libc_symbols::forget_error();
    };
    let watch = CodeWatch::new(&found, code_is_gone, python_is_gone);
    pyalloc::find();
    crate::retention::mailbox::prepare();
    if PYTHON.finding.swap(true, Ordering::AcqRel) {
        return; // another thread found the same
    }
    // SAFETY: `finding` admits one thread; none reads it before `found`.
    unsafe { *PYTHON.known.get() = Some((found, watch)) };
    PYTHON.version.store(version as usize, Ordering::Relaxed);
    if let Some(word) = found.finalizing() {
        code_end::follow(word);
    }
    PYTHON.found.store(true, Ordering::Release);
}

/// Libraries were loaded or unloaded, perhaps Python. Writes the version of Python into the stream, once per recording.
pub fn libraries_changed(thread: &mut Thread) {
    native::libraries_changed(thread);
    if interpreter().is_none() && crate::loader::is_loaded(b"libpython") {
        find_python();
    }
    prepare();
    let Some(state) = session::current() else { return };
    let version = PYTHON.version.load(Ordering::Relaxed);
    if version == 0 || state.python_announced.swap(true, Ordering::AcqRel) {
        return;
    }
    let number = interpreter().map_or(0, |python| u64::from(python.version()));
    // SAFETY: CPython's function of this type; it gives a constant text and needs no interpreter.
    let text =
        unsafe { libc_symbols::text(transmute::<usize, unsafe extern "C" fn() -> *const c_char>(version)()) };
    thread.writer.definition(definition::PYTHON, number, &[text]);
}

/// Gets ready to walk stacks without the GIL, if this thread holds it. Where the host's memory is recorded, the first block does that; a device's memory is mostly
/// reported without the GIL, and every code object would then be identified by its fingerprint at each report.
pub fn prepare() {
    if let (false, Some((interpreter, watch))) = (session::options().host, known()) {
        // SAFETY: the interpreter is never unloaded; the state is this thread's.
        unsafe { watch.prepare(interpreter, interpreter.thread_state()) };
    }
}

extern "C" fn code_is_gone(code: usize) {
    if let Some(state) = session::current() {
        state.codes.forget(code);
    }
}

extern "C" fn python_is_gone() {
    if let Some((_, watch)) = known() {
        watch.forget();
    }
    if let Some(state) = session::current() {
        state.codes.forget_all();
    }
}

/// Python, and a thread state that was read from memory.
pub type PlainPython = (&'static Interpreter, *const u8);

/// For recordings of Python stacks alone; `None` where CPython must be called for the state.
#[inline(always)]
pub fn plain(thread: &Thread) -> Option<PlainPython> {
    let Thread { writer, stacks, .. } = thread;
    if stacks.gaps != writer.gaps {
        return None;
    }
    let (interpreter, state) = (stacks.interpreter?, session::current()?);
    if state.codes.generation() != stacks.python.generation() {
        return None;
    }
    // SAFETY: no code object has died since the state was found.
    let thread_state = unsafe { stacks.own_state.read() };
    (!thread_state.is_null()).then_some((interpreter, thread_state))
}

/// The node of a Python stack that differs from that of the last event.
///
/// # Safety
/// The stack was found to be another in this very event, of the thread whose state this is. `ENTRY` is what the interpreter says.
#[inline(always)]
pub unsafe fn changed<const ENTRY: bool>(
    thread: &mut Thread,
    (interpreter, thread_state): PlainPython,
) -> u32 {
    let Thread { writer, nodes, stacks, .. } = thread;
    let mut tree = Tree { writer, nodes, thread_state, unwatched: false };
    // SAFETY: the caller guarantees that `thread_state` is this thread's and not null, and that its stack changed in this
    // very event.
    unsafe { stacks.python.changed::<_, ENTRY>(interpreter, thread_state, &mut tree) }
}

/// The nodes of this thread's Python and native stack.
#[inline(always)]
pub fn current(thread: &mut Thread) -> (u32, u32) {
    let Thread { writer, nodes, stacks, .. } = thread;
    if stacks.gaps != writer.gaps {
        stacks.gaps = writer.gaps;
        stacks.clear();
    }
    let mut tree = Tree { writer, nodes, thread_state: null(), unwatched: false };
    let native = native::current(&mut stacks.native, &mut tree);
    let (Some((interpreter, watch)), Some(state)) = (known(), session::current()) else { return (0, native) };
    let generation = state.codes.generation();
    let thread_state = stacks.thread_state(interpreter, generation);
    if thread_state.is_null() {
        return (0, native);
    }
    pyalloc::install_if_wanted(interpreter, watch, thread_state);
    if !clock::has_turns() {
        follow_gil(interpreter, thread_state);
    }
    tree.thread_state = thread_state;
    // SAFETY: the thread state was asked for in this very event.
    let python = unsafe {
        let native = session::options().native;
        stacks.python.current(interpreter, thread_state, generation, native, &mut tree)
    };
    (python, native)
}

/// Starts to count hand-overs of the GIL, if the counter of CPython can be found from this thread.
#[cold]
fn follow_gil(interpreter: &Interpreter, thread_state: *const u8) {
    // SAFETY: the state is this thread's; where the switches of a GIL are counted is there as long as the process.
    if let Some(turns) = unsafe { interpreter.gil_switches(thread_state).map(|turns| turns.as_ref()) } {
        clock::follow(turns);
    }
}

/// The stream's stack tree as the walkers see it.
struct Tree<'a> {
    writer: &'a mut Writer,
    nodes: &'a mut Nodes,
    /// This thread's state, while its frames are walked.
    thread_state: *const u8,
    /// The death of the code object that was looked up last is not reported, so its id must be looked up at every walk.
    unwatched: bool,
}

/// Kinds of nodes, part of their keys so that two kinds never collide.
const NATIVE: u32 = u32::MAX;
const TRUNCATED: u32 = u32::MAX - 1;
const MARK: u32 = u32::MAX - 2;

/// Where in its code a frame is, as one number.
const fn detail(instruction: u32, entry: bool) -> u32 {
    instruction << 1 | entry as u32
}

impl Tree<'_> {
    /// The child of `parent` for a frame of the code with this id.
    #[inline(always)]
    fn frame(&mut self, parent: u32, id: u32, detail: u32) -> u32 {
        let writer = &mut *self.writer;
        let define = || writer.python_node(parent, id, detail >> 1, detail & 1 != 0);
        let found = self.nodes.find(parent, u64::from(id), detail, define);
        found.unwrap_or_else(|| self.writer.without(parent))
    }
}

fn tree(thread: &mut Thread) -> Tree<'_> {
    let Thread { writer, nodes, .. } = thread;
    Tree { writer, nodes, thread_state: null(), unwatched: false }
}

/// Calls `visit` for each of this thread's Python frames from the innermost outwards, with the id of its code and its [`detail`], until it answers `false`.
pub fn each_code(thread: &mut Thread, mut visit: impl FnMut(u32, u32) -> bool) {
    let (Some(known), Some(state)) = (known(), session::current()) else { return };
    let (interpreter, writer) = (&known.0, &mut thread.writer);
    // SAFETY: the interpreter is never unloaded; the state is this thread's, and so are the frames and the code they run.
    unsafe {
        let thread_state = interpreter.thread_state();
        interpreter.each_frame(thread_state, |code, instruction, entry| {
            match code_id(writer, state, known, thread_state, code) {
                Some((id, _)) => visit(id, detail(instruction, entry)),
                None => true,
            }
        });
    }
}

/// The node of a stack that [`each_code`] gave, in this thread's tree: code id and detail of each frame, the innermost first.
pub fn from_codes(thread: &mut Thread, truncated: bool, frames: &[u64]) -> u32 {
    let outer = if truncated { stormlog_stack::Nodes::truncated(&mut tree(thread), 0) } else { 0 };
    below(thread, outer, frames)
}

/// The same, below the node `outer`.
pub fn below(thread: &mut Thread, outer: u32, frames: &[u64]) -> u32 {
    let mut tree = tree(thread);
    let frame = |parent, frame: &u64| tree.frame(parent, (frame >> 32) as u32, *frame as u32);
    frames.iter().rev().fold(outer, frame)
}

/// The child of `parent` with the mark `what`, one of `record::mark`.
pub fn mark(thread: &mut Thread, parent: u32, what: u64) -> u32 {
    let Tree { writer, nodes, .. } = tree(thread);
    let found = nodes.find(parent, what, MARK, || writer.mark_node(parent, what));
    found.unwrap_or_else(|| writer.without(parent))
}

/// A native stack of one frame.
pub fn native_leaf(thread: &mut Thread, address: u64) -> u32 {
    stormlog_stack::Nodes::native(&mut tree(thread), 0, address)
}

/// The id of a code object, which is defined here if it has none, and whether its death goes unnoticed.
///
/// # Safety
/// As [`define`].
#[inline(always)]
unsafe fn code_id(
    writer: &mut Writer,
    state: &session::State,
    known: &(Interpreter, CodeWatch),
    thread_state: *const u8,
    code: usize,
) -> Option<(u32, bool)> {
    // SAFETY: the caller guarantees that `code` is a code object in use on this thread's stack, and `thread_state` this
    // thread's.
    let again =
        || unsafe { Recheck { watched: watch(known, thread_state, code), looks: looks_of(&known.0, code) } };
    // SAFETY: the caller guarantees that `code` is a code object in use on this thread's stack, and `thread_state` this
    // thread's.
    let define = |id| unsafe { define(writer, known, thread_state, code, id) };
    state.codes.id(code, again, define)
}

impl stormlog_stack::Nodes for Tree<'_> {
    fn python(&mut self, parent: u32, code: usize, instruction: u32, entry: bool) -> u32 {
        let (Some(state), Some(known)) = (session::current(), known()) else { return parent };
        if parent == UNRECORDED_NODE {
            return parent;
        }
        // SAFETY: a walker only names code objects in use on this thread's stack, whose state this is.
        let found = unsafe { code_id(self.writer, state, known, self.thread_state, code) };
        let Some((id, alone)) = found else { return self.writer.without(parent) };
        self.unwatched = alone;
        match id {
            injected::code::LEFT_OUT => parent,
            injected::code::UNRECORDED => UNRECORDED_NODE,
            _ => self.frame(parent, id, detail(instruction, entry)),
        }
    }

    fn unwatched(&self) -> bool {
        self.unwatched
    }

    fn native(&mut self, parent: u32, address: u64) -> u32 {
        let writer = &mut *self.writer;
        let found = self.nodes.find(parent, address, NATIVE, || writer.native_node(parent, address));
        found.unwrap_or_else(|| self.writer.without(parent))
    }

    fn truncated(&mut self, parent: u32) -> u32 {
        if parent == UNRECORDED_NODE {
            return parent;
        }
        let writer = &mut *self.writer;
        let found = self.nodes.find(parent, 0, TRUNCATED, || writer.truncated_node(parent));
        found.unwrap_or_else(|| self.writer.without(parent))
    }
}

/// Writes the definition of a code object and registers for its death.
///
/// # Safety
/// `code` is a code object in use on this thread's stack, `thread_state` this thread's.
#[cold]
unsafe fn define(
    writer: &mut Writer,
    known: &(Interpreter, CodeWatch),
    thread_state: *const u8,
    code: usize,
    id: u32,
) -> Option<(u32, DeathNotice)> {
    let mut sink = Definition { writer, id, written: false };
    // SAFETY: the caller guarantees that `code` is a code object in use on this thread's stack, and `thread_state` this
    // thread's.
    unsafe {
        known.0.describe(code, &mut sink);
        let (id, written) = (sink.id, sink.written);
        if !written {
            return None;
        }
        let watched = watch(known, thread_state, code);
        Some((
            id,
            if watched { DeathNotice::FromPython } else { DeathNotice::ByLooks(looks_of(&known.0, code)) },
        ))
    }
}

/// # Safety
/// As [`define`].
unsafe fn watch(
    (interpreter, watch): &(Interpreter, CodeWatch),
    thread_state: *const u8,
    code: usize,
) -> bool {
    let real = libc_symbols::MALLOC.known();
    if real == 0 {
        return false;
    }
    let allocate: Malloc = if libc_symbols::is_preloaded() {
        bootstrap_heap::take_words
    } else {
        // Where our `free` may be removed later, what the program frees must be the C library's.
        // SAFETY: `real` is the address of the C library's `malloc`, not 0 as checked above.
        unsafe { transmute::<usize, Malloc>(real) }
    };
    // SAFETY: the caller guarantees that `code` is a code object in use on this thread's stack, and `thread_state` this
    // thread's.
    unsafe { watch.watch(interpreter, thread_state, code, allocate) }
}

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;

/// # Safety
/// `code` is a live code object.
unsafe fn looks_of(interpreter: &Interpreter, code: usize) -> u32 {
    // SAFETY: the caller guarantees that `code` is a live code object.
    let print = unsafe { interpreter.fingerprint(code) };
    (print ^ print >> 32) as u32
}

struct Definition<'a> {
    writer: &'a mut Writer,
    id: u32,
    written: bool,
}

impl CodeSink for Definition<'_> {
    fn code(&mut self, name: Text<'_>, file: Text<'_>, first_line: u32, lines: &[u8]) {
        if let Some(ours) = injected::id_of(&name, &file) {
            (self.id, self.written) = (ours, true);
            return;
        }
        let length = |text: &Text<'_>| (text.bytes.len() as u32).to_le_bytes();
        self.written = self.writer.definition(
            definition::CODE,
            u64::from(self.id),
            &[
                &first_line.to_le_bytes(),
                &length(&name),
                &[name.kind],
                name.bytes,
                &length(&file),
                &[file.kind],
                file.bytes,
                lines,
            ],
        );
    }
}

/// Recording has stopped: removes what was installed in Python, as far as this thread may.
pub fn stop() {
    let Some((interpreter, watch)) = known() else { return };
    // SAFETY: the interpreter is never unloaded; both calls check that this thread holds the GIL.
    unsafe {
        let thread_state = interpreter.thread_state();
        pyalloc::remove(interpreter, thread_state);
        watch.remove(interpreter, thread_state);
    }
}
