//! One step of unwinding by a simple rule: from the state of a frame to that of its caller. Must never read outside the stack.

use super::full::read;
use super::rules::{AT_BP, Base, Rule, Unwinder};
use crate::native::bounds::Bounds;

/// What of a frame decides everything further out: of `bp`, only where the way to the caller leads over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(in crate::native) struct State {
    /// Where the frame continues.
    pub ip: u64,
    /// Its stack pointer there; for all but the innermost, the word below it is `ip`.
    pub sp: u64,
    pub bp: u64,
}

/// A frame, and where on the stack its state was found.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::native) struct UnwoundFrame {
    pub state: State,
    /// Where `bp` was saved by the frame it called; 0: it was not.
    pub bp_at: u64,
    /// Where `sp` was saved by the frame it called; 0: it was not.
    pub sp_at: u64,
    /// The `bp` of the frame it called took part in finding it. Functions that keep something else in that register save their caller's and restore it from
    /// there.
    pub by_bp: bool,
}

impl UnwoundFrame {
    pub const NOTHING: Self = Self::start(State { ip: 0, sp: 0, bp: 0 });

    /// A frame that was not found by unwinding.
    #[inline(always)]
    pub const fn start(state: State) -> Self {
        Self { state, bp_at: 0, sp_at: 0, by_bp: true }
    }
}

/// Why unwinding ended.
pub(in crate::native) enum End {
    Outermost,
    Lost,
    Full,
}

/// The caller of a frame, by its simple rule.
#[inline(always)]
pub(in crate::native) fn step(
    from: &State,
    unwinder: &Unwinder,
    bounds: Bounds,
) -> Result<UnwoundFrame, End> {
    let rule = unwinder.rule(from.ip);
    // what a live frame may own: from its stack pointer on
    let own = Bounds { low: from.sp, ..bounds };
    let base = rule.base();
    let (sp, sp_at) = if base == Base::Sp {
        (from.sp.wrapping_add_signed(rule.distance()), 0)
    } else if base == Base::Bp {
        (from.bp.wrapping_add_signed(rule.distance()), 0)
    } else {
        seldom(from, rule, own)?
    };
    // A frame has at least its return address, and outwards is upwards: else that address is below the stack pointer.
    let ip = read(sp.wrapping_sub(8), own).ok_or(End::Lost)?;
    let (bp, bp_at, bp_kept) = match rule.bp() {
        0 => (from.bp, 0, true),
        AT_BP => (read(from.bp, own).ok_or(End::Lost)?, from.bp, true),
        bp => {
            let at = sp.wrapping_add_signed(bp.into());
            (read(at, own).ok_or(End::Lost)?, at, false)
        }
    };
    match ip {
        0 => Err(End::Outermost),
        _ => {
            Ok(UnwoundFrame { state: State { ip, sp, bp }, bp_at, sp_at, by_bp: base != Base::Sp || bp_kept })
        }
    }
}

/// Where the caller's frame starts, and where that was found.
#[cold]
fn seldom(from: &State, rule: Rule, own: Bounds) -> Result<(u64, u64), End> {
    match rule.base() {
        Base::WordAtBp => {
            let at = from.bp.wrapping_add_signed(rule.distance());
            Ok((read(at, own).ok_or(End::Lost)?, at))
        }
        Base::Outermost => Err(End::Outermost),
        Base::Full => Err(End::Full),
        _ => Err(End::Lost),
    }
}
