//! Where paths end: variables of functions that have not returned, the dictionaries of modules, classes, functions.
//!
//! The frames of a traceback that is being reported count as running: the exception hook is called while it still holds them. Frames of our own
//! code are left out. Must never follow a word of an evaluation stack, which may be stale.

use super::kinds::Kind;
use super::python::{Object, Python};
use super::region::{Region, Zeroed};
use stormlog_stack::python::FrameVariables;

/// Frames of all threads, values of their variables, and modules, at most.
const MOST_FRAMES: usize = 2048;
const SLOTS: usize = 1 << 14;
const MODULE_SLOTS: usize = 1 << 13;
const MOST_THREADS: usize = 4096;
const MOST_MODULES: usize = 6000;
const PROBES: usize = 16;

/// A root, or none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Root {
    pub sort: Sort,
    /// Of a variable: its frame and its place there.
    pub frame: u16,
    pub variable: u16,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Sort {
    #[default]
    None = 0,
    /// The value of a variable.
    Variable,
    /// On the evaluation stack of a function.
    Temporary,
    /// The dictionary of a module.
    Globals,
    Module,
    Class,
    Function,
}

impl Root {
    /// The distance of a root, plus 1: a way over a variable or a module is preferred to one over a function.
    pub fn penalty(self) -> u16 {
        match self.sort {
            Sort::None => 0,
            Sort::Variable | Sort::Globals | Sort::Module | Sort::Class => 1,
            Sort::Function | Sort::Temporary => 2,
        }
    }
}

/// A frame whose variables are roots.
#[derive(Clone, Copy)]
pub struct Frame {
    pub variables: FrameVariables,
    /// Where it is known better than by the instruction.
    pub line: u32,
}
// SAFETY: all fields, also those of `FrameVariables`, are integers, valid when zeroed.
unsafe impl Zeroed for Frame {}

#[derive(Clone, Copy, Default)]
struct Value {
    object: usize,
    frame: u16,
    variable: u16,
    is_temporary: bool,
    /// Something else keeps it, as a rule: it counts where nothing else was found.
    is_last: bool,
}
// SAFETY: all fields are integers or `bool`; zero is a valid integer and `false`.
unsafe impl Zeroed for Value {}

/// The roots of this process.
pub struct Roots<'a> {
    frames: &'a mut [Frame],
    count: usize,
    values: &'a mut [Value],
    /// Dictionaries of modules and their names, each with the object of the name.
    modules: &'a mut [(usize, usize)],
}

impl<'a> Roots<'a> {
    /// Collects them. `traceback` is 0 or one that is being reported.
    pub fn collect(region: &'a Region, python: &Python, traceback: usize) -> Option<Self> {
        let mut roots = Roots {
            frames: region.array(MOST_FRAMES)?,
            count: 0,
            values: region.array(SLOTS)?,
            modules: region.array(MODULE_SLOTS)?,
        };
        // SAFETY: the GIL is held; the lists are CPython's own, and the caller guarantees `traceback` to be null or a live traceback object.
        unsafe {
            roots.add_threads(python);
            roots.add_traceback(python, Object::of(traceback));
            if let Some(modules) = Object::of((python.call.modules)()) {
                python.entries(modules, MOST_MODULES, |name, module| {
                    roots.add_module(python, name, module);
                    true
                });
            }
        }
        // The outermost frame that has an object is its owner: it comes last and takes the place.
        for frame in 0..roots.count {
            roots.add_values(python, frame);
        }
        Some(roots)
    }

    /// # Safety
    /// The GIL is held.
    unsafe fn add_threads(&mut self, python: &Python) {
        // SAFETY: the caller guarantees that the GIL is held, which keeps the list of thread states stable.
        unsafe {
            let mut thread = (python.call.threads)((python.call.interpreter)());
            for _ in 0..MOST_THREADS {
                if thread == 0 {
                    return;
                }
                python.interpreter.each_frame_variables(thread as *const u8, |variables| {
                    self.add_frame(python, variables, 0);
                    self.count < MOST_FRAMES
                });
                thread = (python.call.next_thread)(thread);
            }
        }
    }

    /// The frames of a traceback, innermost last there, so that the outer ones are added after the inner ones: it is gone through once to count.
    ///
    /// # Safety
    /// The GIL is held.
    unsafe fn add_traceback(&mut self, python: &Python, first: Option<Object>) {
        let first_place = self.count;
        let mut traceback = first;
        for _ in 0..MOST_FRAMES {
            let Some(one) = traceback.filter(|one| one.kind_address() == python.types.traceback) else {
                break;
            };
            // `tb_next`, `tb_frame`, `tb_lasti`, `tb_lineno`
            if let Some(frame) = one.field(24).filter(|frame| frame.kind_address() == python.types.frame) {
                let line = ((one.word(32) >> 32) as i32).max(0) as u32; // not known yet: -1
                // SAFETY: `frame` is a live frame object, which keeps its frame alive while the GIL is held.
                if let Some(variables) = unsafe { variables_of(python, frame) } {
                    self.add_frame(python, variables, line);
                }
            }
            traceback = one.field(16);
        }
        self.frames[first_place..self.count].reverse();
    }

    fn add_frame(&mut self, python: &Python, variables: FrameVariables, line: u32) {
        if self.count < MOST_FRAMES && !is_ours(python, variables.code) {
            self.frames[self.count] = Frame { variables, line };
            self.count += 1;
        }
    }

    fn add_values(&mut self, python: &Python, frame: usize) {
        let variables = self.frames[frame].variables;
        // What a method works on is kept by its caller, or by what the caller found it in.
        let is_method = python.variable_name(variables.code, 0) == Some(b"self");
        for index in (0..variables.variables + variables.stack).rev() {
            // SAFETY: the GIL is held since the frame was read.
            let object = unsafe { variables.word(index) };
            if object == 0 {
                continue;
            }
            let is_temporary = index >= variables.variables;
            let value = Value {
                object,
                frame: frame as u16,
                variable: index.min(usize::from(u16::MAX)) as u16,
                is_temporary,
                is_last: is_temporary || (is_method && index == 0),
            };
            let start = slot(object);
            let places = (0..PROBES).map(|probe| (start + probe) % SLOTS);
            let mut free = places.filter(|at| {
                let known = &self.values[*at];
                known.object == 0 || known.object == object
            });
            if let Some(at) = free.next() {
                let known = self.values[at];
                // A variable of any function is better than `self`, and that than a temporary.
                let worth = |value: &Value| u8::from(!value.is_temporary) + u8::from(!value.is_last);
                if known.object == 0 || worth(&value) >= worth(&known) {
                    self.values[at] = value;
                }
            }
        }
    }

    fn add_module(&mut self, python: &Python, name: Object, module: Object) {
        // A module begins with its dictionary; a lazy module is one by its base class.
        let is_module = module.kind_address() == python.types.module
            || core::iter::successors(Some(module.class()), |class| class.base())
                .take(8)
                .any(|class| class.object().address() == python.types.module);
        let Some(dictionary) = module.field(16).filter(|_| is_module) else { return };
        let start = slot(dictionary.address());
        let mut free = (0..PROBES).map(|probe| (start + probe) % MODULE_SLOTS);
        if let Some(at) =
            free.find(|at| self.modules[*at].0 == 0 || self.modules[*at].0 == dictionary.address())
        {
            // `__main__` is also known by its own name where it was started as a module.
            if self.modules[at].0 == 0 {
                self.modules[at] = (dictionary.address(), name.address());
            }
        }
    }

    /// The values of variables.
    pub fn variables(&self) -> impl Iterator<Item = Object> {
        let values = self.values.iter().filter(|value| !value.is_temporary);
        // SAFETY: variables hold live objects, and the GIL is held since they were read.
        values.filter_map(|value| unsafe { Object::of(value.object) })
    }

    /// What kind of root an object is. Temporaries and the `self` of a method count only where `with_temporaries`.
    pub fn root_of(&self, object: Object, kind: Kind, with_temporaries: bool) -> Root {
        let sort = match kind {
            Kind::Type => Sort::Class,
            Kind::Module => Sort::Module,
            Kind::Function => Sort::Function,
            Kind::Dict if self.module_name(object).is_some() => Sort::Globals,
            _ => Sort::None,
        };
        if sort != Sort::None {
            return Root { sort, ..Root::default() };
        }
        let start = slot(object.address());
        let mut places = (0..PROBES).map(|probe| &self.values[(start + probe) % SLOTS]);
        match places.find(|value| value.object == object.address()) {
            Some(value) if value.is_last && !with_temporaries => Root::default(),
            Some(value) => Root {
                sort: if value.is_temporary { Sort::Temporary } else { Sort::Variable },
                frame: value.frame,
                variable: value.variable,
            },
            None => Root::default(),
        }
    }

    /// Whether the variables of a frame object are among the roots.
    pub fn has_frame(&self, python: &Python, frame: Object) -> bool {
        // SAFETY: a live frame object, and the GIL is held.
        let found = unsafe { variables_of(python, frame) };
        let has = |first: usize| self.frames[..self.count].iter().any(|known| known.variables.first == first);
        found.is_some_and(|found| has(found.first))
    }

    pub fn frame(&self, root: Root) -> Option<Frame> {
        self.frames[..self.count].get(usize::from(root.frame)).copied()
    }

    /// The name of the module whose dictionary this is.
    pub fn module_name(&self, dictionary: Object) -> Option<Object> {
        let start = slot(dictionary.address());
        let mut places = (0..PROBES).map(|probe| self.modules[(start + probe) % MODULE_SLOTS]);
        let (_, name) = places.find(|(known, _)| *known == dictionary.address())?;
        // SAFETY: the key of a module in the interpreter's dictionary.
        unsafe { Object::of(name) }
    }
}

/// The variables of a frame object's frame.
///
/// # Safety
/// `frame` is a live frame object and the GIL is held.
pub unsafe fn variables_of(python: &Python, frame: Object) -> Option<FrameVariables> {
    // SAFETY: the caller guarantees that `frame` is a live frame object and the GIL is held; the frame follows the pointer
    // to the previous frame object.
    unsafe { python.interpreter.variables_of(frame.word(24)).filter(|_| frame.word(24) != 0) }
}

/// Whether a code object is of the code that looks, not of the program that is looked at.
pub fn is_ours(python: &Python, code: usize) -> bool {
    struct Names(bool);
    impl stormlog_stack::python::CodeSink for Names {
        fn code(
            &mut self,
            name: stormlog_stack::python::Text<'_>,
            file: stormlog_stack::python::Text<'_>,
            _: u32,
            _: &[u8],
        ) {
            const PACKAGE: &[u8] = b"/stormlog/_torch/";
            let is_package = file.bytes.windows(PACKAGE.len()).any(|part| part == PACKAGE);
            self.0 = name.bytes.starts_with(b"_stormlog_") || is_package;
        }
    }
    let mut names = Names(false);
    // SAFETY: `code` was read from a live frame, which keeps it alive while the GIL is held.
    unsafe { python.interpreter.describe(code, &mut names) };
    names.0
}

fn slot(object: usize) -> usize {
    (object >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}
