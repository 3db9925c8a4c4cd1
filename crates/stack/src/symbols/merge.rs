//! Python and native frames of one moment, merged in true order.
//!
//! The interpreter runs Python code in a C function that, from 3.11 on, stays the same while Python calls Python. So each activation of that function is
//! for a run of Python frames, the outermost of which C called (its `entry` flag), and is replaced by them.

use std::vec::Vec;

/// What a native frame is to the merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeKind {
    /// Runs Python code.
    Evaluates,
    /// Part of one that does: inlined into it, or a step of it (3.14's tail calls).
    EvaluatesToo,
    /// Other code of the interpreter.
    Interpreter,
    /// Anything else.
    Other,
}

impl NativeKind {
    /// By the function's name. `interpreter`: it is in the interpreter's module ([`super::is_interpreter`]).
    pub fn of(function: Option<&str>, interpreter: bool) -> Self {
        let name = function.unwrap_or_default();
        // compilers add suffixes to parts they move away: `.cold`, `.part.0`, `.lto_priv.0`
        let plain = name.split('.').next().unwrap_or_default();
        match plain {
            "_PyEval_EvalFrameDefault" => Self::Evaluates,
            _ if plain.starts_with("_TAIL_CALL_") => Self::EvaluatesToo,
            _ if interpreter => Self::Interpreter,
            _ => Self::Other,
        }
    }
}

/// A frame of the merged stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<P, N> {
    /// A Python frame.
    Python(P),
    /// A native frame.
    Native(N),
    /// Frames are missing here.
    Truncated,
}

/// Merges `python` (each with its `entry` flag; `None` where frames are missing) and `native` (each with its kind), both innermost first. `cut`: native
/// frames are missing at the outer end.
///
/// Where the interpreter's function cannot be recognised (its names were stripped), the native frames inside the innermost Python
/// frame stay, up to the interpreter's own code, and the rest is Python alone.
pub fn merge<P: Clone, N: Clone>(
    python: &[Option<(P, bool)>],
    native: &[(N, NativeKind)],
    cut: bool,
) -> Vec<Frame<P, N>> {
    let mut runs = runs(python);
    let evaluations = native.iter().filter(|(_, kind)| *kind == NativeKind::Evaluates).count();
    let mut merged = Vec::with_capacity(python.len() + native.len());
    if evaluations == 0 {
        let leaf =
            native.iter().take_while(|(_, kind)| python.is_empty() || *kind != NativeKind::Interpreter);
        merged.extend(leaf.map(|(frame, _)| Frame::Native(frame.clone())));
        merged.extend(python.iter().map(python_frame));
        return merged;
    }
    // An activation may have no frame yet, or one Python still hides: only the innermost can be so.
    let hidden = python.iter().any(Option::is_none);
    let without_frame = if cut || hidden { 0 } else { evaluations.saturating_sub(runs.len()) };
    // Nothing is lost when the counts do not fit otherwise: what is left goes to the outermost activation, or to the missing ones.
    let mut seen = 0;
    for (frame, kind) in native {
        match kind {
            NativeKind::EvaluatesToo => {}
            NativeKind::Evaluates => {
                seen += 1;
                if seen > without_frame
                    && let Some(run) = runs.next_run()
                {
                    merged.extend(run.iter().map(python_frame));
                }
                if seen == evaluations && !cut {
                    merged.extend(runs.rest().iter().map(python_frame));
                }
            }
            _ => merged.push(Frame::Native(frame.clone())),
        }
    }
    if cut {
        merged.push(Frame::Truncated);
        merged.extend(runs.rest().iter().map(python_frame));
    }
    merged
}

fn python_frame<P: Clone, N>(frame: &Option<(P, bool)>) -> Frame<P, N> {
    match frame {
        Some((frame, _)) => Frame::Python(frame.clone()),
        None => Frame::Truncated,
    }
}

/// Python frames in runs that end with an entry frame.
struct Runs<'a, P> {
    left: &'a [Option<(P, bool)>],
}

fn runs<P>(python: &[Option<(P, bool)>]) -> Runs<'_, P> {
    Runs { left: python }
}

impl<'a, P> Runs<'a, P> {
    fn len(&self) -> usize {
        self.left.iter().flatten().filter(|(_, entry)| *entry).count()
    }

    fn next_run(&mut self) -> Option<&'a [Option<(P, bool)>]> {
        let length = self
            .left
            .iter()
            .position(|frame| matches!(frame, Some((_, true))))
            .map_or(self.left.len(), |at| at + 1);
        let (run, left) = self.left.split_at(length);
        self.left = left;
        (!run.is_empty()).then_some(run)
    }

    fn rest(&mut self) -> &'a [Option<(P, bool)>] {
        core::mem::take(&mut self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, NativeKind, merge};
    use proptest::prelude::*;
    use std::string::String;
    use std::vec::Vec;

    fn python(frames: &[(&'static str, bool)]) -> Vec<Option<(&'static str, bool)>> {
        frames.iter().map(|frame| (frame.0 != "...").then_some(*frame)).collect()
    }

    fn native(names: &[&'static str]) -> Vec<(&'static str, NativeKind)> {
        names.iter().map(|name| (*name, NativeKind::of(Some(name), name.starts_with("Py")))).collect()
    }

    fn text(frames: &[Frame<&'static str, &'static str>]) -> String {
        let words = frames.iter().map(|frame| match frame {
            Frame::Python(name) | Frame::Native(name) => *name,
            Frame::Truncated => "...",
        });
        words.collect::<Vec<_>>().join(" ")
    }

    proptest! {
        #[test]
        fn no_frame_is_lost_or_moved(
            python in proptest::collection::vec(proptest::option::of((0u32..1000, any::<bool>())), 0..30),
            kinds in proptest::collection::vec(0usize..4, 0..30),
            cut in any::<bool>(),
        ) {
            let all = [NativeKind::Evaluates, NativeKind::EvaluatesToo, NativeKind::Interpreter, NativeKind::Other];
            let native: Vec<_> = kinds.iter().enumerate().map(|(at, kind)| (at, all[*kind])).collect();
            let merged = merge(&python, &native, cut);
            let seen: Vec<_> = merged.iter().filter_map(|frame| if let Frame::Python(frame) = frame { Some(*frame) } else { None }).collect();
            prop_assert_eq!(seen, python.iter().flatten().map(|frame| frame.0).collect::<Vec<_>>());
            let natives: Vec<_> = merged.iter().filter_map(|frame| if let Frame::Native(at) = frame { Some(*at) } else { None }).collect();
            prop_assert!(natives.is_sorted());
            if kinds.contains(&0) {
                prop_assert_eq!(natives.len(), kinds.iter().filter(|kind| **kind > 1).count());
            }
        }
    }

    const EVAL: &str = "_PyEval_EvalFrameDefault";

    #[test]
    fn each_activation_becomes_its_python_frames() {
        let merged = merge(
            &python(&[("h", false), ("g", true), ("f", false), ("main", true)]),
            &native(&[
                "malloc",
                "PyList_New",
                "_PyEval_EvalFrameDefault.cold",
                "PySort",
                EVAL,
                "Py_Main",
                "_start",
            ]),
            false,
        );
        assert_eq!(text(&merged), "malloc PyList_New h g PySort f main Py_Main _start");
    }

    #[test]
    fn tail_calls_are_part_of_their_activation() {
        let merged = merge(
            &python(&[("g", true), ("main", true)]),
            &native(&["malloc", "_TAIL_CALL_CALL.llvm.7", EVAL, "PyX", "_TAIL_CALL_SEND", EVAL, "_start"]),
            false,
        );
        assert_eq!(text(&merged), "malloc g PyX main _start");
    }

    #[test]
    fn an_activation_without_a_frame_yet_is_left_out() {
        let merged =
            merge(&python(&[("main", true)]), &native(&["malloc", EVAL, "PyX", EVAL, "_start"]), false);
        assert_eq!(text(&merged), "malloc PyX main _start");
    }

    #[test]
    fn stripped_interpreters_leave_python_and_the_leaf() {
        let merged = merge(
            &python(&[("g", true), ("main", true)]),
            &native(&["malloc", "numpy_zeros", "Py?", "Py?", "_start"]),
            false,
        );
        assert_eq!(text(&merged), "malloc numpy_zeros g main");
        assert_eq!(
            text(&merge(&python(&[]), &native(&["malloc", "Py?", "_start"]), false)),
            "malloc Py? _start"
        );
    }

    #[test]
    fn missing_frames_are_shown_and_none_is_lost() {
        let merged = merge(
            &python(&[("h", true), ("g", false), ("...", false), ("main", true)]),
            &native(&["malloc", EVAL, "PyX", EVAL, "_start"]),
            false,
        );
        assert_eq!(text(&merged), "malloc h PyX g ... main _start");
        let merged = merge(&python(&[("h", true), ("main", true)]), &native(&["malloc", EVAL, "PyX"]), true);
        assert_eq!(text(&merged), "malloc h PyX ... main");
    }
}
