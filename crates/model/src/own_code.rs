//! Which frame of a stack is responsible for memory: one rule for statistics, leaks, the run summary, trees and flame graphs. Must decide by the
//! frames and [`OwnCode`] alone, so that every view of a recording names the same line.

use crate::allocator_frames::passes_on;
use crate::frame::{Frame, FrameKind, Origin, is_library};

/// What is known of the program beyond the paths of its frames: the installed package that it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnCode {
    /// `…/site-packages/black/`, or one file `…/site-packages/tool.py`.
    package: Option<String>,
    /// The console script that only calls the package: `…/bin/black`.
    stub: Option<String>,
}

/// How strong the claim of a frame is to be the responsible one, the strongest first. Of equal claims the innermost frame's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The program's own code.
    Program,
    /// The installed package that is being run.
    Package,
    /// Code without a file: the program itself under `python -c`, or what a library made of it, such as the `__init__` of a dataclass.
    Unfiled,
    /// Other Python code: a library's, the import system's, or not known.
    Python,
    /// Native code.
    Native,
    /// The interpreter's loop, or code that only passes a request on.
    Passing,
    /// Not code.
    Remark,
}

impl Claim {
    /// Whether it is the program's own code, or code of the package that it runs.
    #[must_use]
    pub fn is_own(self) -> bool {
        self <= Claim::Unfiled
    }
}

impl OwnCode {
    /// The program runs the installed package that `file` belongs to, through the console script `stub` or through `-m`.
    #[must_use]
    pub fn of_package(file: &str, stub: Option<&str>) -> Option<OwnCode> {
        package_of(file)
            .map(|package| OwnCode { package: Some(package.to_owned()), stub: stub.map(str::to_owned) })
    }

    /// The claim of code with the source `file`: Python, or C++ in a snapshot of PyTorch, which writes `??` where it knows no file.
    #[must_use]
    pub fn source(&self, file: &str) -> Claim {
        if self.stub.as_deref() == Some(file) {
            return Claim::Python;
        }
        match self.is_of_package(file) {
            true => Claim::Package,
            false if file == "??" => Claim::Native,
            false if file.is_empty() || is_library(file) => Claim::Python,
            false if file.starts_with('<') && !file.starts_with("<ipython-input-") => Claim::Unfiled,
            false => Claim::Program,
        }
    }

    /// The claim of a native function.
    #[must_use]
    pub fn native(function: &str, file: &str) -> Claim {
        let evaluates = function.starts_with("_PyEval_Eval") || function.starts_with("_TAIL_CALL_");
        match evaluates || passes_on(function, file) {
            true => Claim::Passing,
            false => Claim::Native,
        }
    }

    /// The claim of a frame.
    #[must_use]
    pub fn claim(&self, frame: &Frame) -> Claim {
        match frame.kind {
            FrameKind::Python => self.source(&frame.file),
            FrameKind::Native => OwnCode::native(&frame.function, &frame.file),
            FrameKind::Remark => Claim::Remark,
        }
    }

    /// The responsible frame of a stack given the innermost first: the innermost of the program's own code, else of the package it runs, else of
    /// Python, else the innermost native function that wants memory for itself, else the innermost.
    pub fn responsible_frame<'a>(&self, stack: impl IntoIterator<Item = &'a Frame>) -> Option<&'a Frame> {
        Strongest::of(stack, |frame| self.claim(frame))
    }

    /// Whose code a frame is.
    #[must_use]
    pub fn origin(&self, frame: &Frame) -> Origin {
        match frame.kind {
            FrameKind::Python if self.is_of_package(&frame.file) => Origin::User,
            FrameKind::Python if self.stub.as_deref() == Some(frame.file.as_str()) => Origin::Library,
            _ => frame.origin(),
        }
    }

    fn is_of_package(&self, file: &str) -> bool {
        let Some(package) = self.package.as_deref() else { return false };
        match package.strip_suffix('/') {
            // `_pytest` is the body of `pytest`.
            Some(folder) => {
                let (packages, name) = folder.rsplit_once('/').unwrap_or(("", folder));
                let rest = file.strip_prefix(packages).and_then(|rest| rest.strip_prefix('/'));
                let top = rest.and_then(|rest| rest.split_once('/')).map(|(top, _)| top);
                top.is_some_and(|top| top == name || top.strip_prefix('_') == Some(name))
            }
            None => file == package,
        }
    }
}

/// The frame with the strongest claim among those of a stack seen so far; of equal claims the innermost counts.
#[derive(Debug, Clone, Copy)]
pub struct Strongest<T>(Option<(Claim, T)>);

impl<T> Default for Strongest<T> {
    fn default() -> Self {
        Strongest(None)
    }
}

impl<T> Strongest<T> {
    /// Of a stack given the innermost first.
    pub fn of(stack: impl IntoIterator<Item = T>, claim: impl Fn(&T) -> Claim) -> Option<T> {
        let mut best = Strongest::default();
        for frame in stack {
            let claim = claim(&frame);
            best.add_caller(claim, frame);
            if claim == Claim::Program {
                break;
            }
        }
        best.frame()
    }

    /// A frame outside all those before.
    pub fn add_caller(&mut self, claim: Claim, frame: T) {
        if self.0.as_ref().is_none_or(|(known, _)| claim < *known) {
            self.0 = Some((claim, frame));
        }
    }

    /// A frame inside all those before.
    pub fn add_callee(&mut self, claim: Claim, frame: T) {
        if self.0.as_ref().is_none_or(|(known, _)| claim <= *known) {
            self.0 = Some((claim, frame));
        }
    }

    /// Whether no frame was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The frame.
    pub fn frame(self) -> Option<T> {
        self.0.map(|(_, frame)| frame)
    }
}

/// The folder or file of the installed package that `file` belongs to.
#[must_use]
pub fn package_of(file: &str) -> Option<&str> {
    let start = ["/site-packages/", "/dist-packages/"]
        .iter()
        .filter_map(|folder| file.rfind(folder).map(|at| at + folder.len()))
        .max()?;
    match file[start..].find('/') {
        Some(end) => Some(&file[..start + end + 1]),
        None => Some(file),
    }
}

/// The module that Python code in `file` belongs to, as its import names the top of it: `numpy`, `json`, `train`.
#[must_use]
pub fn module_of(file: &str) -> String {
    let stem = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    if let Some(package) = package_of(file) {
        let package = package.strip_suffix('/').unwrap_or(package);
        return stem(package.rsplit('/').next().unwrap_or(package));
    }
    if let Some(name) = file.strip_prefix("<frozen ").and_then(|rest| rest.strip_suffix('>')) {
        return stem(name);
    }
    // The standard library: `…/lib/python3.11/json/decoder.py`.
    let inside = ["/lib/python", "/lib64/python"].iter().find_map(|folder| {
        let rest = file.split_once(folder)?.1;
        let (version, rest) = rest.split_once('/')?;
        version.starts_with(|c: char| c.is_ascii_digit()).then_some(rest)
    });
    match inside {
        Some(rest) => stem(rest.split('/').next().unwrap_or(rest)),
        None if file.starts_with('<') => file.to_owned(),
        None => {
            let name = file.rsplit('/').next().unwrap_or(file);
            name.strip_suffix(".py").unwrap_or(name).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: FrameKind, function: &str, file: &str) -> Frame {
        Frame { function: function.into(), file: file.into(), line: 3, kind }
    }

    fn python(file: &str) -> Frame {
        frame(FrameKind::Python, "f", file)
    }

    const STUB: &str = "/v/bin/black";
    const PACKAGE: &str = "/v/lib/python3.11/site-packages/black/parsing.py";
    const OTHER: &str = "/v/lib/python3.11/site-packages/click/core.py";

    #[test]
    fn responsible_frame_of_an_installed_program_is_in_its_package() {
        let own =
            OwnCode::of_package("/v/lib/python3.11/site-packages/black/__init__.py", Some(STUB)).unwrap();
        let stack = [OTHER, PACKAGE, OTHER, STUB].map(python);
        assert_eq!(own.responsible_frame(&stack).unwrap().file, PACKAGE);
        assert_eq!(OwnCode::default().responsible_frame(&stack).unwrap().file, STUB);
        // The user's own code is asked first: a test that pytest runs.
        let stack = [OTHER, PACKAGE, "/home/me/test_a.py", PACKAGE].map(python);
        assert_eq!(own.responsible_frame(&stack).unwrap().file, "/home/me/test_a.py");
        assert_eq!(own.origin(&python(PACKAGE)), Origin::User);
        assert_eq!(own.origin(&python(STUB)), Origin::Library);
        assert_eq!(own.origin(&python(OTHER)), Origin::Library);
    }

    #[test]
    fn responsible_native_frame_wants_memory_for_itself() {
        let native = |name: &str| frame(FrameKind::Native, name, "/usr/bin/program");
        let stack =
            [native("malloc"), native("operator new(unsigned long)"), native("load(int)"), native("main")];
        assert_eq!(OwnCode::default().responsible_frame(&stack).unwrap().function, "load(int)");
        let under_python = [native("gemm"), python(OTHER)];
        assert_eq!(OwnCode::default().responsible_frame(&under_python).unwrap().file, OTHER);
    }

    #[test]
    fn code_without_a_file_is_responsible_where_the_program_has_none() {
        let own = OwnCode::default();
        let generated = [python("<string>"), python("/home/me/train.py"), python(OTHER)];
        assert_eq!(own.responsible_frame(&generated).unwrap().file, "/home/me/train.py");
        let command = [python(OTHER), python("<string>"), python("<frozen runpy>")];
        assert_eq!(own.responsible_frame(&command).unwrap().file, "<string>");
        let cell = [python(OTHER), python("<ipython-input-3-2b8f>")];
        assert_eq!(own.source(&cell[1].file), Claim::Program);
        let unknown = [python(""), python("/home/me/train.py")];
        assert_eq!(own.responsible_frame(&unknown).unwrap().file, "/home/me/train.py");
    }

    #[test]
    fn package_includes_its_private_body() {
        let own = OwnCode::of_package("/v/lib/python3.11/site-packages/pytest/__main__.py", None).unwrap();
        assert_eq!(own.source("/v/lib/python3.11/site-packages/_pytest/main.py"), Claim::Package);
        assert_eq!(own.source("/v/lib/python3.11/site-packages/pytest_cov/plugin.py"), Claim::Python);
        let own = OwnCode::of_package("/v/lib/python3.11/site-packages/six.py", None).unwrap();
        assert_eq!(own.source("/v/lib/python3.11/site-packages/six.py"), Claim::Package);
        assert_eq!(OwnCode::of_package("/home/me/a.py", None), None);
    }

    #[test]
    fn modules_have_the_names_of_their_imports() {
        for (file, module) in [
            (PACKAGE, "black"),
            ("/usr/lib/python3/dist-packages/six.py", "six"),
            ("/usr/lib/python3.11/json/decoder.py", "json"),
            ("/usr/lib/python3.11/re.py", "re"),
            ("<frozen importlib._bootstrap>", "importlib"),
            ("<string>", "<string>"),
            ("/home/me/train.py", "train"),
            ("/opt/libfoo.so.3", "libfoo.so.3"),
        ] {
            assert_eq!(module_of(file), module, "{file}");
        }
    }
}
