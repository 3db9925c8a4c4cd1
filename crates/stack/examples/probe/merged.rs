//! One stack of Python and native frames with their names.

use std::path::PathBuf;

use stormlog_stack::native::each_module;
use stormlog_stack::symbols::{
    Frame as Merged, Function, Module, NativeKind, Symbols, is_interpreter, merge,
};

use crate::{Frame, TREE, both_walks, frames, give, native};

fn modules() -> Vec<Module> {
    let mut modules = Vec::new();
    each_module(|module| {
        let path = match module.path.to_str().unwrap() {
            "" => std::fs::read_link("/proc/self/exe").unwrap(),
            path => PathBuf::from(path),
        };
        let (start, end, bias) = (module.start, module.end, module.bias);
        modules.push(Module { path, start, end, bias, build_id: module.build_id.to_vec() });
    });
    modules
}

/// Writes lines of `P name`, `N function TAB file TAB line`, or `...`, innermost first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_merged(out: *mut u8, room: usize) -> usize {
    let mut tree = TREE.lock().unwrap();
    let (node, _) = both_walks(&mut tree);
    let python: Vec<Option<(String, bool)>> = frames(&tree, node)
        .into_iter()
        .map(|frame| match frame {
            Frame::Python { code, entry, .. } => Some((tree.codes[code as usize].name.clone(), entry)),
            _ => None,
        })
        .collect();
    drop(tree);

    let mut symbols = Symbols::new(modules());
    let mut cut = false;
    let mut named: Vec<(Function, NativeKind)> = Vec::new();
    for frame in native::walk() {
        let Frame::Native(address) = frame else {
            cut = true;
            continue;
        };
        let interpreter = symbols.module(address).is_some_and(|module| is_interpreter(&module.path));
        let functions = symbols.lookup(address, true);
        let outer =
            NativeKind::of(functions.last().and_then(|function| function.name.as_deref()), interpreter);
        for function in functions {
            let kind = match outer {
                NativeKind::Evaluates if function.inlined => NativeKind::EvaluatesToo,
                kind => kind,
            };
            named.push((function, kind));
        }
    }
    let evaluations = named.iter().filter(|(_, kind)| *kind == NativeKind::Evaluates).count();
    let entries = python.iter().flatten().filter(|(_, entry)| *entry).count();
    let mut answer = format!("{evaluations} {entries}\n");
    for frame in merge(&python, &named, cut) {
        match frame {
            Merged::Python(name) => answer.push_str(&format!("P {name}\n")),
            Merged::Native(Function { name, file, line, .. }) => {
                let (name, file) = (name.unwrap_or_default(), file.unwrap_or_default());
                answer.push_str(&format!("N {name}\t{file}\t{}\n", line.unwrap_or(0)));
            }
            Merged::Truncated => answer.push_str("...\n"),
        }
    }
    // SAFETY: the caller (the test, through ctypes) passes a buffer of `room` bytes, as `give` requires.
    unsafe { give(&answer, out, room) }
}
