//! Steps of the stack tree as people read them: functions, files and lines. Must name every step, known or not.

use rustc_hash::FxHashMap;
use stormlog_event::stacks::is_library;
use stormlog_stack::line_table::line_for;

use crate::passing::passes_on;
use crate::state::SiteKey;
use crate::tree::{Module, NO_MODULE, Step, Tree};

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// Python code.
    Python,
    /// C, C++, Rust…
    Native,
    /// Frames that were left out, because there were too many.
    Truncated,
}

/// One frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// Name of the function; an address where no name is known.
    pub function: String,
    /// Source file, or the library where no source is known.
    pub file: String,
    /// Line; 0 when unknown.
    pub line: u32,
}

impl Frame {
    /// Code the user wrote, as far as a path can tell: neither Python's own nor an installed package's.
    #[must_use]
    pub fn is_user_code(&self) -> bool {
        self.kind == FrameKind::Python && !is_library(&self.file)
    }

    /// A native function that only passes a request for memory on, such as `operator new` or `std::vector`.
    #[must_use]
    pub fn passes_on(&self) -> bool {
        self.kind == FrameKind::Native && passes_on(&self.function, &self.file)
    }
}

/// Who wanted the memory, of a stack given the innermost first: the innermost frame of the user's own Python; without one the innermost
/// that does not just pass the request on, then the innermost of all.
#[must_use]
pub fn wanting(stack: &[Frame]) -> Option<&Frame> {
    let user = stack.iter().find(|frame| frame.is_user_code());
    user.or_else(|| stack.iter().find(|frame| !frame.passes_on())).or(stack.first())
}

/// A function an address belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Symbol {
    /// Its name, demangled.
    pub function: String,
    /// Its source file, where known.
    pub file: Option<String>,
    /// The line, where known.
    pub line: Option<u32>,
}

/// Looks up native addresses.
pub trait Symbolizer {
    /// The functions at `address` (a return address, as it was in memory), inlined ones first, from the file of `module`.
    fn resolve(&mut self, module: &Module, address: u64) -> Vec<Symbol>;
}

/// Turns steps into frames, each once.
pub(crate) struct Namer<'a, 's> {
    tree: &'a Tree,
    symbolizer: Option<&'s mut (dyn Symbolizer + 's)>,
    pub(crate) frames: Vec<Frame>,
    /// Which of them the user wrote.
    own: Vec<bool>,
    /// Which only pass a request on, as far as anybody asked.
    passing: FxHashMap<u32, bool>,
    ids: FxHashMap<Frame, u32>,
    python: FxHashMap<Step, u32>,
    native: FxHashMap<Step, Vec<u32>>,
}

impl<'a, 's> Namer<'a, 's> {
    pub(crate) fn new(tree: &'a Tree, symbolizer: Option<&'s mut (dyn Symbolizer + 's)>) -> Self {
        let (frames, own, passing, ids, python, native) = Default::default();
        Namer { tree, symbolizer, frames, own, passing, ids, python, native }
    }

    fn id(&mut self, frame: Frame) -> u32 {
        let next = self.frames.len() as u32;
        let id = *self.ids.entry(frame.clone()).or_insert(next);
        if id == next {
            self.own.push(frame.is_user_code());
            self.frames.push(frame);
        }
        id
    }

    /// Whether the user wrote it.
    pub(crate) fn is_user_code(&self, frame: u32) -> bool {
        self.own[frame as usize]
    }

    /// A frame that is no code.
    pub(crate) fn remark(&mut self, text: &str) -> u32 {
        self.id(Frame { kind: FrameKind::Native, function: text.to_owned(), file: String::new(), line: 0 })
    }

    /// The frame of a Python step.
    pub(crate) fn python(&mut self, step: Step) -> u32 {
        if let Some(id) = self.python.get(&step) {
            return *id;
        }
        let frame = python_frame(self.tree, step);
        let id = self.id(frame);
        self.python.insert(step, id);
        id
    }

    /// The frames of a native step, innermost first.
    fn native(&mut self, step: Step) -> Vec<u32> {
        if let Some(ids) = self.native.get(&step) {
            return ids.clone();
        }
        let Step::Native { address, module } = step else { return vec![self.python(step)] };
        let slot = if module == NO_MODULE { self.tree.module_at(address) } else { module };
        let module = self.tree.modules.get(slot as usize);
        let found = match (module, &mut self.symbolizer) {
            (Some(module), Some(symbolizer)) => symbolizer.resolve(module, address),
            _ => Vec::new(),
        };
        let path = module.map_or("", |module| module.path.as_str());
        let offset = address.wrapping_sub(module.map_or(0, |module| module.base));
        let mut ids: Vec<u32> = Vec::new();
        for symbol in found {
            ids.push(self.id(Frame {
                kind: FrameKind::Native,
                function: symbol.function,
                file: symbol.file.unwrap_or_else(|| path.to_owned()),
                line: symbol.line.unwrap_or(0),
            }));
        }
        if ids.is_empty() {
            let function = format!("{offset:#x}");
            ids.push(self.id(Frame { kind: FrameKind::Native, function, file: path.to_owned(), line: 0 }));
        }
        self.native.insert(step, ids.clone());
        ids
    }

    /// The innermost frame of a native stack that is not the interpreter's and does not just pass the request on; where all do, the
    /// innermost of them.
    pub(crate) fn innermost_native(&mut self, node: u32) -> Option<u32> {
        let tree = self.tree;
        let mut innermost = None;
        for step in tree.frames(node) {
            let frames = self.native(step);
            if frames.iter().any(|id| is_interpreter(&self.frames[*id as usize])) {
                continue;
            }
            innermost = innermost.or(frames.first().copied());
            let (named, known) = (&self.frames, &mut self.passing);
            let mut passes_on = |id: u32| *known.entry(id).or_insert_with(|| named[id as usize].passes_on());
            if let Some(wanting) = frames.into_iter().find(|id| !passes_on(*id)) {
                return Some(wanting);
            }
        }
        innermost
    }

    /// The frames of a site, innermost first, Python and native ones in true order.
    pub(crate) fn stack(&mut self, site: SiteKey) -> Vec<u32> {
        let tree = self.tree;
        let mut python = tree.frames(site.python).peekable();
        let mut stack = Vec::new();
        for step in tree.frames(site.native) {
            let frames = self.native(step);
            let is_interpreter = frames.iter().any(|id| is_interpreter(&self.frames[*id as usize]));
            if !is_interpreter {
                stack.extend(frames);
                continue;
            }
            if self.symbolizer.is_none() {
                // Without names only the part above the interpreter can be placed.
                break;
            }
            for step in python.by_ref() {
                stack.push(self.python(step));
                if matches!(step, Step::Python { is_entry: true, .. } | Step::Line { is_entry: true, .. }) {
                    break;
                }
            }
        }
        if python.peek().is_some() {
            stack.extend(python.map(|step| self.python(step)));
        }
        stack
    }
}

/// The C function a Python frame runs in; without names, the library it is in.
fn is_interpreter(frame: &Frame) -> bool {
    let library = frame.file.rsplit('/').next().unwrap_or_default();
    frame.kind == FrameKind::Native
        && (frame.function.starts_with("_PyEval_EvalFrameDefault")
            || frame.function.starts_with("_TAIL_CALL_")
            || (frame.function.starts_with("0x")
                && (library.starts_with("libpython") || library.starts_with("python3"))))
}

pub(crate) fn python_frame(tree: &Tree, step: Step) -> Frame {
    let (code, line) = match step {
        Step::Python { code, instruction, .. } => {
            let code = tree.codes.get(code as usize);
            (
                code,
                code.and_then(|code| {
                    line_for(&code.table, code.first_line, instruction).or(Some(code.first_line))
                }),
            )
        }
        Step::Line { code, line, .. } => (tree.codes.get(code as usize), Some(line)),
        Step::Truncated => {
            let (function, file) = ("<frames left out>".to_owned(), String::new());
            return Frame { kind: FrameKind::Truncated, function, file, line: 0 };
        }
        Step::Native { .. } => (None, None),
    };
    let code = code.filter(|code| !code.name.is_empty());
    Frame {
        kind: FrameKind::Python,
        function: code.map_or("<unknown>", |code| &code.name).to_owned(),
        file: code.map_or("", |code| &code.file).to_owned(),
        line: line.unwrap_or(0),
    }
}
