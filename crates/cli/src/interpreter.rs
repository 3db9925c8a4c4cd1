//! The Python interpreter that belongs to this command, for what only Python does: scripts without a shebang, SQL, W&B, MLflow.
//!
//! A wheel puts the command and the package into one prefix (venv, pipx, conda, `--user`) or into one directory (`--target`), so
//! the command's own location determines which interpreter has the package. Must never start an interpreter to find out, and never
//! take one from the current directory.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::cmd::record::run_start::{is_executable, on_path};

/// Names another interpreter. The variable is the user's: programs that are recorded see it too.
const VARIABLE: &str = "STORMLOG_PYTHON";
/// Any Python, where none belongs to this command.
const ANY: &str = "python3";

/// The interpreter this command was started by, and whether it is this very process.
static CALLER: OnceLock<(OsString, bool)> = OnceLock::new();

/// `python -m stormlog` became this process.
pub fn started_by(python: OsString) {
    // The first to say so is right: there is one caller.
    let _ = CALLER.set((python, false));
}

/// The command runs in an interpreter, as a function of the extension module.
pub fn runs_inside(python: OsString) {
    let _ = CALLER.set((python, true));
}

/// The interpreter that is this process, if one is.
pub(crate) fn this_process() -> Option<&'static OsStr> {
    CALLER.get().filter(|(_, is_this_process)| *is_this_process).map(|(python, _)| python.as_os_str())
}

/// What runs a Python script: the interpreter beside this command, else the first on PATH.
pub(crate) fn for_scripts() -> OsString {
    if let Some(python) = with_package() {
        return python.program;
    }
    let beside = own_directory().and_then(|bin| executable(bin.join(ANY)));
    beside.map_or_else(|| ANY.into(), PathBuf::into_os_string)
}

/// An interpreter that can import the package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    program: OsString,
    /// Where the package is, when the interpreter does not look there by itself.
    search: Option<PathBuf>,
    /// Started as `python -m stormlog`, it may have the package from the current directory.
    has_current_directory: bool,
}

impl Interpreter {
    fn new(program: impl Into<OsString>) -> Self {
        Interpreter { program: program.into(), search: None, has_current_directory: false }
    }

    pub(crate) fn program(&self) -> &OsStr {
        &self.program
    }

    /// The command that runs a module of the package.
    pub(crate) fn module(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        if !self.has_current_directory {
            // A json.py where the user happens to be must not take the place of Python's own.
            command.arg("-P");
        }
        command.args(["-m", name]);
        if let Some(folder) = &self.search {
            let before = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty());
            let all = before.iter().map(PathBuf::from).chain([folder.clone()]);
            let joined = all.map(PathBuf::into_os_string).collect::<Vec<_>>().join(OsStr::new(":"));
            command.env("PYTHONPATH", joined);
        }
        command
    }
}

/// The interpreter that has the package: the caller, the one the user names, or the one this command is installed with.
pub(crate) fn with_package() -> Option<Interpreter> {
    if let Some((python, _)) = CALLER.get() {
        return Some(Interpreter { has_current_directory: true, ..Interpreter::new(python) });
    }
    if let Some(python) = std::env::var_os(VARIABLE).filter(|python| !python.is_empty()) {
        return Some(Interpreter::new(python));
    }
    installed_with(&own_directory()?)
}

/// The command that posts over TLS, which only Python has here; empty where there is none.
pub(crate) fn secure_post() -> Vec<OsString> {
    let Some(python) = with_package() else { return Vec::new() };
    let command = python.module("stormlog._https");
    let mut words: Vec<OsString> = Vec::new();
    for (name, value) in command.get_envs() {
        let mut pair = name.to_owned();
        pair.push("=");
        pair.push(value.unwrap_or_default());
        words.push(pair);
    }
    if !words.is_empty() {
        words.insert(0, "env".into());
    }
    words.push(command.get_program().to_owned());
    words.extend(command.get_args().map(OsStr::to_owned));
    words
}

/// Where this command is, links resolved: pipx and others link to it from a directory on PATH.
fn own_directory() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.parent().map(Path::to_owned)
}

fn installed_with(bin: &Path) -> Option<Interpreter> {
    let prefix = bin.parent()?;
    for name in interpreters_with_package(prefix) {
        if let Some(python) = executable(bin.join(&name)).or_else(|| named_on_path(&name)) {
            return Some(Interpreter::new(python));
        }
    }
    let is_target = has_package(prefix);
    let any = is_target.then(|| on_path(OsStr::new(ANY))).flatten()?;
    Some(Interpreter { search: Some(prefix.to_owned()), ..Interpreter::new(any) })
}

/// `python3.12` for each `lib/python3.12/site-packages` that has the package, the newest first.
fn interpreters_with_package(prefix: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"] {
        for entry in prefix.join(lib).read_dir().into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let folders = ["site-packages", "dist-packages"].map(|folder| entry.path().join(folder));
            if name.starts_with("python3") && folders.iter().any(|folder| has_package(folder)) {
                found.push(name);
            }
        }
    }
    // 3.12 is newer than 3.9.
    let minor = |name: &String| name.rsplit('.').next().and_then(|minor| minor.parse::<u32>().ok());
    found.sort_by_key(|name| std::cmp::Reverse(minor(name)));
    found.dedup();
    found
}

/// Whether the package is installed in a directory; its record is there for an editable installation too.
fn has_package(folder: &Path) -> bool {
    let is_record = |name: &str| name.starts_with("stormlog-") && name.ends_with(".dist-info");
    let mut entries = folder.read_dir().into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_str().is_some_and(is_record))
}

/// `python3.12` on PATH, or a `python3` that is a link to it.
fn named_on_path(name: &str) -> Option<PathBuf> {
    let is_it = |python: &PathBuf| {
        python.canonicalize().is_ok_and(|real| real.file_name().is_some_and(|real| real == OsStr::new(name)))
    };
    on_path(OsStr::new(name)).or_else(|| on_path(OsStr::new(ANY)).filter(is_it))
}

fn executable(path: PathBuf) -> Option<PathBuf> {
    path.metadata().is_ok_and(|found| found.is_file() && is_executable(&found)).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn package(folder: &Path) {
        fs::create_dir_all(folder.join("stormlog-0.5.0.dist-info")).unwrap();
    }

    #[test]
    fn the_interpreter_is_the_one_whose_packages_have_ours() {
        let prefix = tempfile::tempdir().unwrap();
        let (prefix, bin) = (prefix.path(), prefix.path().join("bin"));
        program(&bin.join("python3.9"));
        program(&bin.join("python3.12"));
        package(&prefix.join("lib/python3.9/site-packages"));
        assert_eq!(installed_with(&bin), Some(Interpreter::new(bin.join("python3.9"))));
        package(&prefix.join("lib/python3.12/site-packages"));
        assert_eq!(installed_with(&bin), Some(Interpreter::new(bin.join("python3.12"))), "the newest");
    }

    #[test]
    fn a_prefix_without_the_package_has_no_interpreter_for_it() {
        let prefix = tempfile::tempdir().unwrap();
        program(&prefix.path().join("bin/python3.12"));
        fs::create_dir_all(prefix.path().join("lib/python3.12/site-packages/other-1.dist-info")).unwrap();
        assert_eq!(installed_with(&prefix.path().join("bin")), None);
    }

    #[test]
    fn a_target_directory_is_added_to_where_python_looks() {
        let target = tempfile::tempdir().unwrap();
        package(target.path());
        // Without a python3 on PATH there is nothing to find.
        let Some(found) = installed_with(&target.path().join("bin")) else { return };
        assert_eq!(found.search.as_deref(), Some(target.path()));
        let command = found.module("stormlog._sql");
        let value =
            command.get_envs().find(|(name, _)| *name == OsStr::new("PYTHONPATH")).unwrap().1.unwrap();
        assert!(std::env::split_paths(value).any(|path| path == target.path()));
    }
}
