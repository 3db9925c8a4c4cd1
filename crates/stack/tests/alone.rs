//! The walkers in a process without Python.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use stormlog_stack::Nodes;
use stormlog_stack::native::{NativeStack, Registers, Unwinder, each_module};
use stormlog_stack::python::{Interpreter, Unsupported};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Native(u64),
    Truncated,
}

#[derive(Default)]
struct Tree(Vec<(u32, Frame)>);

impl Tree {
    fn intern(&mut self, parent: u32, frame: Frame) -> u32 {
        let known = self.0.iter().position(|node| *node == (parent, frame));
        known.unwrap_or_else(|| {
            self.0.push((parent, frame));
            self.0.len() - 1
        }) as u32
            + 1
    }

    /// Innermost first.
    fn frames(&self, mut node: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        while node != 0 {
            let (parent, frame) = self.0[node as usize - 1];
            frames.push(frame);
            node = parent;
        }
        frames
    }
}

impl Nodes for Tree {
    fn python(&mut self, _: u32, _: usize, _: u32, _: bool) -> u32 {
        unreachable!("no Python here")
    }
    fn native(&mut self, parent: u32, address: u64) -> u32 {
        self.intern(parent, Frame::Native(address))
    }
    fn truncated(&mut self, parent: u32) -> u32 {
        self.intern(parent, Frame::Truncated)
    }
}

#[inline(never)]
fn walk(stack: &mut NativeStack, unwinder: &Unwinder) -> Vec<Frame> {
    let mut tree = Tree::default();
    stack.clear();
    let node = stack.current(&Registers::capture(), unwinder, &(0..0), &mut tree);
    tree.frames(node)
}

#[test]
fn interpreter_is_not_found_without_python() {
    assert_eq!(Interpreter::find().unwrap_err(), Unsupported::NoPython);
}

#[test]
fn native_stack_hides_the_given_range() {
    let unwinder = Unwinder::new().unwrap();
    let mut stack = Box::new(NativeStack::new());
    let all = walk(&mut stack, unwinder);
    assert!(all.len() > 3 && !all.contains(&Frame::Truncated), "{all:x?}");
    let mut own = 0..0;
    each_module(|module| {
        if (module.start..module.end).contains(&(walk as *const () as u64)) {
            own = module.start..module.end;
        }
    });
    let mut tree = Tree::default();
    stack.clear();
    let node = stack.current(&Registers::capture(), unwinder, &own, &mut tree);
    let visible = tree.frames(node);
    assert!(
        !visible.is_empty()
            && visible.iter().all(|frame| !matches!(frame, Frame::Native(ip) if own.contains(ip))),
        "{visible:x?}"
    );
    assert!(all.ends_with(&visible));
}

/// Code made at run time, as a compiler in the process would, has no unwind table.
#[test]
fn code_without_a_table_ends_the_stack_and_is_marked() {
    struct Call<'a> {
        stack: Box<NativeStack>,
        unwinder: &'a Unwinder,
        seen: Vec<Frame>,
    }
    extern "C" fn called(call: &mut Call<'_>) {
        call.seen = walk(&mut call.stack, call.unwinder);
    }
    // sub rsp, 8; call rsi; add rsp, 8; ret
    let code = [0x48, 0x83, 0xec, 8, 0xff, 0xd6, 0x48, 0x83, 0xc4, 8, 0xc3];
    let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: new memory of our own, filled with a function of this type.
    let (made, address) = unsafe {
        let page =
            libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        page.cast::<u8>().copy_from(code.as_ptr(), code.len());
        (
            std::mem::transmute::<
                *mut libc::c_void,
                extern "C" fn(&mut Call<'_>, extern "C" fn(&mut Call<'_>)),
            >(page),
            page as u64,
        )
    };
    let mut call =
        Call { stack: Box::new(NativeStack::new()), unwinder: Unwinder::new().unwrap(), seen: Vec::new() };
    made(&mut call, called);
    let [.., Frame::Native(last), Frame::Truncated] = call.seen[..] else { panic!("{:x?}", call.seen) };
    assert_eq!(last, address + 6);
    // and what comes after is whole again
    assert!(!walk(&mut call.stack, call.unwinder).contains(&Frame::Truncated));
}

#[cfg(feature = "symbols")]
mod symbols {
    use std::path::PathBuf;

    use super::{Frame, NativeStack, Unwinder, walk};
    use stormlog_stack::native::each_module;
    use stormlog_stack::symbols::{Module, SymbolError, Symbols};

    fn modules() -> Vec<Module> {
        let mut modules = Vec::new();
        each_module(|module| {
            let path = match module.path.to_str().unwrap() {
                "" => std::env::current_exe().unwrap(),
                path => PathBuf::from(path),
            };
            let (start, end, bias) = (module.start, module.end, module.bias);
            modules.push(Module { path, start, end, bias, build_id: module.build_id.to_vec() });
        });
        modules
    }

    #[inline(always)]
    fn inlined(stack: &mut NativeStack, unwinder: &Unwinder) -> Vec<Frame> {
        walk(stack, unwinder)
    }

    #[inline(never)]
    fn outer(stack: &mut NativeStack, unwinder: &Unwinder) -> (Vec<Frame>, u32) {
        (inlined(stack, unwinder), line!())
    }

    #[test]
    fn names_files_lines_and_inlined_functions() {
        let (frames, line) = outer(&mut Box::new(NativeStack::new()), Unwinder::new().unwrap());
        let mut symbols = Symbols::new(modules());
        let Frame::Native(address) = frames[1] else { panic!("{frames:x?}") };
        let found = symbols.lookup(address, true);
        let names: Vec<_> = found.iter().map(|function| function.name.clone().unwrap()).collect();
        assert!(names[0].ends_with("inlined") && names[1].ends_with("outer"), "{found:?}");
        assert!(found[0].inlined && !found[1].inlined);
        assert_eq!(found[1].line, Some(line));
        assert!(found[1].file.as_deref().unwrap().ends_with("tests/alone.rs"));
        assert_eq!(symbols.problems().count(), 0);
        assert_eq!(symbols.lookup(8, true), [Default::default()]);
    }

    #[test]
    fn a_module_that_changed_gives_no_names() {
        let mut changed = modules();
        for module in &mut changed {
            if module.path.to_string_lossy().contains("libc.so") {
                module.build_id = vec![0xab; 20];
            } else if module.path.to_string_lossy().contains("libgcc_s") {
                module.path = "/no/such/file".into();
            }
        }
        let start = |name: &str| {
            let mut found = 0;
            each_module(|module| {
                if module.path.to_string_lossy().contains(name) {
                    found = module.start;
                }
            });
            found
        };
        let mut symbols = Symbols::new(changed);
        for name in ["libc.so", "libgcc_s"] {
            assert_eq!(symbols.lookup(start(name) + 0x5000, false), [Default::default()]);
        }
        let problems: Vec<_> = symbols.problems().collect();
        assert!(problems.iter().any(|problem| matches!(problem, SymbolError::Changed { recorded, .. } if recorded.starts_with("abab"))), "{problems:?}");
        assert!(
            problems.iter().any(
                |problem| matches!(problem, SymbolError::Unreadable { path, .. } if path.starts_with("/no"))
            ),
            "{problems:?}"
        );
    }
}
