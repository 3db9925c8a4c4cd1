//! Offline: names, files and lines for native addresses, and Python and native frames merged into one stack.
//!
//! Works from the files on disk, which may have changed since: a module whose build id is not the recorded one gives no names, never wrong ones.

mod debug_file;
mod merge;

use std::boxed::Box;
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::vec::Vec;

use addr2line::{Loader, demangle_auto};
pub use merge::{Frame, NativeKind, merge};
use thiserror::Error;

/// A module as it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The file.
    pub path: PathBuf,
    /// The addresses it was mapped to.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// What was added to the addresses in the file.
    pub bias: u64,
    /// Its GNU build id; empty when it has none.
    pub build_id: Vec<u8>,
}

/// One function at an address. Where functions were inlined, an address has several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Demangled; `None` where no table names it.
    pub name: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// Inlined into the function that follows it.
    pub inlined: bool,
}

/// Why a module gives no names.
#[derive(Debug, Error)]
pub enum SymbolError {
    /// Cannot be opened or is not an object file.
    #[error(
        "{path}: {reason}: native frames of this module stay without names; put the file back to get them"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system or the reader said.
        reason: String,
    },
    /// Not the file that was loaded.
    #[error(
        "{path} has changed since it was recorded (build id {found}, recorded {recorded}): its names would be wrong"
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// The file's build id.
        found: String,
        /// The recorded one.
        recorded: String,
    },
}

/// The modules of one recording; each file is opened when it is first needed.
pub struct Symbols {
    modules: Vec<(Module, State)>,
}

enum State {
    Unopened,
    Open(Box<Open>),
    Failed(SymbolError),
}

struct Open {
    file: Loader,
    /// Where debug information was split off.
    debug: Option<Loader>,
}

impl Symbols {
    /// For these modules. Where two overlap (one was unloaded before the other came), the later one in the list counts.
    pub fn new(modules: impl IntoIterator<Item = Module>) -> Self {
        Self { modules: modules.into_iter().map(|module| (module, State::Unopened)).collect() }
    }

    /// The module of an address.
    pub fn module(&self, address: u64) -> Option<&Module> {
        self.modules
            .iter()
            .rev()
            .map(|(module, _)| module)
            .find(|module| (module.start..module.end).contains(&address))
    }

    /// The functions at an address, innermost first; at least one entry, without a name if nothing is known. For a return address, pass
    /// `returns`: it belongs to the call before it.
    pub fn lookup(&mut self, address: u64, returns: bool) -> Vec<Function> {
        let unknown = || Vec::from([Function::default()]);
        let address = address.saturating_sub(returns.into());
        let Some((module, state)) =
            self.modules.iter_mut().rev().find(|(module, _)| (module.start..module.end).contains(&address))
        else {
            return unknown();
        };
        if let State::Unopened = state {
            *state = match Open::new(module) {
                Ok(open) => State::Open(Box::new(open)),
                Err(error) => State::Failed(error),
            };
        }
        let State::Open(open) = state else { return unknown() };
        let functions = open.lookup(address.wrapping_sub(module.bias));
        if functions.is_empty() { unknown() } else { functions }
    }

    /// The modules that were needed and gave no names.
    pub fn problems(&self) -> impl Iterator<Item = &SymbolError> {
        self.modules.iter().filter_map(|(_, state)| match state {
            State::Failed(error) => Some(error),
            _ => None,
        })
    }
}

impl Open {
    fn new(module: &Module) -> Result<Self, SymbolError> {
        let path = &module.path;
        let unreadable = |reason: String| SymbolError::Unreadable { path: path.clone(), reason };
        let facts = debug_file::facts(path).map_err(unreadable)?;
        if !module.build_id.is_empty() && facts.build_id != module.build_id {
            return Err(SymbolError::Changed {
                path: path.clone(),
                found: hex(&facts.build_id),
                recorded: hex(&module.build_id),
            });
        }
        let file = Loader::new(path).map_err(|error| unreadable(error.to_string()))?;
        let debug = debug_file::find(path, &facts).and_then(|path| Loader::new(path).ok());
        Ok(Self { file, debug })
    }

    fn lookup(&self, address: u64) -> Vec<Function> {
        let loaders = || self.debug.iter().chain([&self.file]);
        let mut functions = loaders()
            .map(|loader| frames(loader, address))
            .find(|found| !found.is_empty())
            .unwrap_or_default();
        if functions.last().is_none_or(|outer| outer.name.is_none()) {
            let symbol = loaders().find_map(|loader| loader.find_symbol(address));
            if let Some(symbol) = symbol {
                let name = Some(demangle_auto(symbol.into(), None).into_owned());
                match functions.last_mut() {
                    Some(outer) => outer.name = name,
                    None => functions.push(Function { name, ..Function::default() }),
                }
            }
        }
        functions
    }
}

fn frames(loader: &Loader, address: u64) -> Vec<Function> {
    let mut functions = Vec::new();
    let Ok(mut found) = loader.find_frames(address) else { return functions };
    while let Ok(Some(frame)) = found.next() {
        let name = frame.function.and_then(|name| name.demangle().ok().map(|name| name.into_owned()));
        let (file, line) =
            frame.location.map_or((None, None), |at| (at.file.map(ToString::to_string), at.line));
        functions.push(Function { name, file, line, inlined: true });
    }
    if let Some(outer) = functions.last_mut() {
        outer.inlined = false;
    }
    functions
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| std::format!("{byte:02x}")).collect()
}

/// Whether a path is the interpreter: its library, or a program called `python...`.
pub fn is_interpreter(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("libpython") || name.starts_with("python")
}
