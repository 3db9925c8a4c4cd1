//! The kept native stack against one unwound fresh, at every step of a random walk through functions that use the frame pointer in every way.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::arch::global_asm;
use std::collections::HashMap;

use stormlog_stack::Nodes;
use stormlog_stack::native::{NativeStack, Registers, Unwinder};

// Each calls `next` with its first argument. `counting` has the number in `rbp`, as a loop would; `framed` has a frame there and a stack of that size; `plain`
// leaves it alone.
global_asm!(
    ".macro begin_test_function name",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    ".cfi_startproc",
    ".endm",
    ".macro end_test_function name",
    ".cfi_endproc",
    ".size \\name, . - \\name",
    ".endm",
    "begin_test_function kept_native_counting",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rdx",
    "call rsi",
    "pop rbp",
    ".cfi_def_cfa_offset 8",
    ".cfi_restore rbp",
    "ret",
    "end_test_function kept_native_counting",
    "begin_test_function kept_native_framed",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "shl rdx, 4",
    "sub rsp, rdx",
    "call rsi",
    "leave",
    ".cfi_def_cfa rsp, 8",
    ".cfi_restore rbp",
    "ret",
    "end_test_function kept_native_framed",
    "begin_test_function kept_native_plain",
    "sub rsp, 8",
    ".cfi_def_cfa_offset 16",
    "call rsi",
    "add rsp, 8",
    ".cfi_def_cfa_offset 8",
    "ret",
    "end_test_function kept_native_plain",
);

type Next = unsafe extern "C" fn(*mut Walk);

#[expect(improper_ctypes, reason = "passed on, never looked into")]
unsafe extern "C" {
    fn kept_native_counting(walk: *mut Walk, next: Next, number: u64);
    fn kept_native_framed(walk: *mut Walk, next: Next, number: u64);
    fn kept_native_plain(walk: *mut Walk, next: Next, number: u64);
}

#[derive(Default)]
struct Tree(HashMap<(u32, u64), u32>);

impl Nodes for Tree {
    fn python(&mut self, _: u32, _: usize, _: u32, _: bool) -> u32 {
        unreachable!("no Python here")
    }
    fn native(&mut self, parent: u32, address: u64) -> u32 {
        let next = self.0.len() as u32 + 1;
        *self.0.entry((parent, address)).or_insert(next)
    }
    fn truncated(&mut self, parent: u32) -> u32 {
        self.native(parent, 0)
    }
}

struct Walk {
    kept: Box<NativeStack>,
    unwinder: &'static Unwinder,
    tree: Tree,
    seed: u64,
    depth: u32,
    steps: u32,
    /// Stacks that were as they had been one step before.
    unchanged: u32,
    last: u32,
}

impl Walk {
    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }
}

/// # Safety
/// As a `&mut Walk`, which it was.
unsafe extern "C" fn go_on(walk: *mut Walk) {
    // SAFETY: the caller guarantees that `walk` was made from a `&mut Walk` that is not used meanwhile.
    let walk = unsafe { &mut *walk };
    for _ in 0..=walk.random(3) {
        if walk.steps > 0 && walk.depth < 12 && walk.random(5) > 0 {
            walk.depth += 1;
            let number = walk.random(6);
            // SAFETY: each of these has that type and keeps to the C calling convention.
            unsafe {
                match walk.random(3) {
                    0 => kept_native_counting(walk, go_on, number),
                    1 => kept_native_framed(walk, go_on, number),
                    _ => kept_native_plain(walk, go_on, number),
                }
            }
            walk.depth -= 1;
        }
        // SAFETY: `walk` is a live `Walk` that nothing else refers to during the call.
        unsafe { check(walk) };
    }
}

/// # Safety
/// As a `&mut Walk`, which it was.
unsafe extern "C" fn check(walk: *mut Walk) {
    // SAFETY: the caller guarantees that `walk` was made from a `&mut Walk` that is not used meanwhile.
    let walk = unsafe { &mut *walk };
    walk.steps = walk.steps.saturating_sub(1);
    let registers = Registers::capture();
    let kept = walk.kept.current(&registers, walk.unwinder, &(0..0), &mut walk.tree);
    let mut fresh = Box::new(NativeStack::new());
    let fresh = fresh.current(&registers, walk.unwinder, &(0..0), &mut walk.tree);
    assert_eq!(kept, fresh, "at depth {} with {} steps to go", walk.depth, walk.steps);
    assert_ne!(kept, 0);
    walk.unchanged += u32::from(kept == walk.last);
    walk.last = kept;
}

#[test]
fn kept_stack_equals_a_fresh_unwind() {
    let mut walk = Walk {
        kept: Box::new(NativeStack::new()),
        unwinder: Unwinder::new().unwrap(),
        tree: Tree::default(),
        seed: 1,
        depth: 0,
        steps: 2500,
        unchanged: 0,
        last: 0,
    };
    while walk.steps > 0 {
        // SAFETY: `walk` is a live `Walk` that nothing else refers to during the call.
        unsafe { go_on(&raw mut walk) };
        // the very same place, with other numbers in the register: what is kept must not depend on it
        for number in 0..4 {
            // SAFETY: `walk` is a local that outlives the call; `check` takes it as it was given.
            unsafe { kept_native_counting(&raw mut walk, check, number) };
        }
    }
    let stacks = walk.tree.0.len();
    assert!(walk.unchanged > 100 && stacks > 1000, "{} unchanged, {stacks} nodes", walk.unchanged);
}
