//! Stacks with what they hold: the one shape every picture, table and export of memory by code is made from.
//!
//! Pure values. A stack is a node of a tree whose parents come before their children, so one pass in either direction adds
//! things up.

use crate::own_code::OwnCode;

/// What a frame is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// A line of Python.
    Python,
    /// A function of C, C++ or Rust.
    Native,
    /// Not code: a remark in the place of frames, such as "frames left out".
    Remark,
}

/// One place in the code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function, as a person reads it.
    pub function: String,
    /// Source file, or the library a native function lies in; empty when unknown.
    pub file: String,
    /// Line in the file; 0 when unknown.
    pub line: u32,
    /// What it is made of.
    pub kind: FrameKind,
}

/// Whose code a frame is, as far as its file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The program's own.
    User,
    /// Installed packages and the standard library.
    Library,
    /// Python's import system at work.
    Import,
    /// The Python interpreter's own C functions.
    Interpreter,
    /// Other native code.
    Native,
}

impl Frame {
    /// Whose code this is, as far as its file says; [`StackTree::origin`] knows the program too.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self.kind {
            FrameKind::Remark => Origin::Library,
            FrameKind::Native if is_interpreter(&self.function, &self.file) => Origin::Interpreter,
            FrameKind::Native => Origin::Native,
            FrameKind::Python if self.file.starts_with("<frozen importlib") => Origin::Import,
            FrameKind::Python if self.file.contains("/importlib/") && is_library(&self.file) => {
                Origin::Import
            }
            FrameKind::Python if is_library(&self.file) => Origin::Library,
            FrameKind::Python => Origin::User,
        }
    }

    /// `file:line`, or what of it is known.
    #[must_use]
    pub fn place(&self) -> String {
        match (self.file.is_empty(), self.line) {
            (true, _) => String::new(),
            (false, 0) => self.file.clone(),
            (false, line) => format!("{}:{line}", self.file),
        }
    }
}

/// Whether a file belongs to an installed package, the standard library, PyTorch's own sources or to us, rather than to the program.
#[must_use]
pub fn is_library(file: &str) -> bool {
    let below = |folder: &'static str| {
        let found = file.match_indices(folder);
        found
            .filter(|(at, _)| *at == 0 || file[..*at].ends_with('/'))
            .map(|(at, _)| &file[at + folder.len()..])
    };
    ["site-packages/", "dist-packages/", "aten/src/ATen/"].iter().any(|folder| below(folder).next().is_some())
        || file.starts_with("<frozen ")
        || file.ends_with("/.inject/sitecustomize.py")
        || file.contains("/torchinductor_") // what `torch.compile` wrote
        || ["/lib/python", "/lib64/python"].iter().any(|folder| {
            file.split(folder).skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        || below("torch/").any(|rest| PARTS_OF_TORCH.iter().any(|part| rest.starts_with(part)))
        || below("c10/").any(|rest| !rest.ends_with(".py"))
}

/// What PyTorch has in its folder, and few programs have in a folder of theirs that is named so too.
const PARTS_OF_TORCH: [&str; 17] = [
    "_",
    "amp/",
    "autograd/",
    "backends/",
    "csrc/",
    "cuda/",
    "distributed/",
    "functional.py",
    "fx/",
    "jit/",
    "nn/functional.py",
    "nn/modules/",
    "nn/parallel/",
    "optim/",
    "utils/checkpoint.py",
    "utils/data/_utils/",
    "utils/data/dataloader.py",
];

fn is_interpreter(function: &str, file: &str) -> bool {
    let library = file.rsplit('/').next().unwrap_or(file);
    let python = library.starts_with("libpython") || library.starts_with("python");
    python
        || function.starts_with("_PyEval_")
        || function.starts_with("PyObject_")
        || function.starts_with("_PyObject_")
}

/// A node of a [`StackTree`]; 0 is the root, which is no frame.
pub type NodeId = u32;

/// All stacks of a recording.
#[derive(Debug, Clone)]
pub struct StackTree {
    /// Frames, each once.
    pub frames: Vec<Frame>,
    /// Parent of each node: the caller. Always smaller than the node itself; 0 for the root.
    pub parent: Vec<NodeId>,
    /// Frame of each node; meaningless for the root.
    pub frame: Vec<u32>,
    /// Whose code the frames are, beyond what their paths say.
    pub own_code: OwnCode,
}

impl Default for StackTree {
    fn default() -> Self {
        StackTree::new()
    }
}

impl StackTree {
    /// A tree of nothing but its root.
    #[must_use]
    pub fn new() -> Self {
        StackTree { frames: Vec::new(), parent: vec![0], frame: vec![0], own_code: OwnCode::default() }
    }

    /// Nodes, the root included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parent.len()
    }

    /// Whether there is no stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Adds a node below `parent`; nothing checks whether there is one already.
    pub fn push(&mut self, parent: NodeId, frame: u32) -> NodeId {
        let node = self.parent.len() as NodeId;
        self.parent.push(parent);
        self.frame.push(frame);
        node
    }

    /// Whose code a frame is.
    #[must_use]
    pub fn origin(&self, frame: &Frame) -> Origin {
        self.own_code.origin(frame)
    }

    /// The frame of a stack that is responsible for what it holds.
    #[must_use]
    pub fn responsible(&self, node: NodeId) -> Option<&Frame> {
        self.own_code.responsible(self.stack(node))
    }

    /// Frames from `node` outwards: the innermost first.
    pub fn stack(&self, node: NodeId) -> impl Iterator<Item = &Frame> {
        let mut at = node;
        std::iter::from_fn(move || {
            let frame = (at != 0).then(|| self.frame.get(at as usize)).flatten()?;
            at = self.parent.get(at as usize).copied().unwrap_or(0);
            self.frames.get(*frame as usize)
        })
    }
}

/// What one stack holds in one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// The stack.
    pub node: NodeId,
    /// Index of the thread.
    pub thread: u32,
    /// Bytes held.
    pub bytes: u64,
    /// Allocations they came in.
    pub count: u64,
}

/// Stacks and what they hold at one moment or over one span.
#[derive(Debug, Clone, Default)]
pub struct Holdings {
    /// The stacks.
    pub tree: StackTree,
    /// Who holds what.
    pub rows: Vec<Holding>,
    /// Names of the threads.
    pub threads: Vec<String>,
}

/// Bytes and allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub count: u64,
}

impl std::ops::AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.count = self.count.saturating_add(other.count);
    }
}

impl Holdings {
    /// Everything together.
    #[must_use]
    pub fn whole(&self) -> Weight {
        let mut sum = Weight::default();
        for row in &self.rows {
            sum += Weight { bytes: row.bytes, count: row.count };
        }
        sum
    }

    /// What each node holds itself, and what it holds with its callees.
    #[must_use]
    pub fn own_and_total(&self) -> (Vec<Weight>, Vec<Weight>) {
        let mut own = vec![Weight::default(); self.tree.len()];
        for row in &self.rows {
            if let Some(weight) = own.get_mut(row.node as usize) {
                *weight += Weight { bytes: row.bytes, count: row.count };
            }
        }
        let mut total = own.clone();
        for node in (1..total.len()).rev() {
            let weight = total[node];
            let parent = self.tree.parent[node] as usize;
            total[parent] += weight;
        }
        (own, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(function: &str, file: &str) -> Frame {
        Frame { function: function.into(), file: file.into(), line: 3, kind: FrameKind::Python }
    }

    #[test]
    fn whose_code_it_is() {
        for (file, origin) in [
            ("train.py", Origin::User),
            ("/home/me/lib/python/train.py", Origin::User),
            ("/usr/lib/python3.11/json/decoder.py", Origin::Library),
            ("/usr/lib64/python3.9/json/decoder.py", Origin::Library),
            ("/venv/lib/python3.12/site-packages/numpy/core.py", Origin::Library),
            ("<frozen importlib._bootstrap>", Origin::Import),
            ("/usr/lib/python3.11/importlib/__init__.py", Origin::Import),
            ("<frozen runpy>", Origin::Library),
            ("<string>", Origin::User),
            ("site-packages/torch/nn/modules/linear.py", Origin::Library),
            ("/src/pytorch/torch/nn/modules/linear.py", Origin::Library),
            ("/src/pytorch/torch/_tensor.py", Origin::Library),
            ("/home/me/torch/train.py", Origin::User),
            ("/home/me/torch/utils/data.py", Origin::User),
            ("/home/me/mytorch/nn/modules/linear.py", Origin::User),
            ("/runs/a/.inject/sitecustomize.py", Origin::Library),
        ] {
            assert_eq!(python("f", file).origin(), origin, "{file}");
        }
        let native = |function: &str, file: &str| Frame { kind: FrameKind::Native, ..python(function, file) };
        assert_eq!(native("_PyEval_EvalFrameDefault", "/usr/bin/python3.11").origin(), Origin::Interpreter);
        assert_eq!(native("gemm", "/venv/lib/libopenblas.so").origin(), Origin::Native);
    }

    #[test]
    fn totals_are_own_and_what_was_called() {
        let mut tree = StackTree::new();
        tree.frames = vec![python("main", "a.py"), python("load", "a.py")];
        let main = tree.push(0, 0);
        let load = tree.push(main, 1);
        let held = Holdings {
            rows: vec![
                Holding { node: load, thread: 0, bytes: 10, count: 1 },
                Holding { node: main, thread: 0, bytes: 5, count: 2 },
            ],
            tree,
            threads: vec!["main".into()],
        };
        let (own, total) = held.own_and_total();
        assert_eq!(own[main as usize], Weight { bytes: 5, count: 2 });
        assert_eq!(total[main as usize], Weight { bytes: 15, count: 3 });
        assert_eq!(total[0], held.whole());
        assert_eq!(
            held.tree.stack(load).map(|frame| frame.function.as_str()).collect::<Vec<_>>(),
            ["load", "main"]
        );
    }
}
