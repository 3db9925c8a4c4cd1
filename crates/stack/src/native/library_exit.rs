//! The path from the registers out of the library that took them: two frames, as a rule, of fixed size. What is kept are rules of that library's own code,
//! which stays loaded; never what they led to.

use core::ops::Range;

use super::Registers;
use super::bounds::Bounds;
use super::x86_64::full::read;
use super::x86_64::rules::{AT_BP, Base, Unwinder};
use super::x86_64::step::{State, step};

/// Paths that are kept: a power of two.
const SLOTS: usize = 8;

/// From a frame of the library, through one that called it and is another's of the library, to the first frame outside. All distances are from the
/// innermost stack pointer.
#[derive(Clone, Copy)]
#[repr(C)]
struct ExitPath {
    /// Where the second frame continues; 0: no path is kept here.
    second: u64,
    /// The stack pointer of the frame outside.
    sp: u32,
    /// Where its `bp` is saved; 0: it is in the register.
    bp_at: u32,
}

/// the paths that were found. Valid when zero.
#[repr(C)]
pub(super) struct LibraryExit {
    /// Where the innermost frame continues, and the second frame's stack pointer.
    first: u64,
    second_sp: u32,
    paths: [ExitPath; SLOTS],
}

impl LibraryExit {
    pub const NONE: Self =
        Self { first: 0, second_sp: 0, paths: [ExitPath { second: 0, sp: 0, bp_at: 0 }; SLOTS] };

    /// The first frame outside `hidden`; the innermost where the path out is unknown.
    #[inline(always)]
    pub fn follow(
        &mut self,
        registers: &Registers,
        unwinder: &Unwinder,
        hidden: &Range<u64>,
        bounds: Bounds,
    ) -> State {
        if registers.ip == self.first
            && let Some(second) = read(above(registers.sp, self.second_sp).wrapping_sub(8), bounds)
            && let Some(path) = self.paths.get(slot(second))
            && path.second == second
        {
            let sp = above(registers.sp, path.sp);
            let ip = read(sp.wrapping_sub(8), bounds);
            let bp = match path.bp_at {
                0 => Some(registers.bp),
                at => read(above(registers.sp, at), bounds),
            };
            if let (Some(ip), Some(bp)) = (ip, bp)
                && ip != 0
                && !hidden.contains(&ip)
            {
                return State { ip, sp, bp };
            }
        }
        self.find(registers, unwinder, hidden, bounds)
    }

    #[cold]
    #[inline(never)]
    fn find(
        &mut self,
        registers: &Registers,
        unwinder: &Unwinder,
        hidden: &Range<u64>,
        bounds: Bounds,
    ) -> State {
        let innermost = State { ip: registers.ip, sp: registers.sp, bp: registers.bp };
        self.keep(&innermost, unwinder, hidden, bounds);
        let mut state = innermost;
        while hidden.contains(&state.ip) {
            match step(&state, unwinder, bounds) {
                Ok(caller) => state = caller.state,
                Err(_) => return innermost,
            }
        }
        state
    }

    /// Keeps the path if it is of the usual shape.
    fn keep(&mut self, innermost: &State, unwinder: &Unwinder, hidden: &Range<u64>, bounds: Bounds) {
        let fixed = |ip: u64| {
            let rule = unwinder.rule(ip);
            let usual = rule.base() == Base::Sp && rule.bp() != AT_BP && hidden.contains(&ip);
            let distance = u32::try_from(rule.distance()).ok();
            distance.filter(|_| usual).map(|distance| (distance, rule.bp()))
        };
        let mut keep = || {
            let (second_sp, first_bp) = fixed(innermost.ip)?;
            let second = step(innermost, unwinder, bounds).ok()?.state.ip;
            let (distance, second_bp) = fixed(second)?;
            let sp = second_sp.checked_add(distance)?;
            let bp_at = match (first_bp, second_bp) {
                (0, 0) => 0,
                (at, 0) => second_sp.checked_add_signed(at.into()).filter(|at| *at > 0)?,
                (_, at) => sp.checked_add_signed(at.into()).filter(|at| *at > 0)?,
            };
            if self.first != innermost.ip {
                *self = Self { first: innermost.ip, second_sp, ..Self::NONE };
            }
            *self.paths.get_mut(slot(second))? = ExitPath { second, sp, bp_at };
            Some(())
        };
        let _ = keep();
    }
}

#[inline(always)]
const fn above(sp: u64, distance: u32) -> u64 {
    sp.wrapping_add(distance as u64)
}

#[inline(always)]
fn slot(second: u64) -> usize {
    (second >> 4 ^ second >> 8) as usize & (SLOTS - 1)
}
