//! One step of unwinding by a complete row of the table, with every register in it: signal frames, lazy binding, unusual functions. Slow and rare.

use gimli::{CfaRule, EhFrame, Operation, Register, RegisterRule, UnwindExpression, X86_64};

use super::rules::{Bytes, ENCODING, Row, Unwinder};
use crate::native::Registers;
use crate::native::bounds::Bounds;

/// DWARF numbers 0 to 15 are the general registers, 16 the return address.
const COUNT: usize = 17;

/// A frame with all the registers that are known.
#[derive(Clone, Copy)]
pub(in crate::native) struct Full {
    values: [Option<u64>; COUNT],
    /// The address is where the frame was interrupted, not where a call returns to.
    exact: bool,
}

/// What a step led to.
pub(in crate::native) enum Step {
    Caller,
    Outermost,
    Lost,
}

impl Full {
    pub fn new(registers: &Registers) -> Self {
        let mut values = [None; COUNT];
        let [r12, r13, r14, r15] = registers.r12_15;
        let known = [
            (3, registers.bx),
            (6, registers.bp),
            (7, registers.sp),
            (12, r12),
            (13, r13),
            (14, r14),
            (15, r15),
            (16, registers.ip),
        ];
        for (number, value) in known {
            if let Some(slot) = values.get_mut::<usize>(number) {
                *slot = Some(value);
            }
        }
        Self { values, exact: false }
    }

    pub fn ip(&self) -> u64 {
        self.get(X86_64::RA).unwrap_or(0)
    }

    pub fn sp(&self) -> u64 {
        self.get(X86_64::RSP).unwrap_or(0)
    }

    fn get(&self, register: Register) -> Option<u64> {
        *self.values.get(usize::from(register.0))?
    }

    /// Goes to the caller's frame. Reads only inside `bounds`.
    pub fn step(&mut self, unwinder: &Unwinder, bounds: Bounds) -> Step {
        let address = self.ip().wrapping_sub(u64::from(!self.exact));
        let frame = *self;
        let step = unwinder.with_row(address, |row, frames, signal| frame.apply(row, frames, signal, bounds));
        match step.flatten() {
            Some(Some(caller)) => {
                *self = caller;
                Step::Caller
            }
            Some(None) => Step::Outermost,
            None => Step::Lost,
        }
    }

    /// The caller, if there is one; the outer `None`: it is unknown.
    fn apply(
        &self,
        row: &Row,
        frames: &EhFrame<Bytes>,
        signal: bool,
        bounds: Bounds,
    ) -> Option<Option<Self>> {
        if matches!(row.register(X86_64::RA), None | Some(RegisterRule::Undefined)) {
            return Some(None);
        }
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.get(*register)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => self.evaluate(expression, frames, None, bounds)?,
        };
        let mut caller = Self { values: self.values, exact: signal };
        if let Some(sp) = caller.values.get_mut(7) {
            *sp = Some(cfa);
        }
        for (register, rule) in row.registers() {
            let value = match rule {
                RegisterRule::SameValue => self.get(*register),
                RegisterRule::Offset(offset) => read(cfa.wrapping_add_signed(*offset), bounds),
                RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
                RegisterRule::Register(other) => self.get(*other),
                RegisterRule::Expression(expression) => self
                    .evaluate(expression, frames, Some(cfa), bounds)
                    .and_then(|address| read(address, bounds)),
                RegisterRule::ValExpression(expression) => {
                    self.evaluate(expression, frames, Some(cfa), bounds)
                }
                _ => None,
            };
            if let Some(slot) = caller.values.get_mut(usize::from(register.0)) {
                *slot = value;
            }
        }
        let (sp, old) = (caller.get(X86_64::RSP)?, self.get(X86_64::RSP)?);
        // outwards is upwards, but for the stack a signal handler runs on
        if caller.get(X86_64::RA)? == 0 || (!signal && sp <= old) {
            return Some(None);
        }
        Some(Some(caller))
    }

    /// The few operations unwind tables use.
    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        frames: &EhFrame<Bytes>,
        start: Option<u64>,
        bounds: Bounds,
    ) -> Option<u64> {
        let mut stack = Words { words: [0; 16], len: 0 };
        if let Some(start) = start {
            stack.push(start)?;
        }
        let mut operations = expression.get(frames).ok()?.operations(ENCODING);
        while let Some(operation) = operations.next().ok()? {
            let value = match operation {
                Operation::RegisterOffset { register, offset, .. } => {
                    self.get(register)?.wrapping_add_signed(offset)
                }
                Operation::UnsignedConstant { value } => value,
                Operation::SignedConstant { value } => value as u64,
                Operation::PlusConstant { value } => stack.pop()?.wrapping_add(value),
                Operation::Deref { .. } => read(stack.pop()?, bounds)?,
                Operation::Plus => stack.pop()?.wrapping_add(stack.pop()?),
                Operation::And => stack.pop()? & stack.pop()?,
                Operation::Shl => {
                    let shift = u32::try_from(stack.pop()?).ok()?;
                    stack.pop()?.checked_shl(shift).unwrap_or(0)
                }
                Operation::Ge => {
                    let right = stack.pop()? as i64;
                    u64::from(stack.pop()? as i64 >= right)
                }
                Operation::Nop => continue,
                _ => return None,
            };
            stack.push(value)?;
        }
        stack.pop()
    }
}

struct Words {
    words: [u64; 16],
    len: usize,
}

impl Words {
    fn push(&mut self, word: u64) -> Option<()> {
        *self.words.get_mut(self.len)? = word;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        self.words.get(self.len).copied()
    }
}

/// A word of the stack.
#[inline(always)]
pub(in crate::native) fn read(address: u64, bounds: Bounds) -> Option<u64> {
    // SAFETY: inside the mapped stack; alignment is not asked for.
    bounds.has(address, 8).then(|| unsafe { (address as *const u64).read_unaligned() })
}
