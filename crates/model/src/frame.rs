//! One place in the code, and whose code it is by its path. Must decide by the frame alone; [`OwnCode`](crate::own_code::OwnCode) knows the
//! program too.

/// What a frame is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// A line of Python.
    Python,
    /// A function of C, C++ or Rust.
    Native,
    /// Not code: a remark in the place of frames, such as "frames left out". Scripts know it by this name.
    #[serde(rename = "truncated")]
    Remark,
}

/// One place in the code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Frame {
    /// What it is made of.
    pub kind: FrameKind,
    /// Function, as a person reads it; an address where no name is known.
    pub function: String,
    /// Source file, or the library of a native function; empty when unknown.
    pub file: String,
    /// Line in the file; 0 when unknown.
    pub line: u32,
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
    /// A text in the place of code.
    #[must_use]
    pub fn remark(text: &str) -> Frame {
        Frame { kind: FrameKind::Remark, function: text.to_owned(), file: String::new(), line: 0 }
    }

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
        || ["<frozen ", "<eval_with_key>", "<__array_function__"].iter().any(|made| file.starts_with(made))
        || file.starts_with("/usr/include/")
        || file.ends_with("/.inject/sitecustomize.py")
        || below("python/stormlog/").next().is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn python(function: &str, file: &str) -> Frame {
        Frame { function: function.into(), file: file.into(), line: 3, kind: FrameKind::Python }
    }

    #[test]
    fn is_library_distinguishes_user_code_from_libraries() {
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
            ("<eval_with_key>.7", Origin::Library),
            ("/src/stormlog/python/stormlog/heap.py", Origin::Library),
            ("/home/me/stormlog/train.py", Origin::User),
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
}
