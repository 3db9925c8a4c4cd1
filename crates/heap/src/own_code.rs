//! Finds out from the recorded stacks which installed package the program runs: `bin/black`, `python -m black`. Must not take a user's own
//! script for the console script of a package.

use stormlog_model::own_code::{OwnCode, package_of};
use stormlog_model::stacks::is_library;

use crate::tree::{Code, ROOT, Step, Tree};

/// How a frame was reached from the outermost one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// In a way that decides nothing.
    No,
    /// From `runpy`, which is what `-m` starts.
    Runpy,
    /// From a script in a directory of programs: its code slot.
    Script(u32),
}

/// Packages that load the entry point of another.
const LOADERS: [&str; 2] = ["pkg_resources", "importlib_metadata"];

/// The installed package that the recorded program runs, if it does. Nodes have the order of their first allocation: the first installed package
/// that is imported or called, with nothing but the import system between, is the one.
pub(crate) fn own_code(tree: &Tree) -> OwnCode {
    let mut reached = vec![Reached::No; tree.nodes.len()];
    let mut found: Option<OwnCode> = None;
    for (node, (parent, step)) in tree.nodes.iter().enumerate().skip(1) {
        let Some((slot, code)) = code(tree, *step) else { continue };
        let before = reached.get(*parent as usize).copied().unwrap_or(Reached::No);
        reached[node] = match before {
            Reached::No if *parent != ROOT => Reached::No,
            Reached::No if is_runpy(&code.file) => Reached::Runpy,
            Reached::No if is_script(code) => Reached::Script(slot),
            Reached::No => Reached::No,
            _ if is_runpy(&code.file) || is_import(&code.file) => before,
            _ => Reached::No,
        };
        if before == Reached::No || reached[node] != Reached::No {
            continue;
        }
        let Some(package) = package_of(&code.file).filter(|package| !is_loader(package)) else { continue };
        match before {
            Reached::Script(slot) => {
                let script = &tree.codes[slot as usize].file;
                if is_installed_beside(script, package) && is_stub(tree, script) {
                    return OwnCode::of_package(&code.file, Some(script)).unwrap_or_default();
                }
            }
            // A console script says more.
            _ => found = found.or_else(|| OwnCode::of_package(&code.file, None)),
        }
    }
    found.unwrap_or_default()
}

fn code(tree: &Tree, step: Step) -> Option<(u32, &Code)> {
    match step {
        Step::Python { code, .. } | Step::Line { code, .. } => Some((code, tree.codes.get(code as usize)?)),
        Step::Named { .. } | Step::Native { .. } | Step::Truncated | Step::Mark { .. } => None,
    }
}

fn is_runpy(file: &str) -> bool {
    file == "<frozen runpy>" || (file.ends_with("/runpy.py") && is_library(file))
}

fn is_import(file: &str) -> bool {
    file.starts_with("<frozen importlib") || (file.contains("/importlib/") && is_library(file))
}

/// The body of a script in `bin`, where installers put console scripts.
fn is_script(code: &Code) -> bool {
    let folder = code.file.rsplit('/').nth(1);
    code.name == "<module>" && matches!(folder, Some("bin" | "sbin")) && !is_library(&code.file)
}

/// `/venv/bin/black` and `/venv/lib/python3.11/site-packages/black/`.
fn is_installed_beside(script: &str, package: &str) -> bool {
    let prefix = script.rsplitn(3, '/').nth(2);
    prefix.is_some_and(|prefix| package.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')))
}

/// A console script only imports and calls: a script with a function of its own is a program.
fn is_stub(tree: &Tree, script: &str) -> bool {
    !tree.codes.iter().any(|code| code.file == script && code.name != "<module>")
}

fn is_loader(package: &str) -> bool {
    let name = package.trim_end_matches('/').rsplit('/').next().unwrap_or(package);
    LOADERS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with one stack for each list of (file, function), the outermost first.
    fn tree(stacks: &[&[(&str, &str)]]) -> Tree {
        let mut tree = Tree::default();
        for stack in stacks {
            let mut parent = ROOT;
            for (file, name) in *stack {
                let code = Code { name: (*name).into(), file: (*file).into(), ..Code::default() };
                let slot = tree.codes.iter().position(|known| *known == code).unwrap_or_else(|| {
                    tree.codes.push(code);
                    tree.codes.len() - 1
                });
                parent = tree.node(parent, Step::Line { code: slot as u32, line: 1, is_entry: false });
            }
        }
        tree
    }

    const BLACK: &str = "/v/lib/python3.11/site-packages/black/__init__.py";
    const CLICK: &str = "/v/lib/python3.11/site-packages/click/core.py";
    const IMPORT: (&str, &str) = ("<frozen importlib._bootstrap>", "_find_and_load");

    #[test]
    fn console_script_runs_the_package_it_imports_first() {
        let script = ("/v/bin/black", "<module>");
        let stacks: [&[_]; 3] = [
            &[script, IMPORT, ("/usr/lib/python3.11/re/__init__.py", "<module>")],
            &[script, IMPORT, (BLACK, "<module>"), IMPORT, (CLICK, "<module>")],
            &[script, (CLICK, "__call__"), (BLACK, "main")],
        ];
        assert_eq!(own_code(&tree(&stacks)), OwnCode::of_package(BLACK, Some("/v/bin/black")).unwrap());
    }

    #[test]
    fn script_of_the_user_is_not_a_stub() {
        let own = ("/home/me/bin/report", "<module>");
        let numpy = ("/usr/lib/python3/dist-packages/numpy/__init__.py", "<module>");
        assert_eq!(own_code(&tree(&[&[own, IMPORT, numpy]])), OwnCode::default());
        let own = ("/usr/bin/report", "<module>");
        let stacks: [&[_]; 2] = [&[own, IMPORT, numpy], &[own, ("/usr/bin/report", "load")]];
        assert_eq!(own_code(&tree(&stacks)), OwnCode::default());
        let own = ("/home/me/train.py", "<module>");
        assert_eq!(own_code(&tree(&[&[own, IMPORT, numpy]])), OwnCode::default());
    }

    #[test]
    fn module_switch_runs_the_package_it_names() {
        let runpy = [("<frozen runpy>", "_run_module_as_main"), ("<frozen runpy>", "_run_code")];
        let stack = [runpy[0], runpy[1], ("/v/lib/python3.11/site-packages/black/__main__.py", "<module>")];
        assert_eq!(own_code(&tree(&[&stack])), OwnCode::of_package(BLACK, None).unwrap());
        let stack = [runpy[0], runpy[1], ("/usr/lib/python3.11/json/tool.py", "<module>"), (BLACK, "f")];
        assert_eq!(own_code(&tree(&[&stack])), OwnCode::default());
    }
}
