//! Steps of the stack tree as people read them: functions, files and lines. Must name every step, known or not.

use rustc_hash::FxHashMap;
use stormlog_capture::record::mark;
use stormlog_model::own_code::{Claim, OwnCode, Strongest};
use stormlog_model::stacks::{Frame, FrameKind};
use stormlog_stack::line_table::line_for;

use crate::ledger::SiteKey;
use crate::tree::{BEFORE_RECORDING, Module, NO_MODULE, Step, Tree};

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
    own_code: &'a OwnCode,
    /// Their claims to be responsible, those of native frames as far as they were requested.
    claims: Vec<Option<Claim>>,
    ids: FxHashMap<Frame, u32>,
    python: FxHashMap<Step, u32>,
    native: FxHashMap<Step, Vec<u32>>,
}

impl<'a, 's> Namer<'a, 's> {
    pub(crate) fn new(
        tree: &'a Tree,
        symbolizer: Option<&'s mut (dyn Symbolizer + 's)>,
        own_code: &'a OwnCode,
    ) -> Self {
        let (frames, claims, ids, python, native) = Default::default();
        Namer { tree, symbolizer, frames, own_code, claims, ids, python, native }
    }

    fn id(&mut self, frame: Frame) -> u32 {
        let next = self.frames.len() as u32;
        let id = *self.ids.entry(frame.clone()).or_insert(next);
        if id == next {
            self.claims.push(None);
            self.frames.push(frame);
        }
        id
    }

    /// Its claim to be the responsible frame of a stack.
    pub(crate) fn claim(&mut self, frame: u32) -> Claim {
        let (frame, known) = (&self.frames[frame as usize], &mut self.claims[frame as usize]);
        *known.get_or_insert_with(|| self.own_code.claim(frame))
    }

    /// A frame that is not code.
    pub(crate) fn remark(&mut self, text: &str) -> u32 {
        self.id(Frame::remark(text))
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

    /// The responsible frame of a native stack.
    pub(crate) fn responsible_native(&mut self, node: u32) -> Option<u32> {
        let tree = self.tree;
        let mut best = Strongest::default();
        for step in tree.frames(node) {
            for frame in self.native(step) {
                let claim = self.claim(frame);
                best.add_caller(claim, frame);
                // No other native frame has a stronger claim, and each name that is looked up takes long.
                if claim <= Claim::Native {
                    return best.frame();
                }
            }
        }
        best.frame()
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

const BACKWARD: &str = "<backward>";
const BACKWARD_OF_SEVERAL: &str = "<backward of several callers>";

/// Whether a frame is the mark of memory that a thread of the autograd engine took.
pub(crate) fn is_backward_remark(frame: &Frame) -> bool {
    frame.kind == FrameKind::Remark && [BACKWARD, BACKWARD_OF_SEVERAL].contains(&frame.function.as_str())
}

/// What a mark in a stack reads like.
fn mark_name(mark: u32) -> &'static str {
    match u64::from(mark) {
        mark::BACKWARD => BACKWARD,
        mark::BACKWARD_AMBIGUOUS => BACKWARD_OF_SEVERAL,
        _ if mark == BEFORE_RECORDING => "<before recording>",
        _ => "<unknown mark>",
    }
}

fn named(tree: &Tree, code: u32, line: u32, kind: FrameKind) -> Frame {
    let code = tree.codes.get(code as usize).cloned().unwrap_or_default();
    Frame { kind, function: code.name, file: code.file, line }
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
        Step::Named { code, line, kind } => return named(tree, code, line, kind),
        Step::Truncated => return Frame::remark("<frames left out>"),
        Step::Mark { mark } => return Frame::remark(mark_name(mark)),
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
