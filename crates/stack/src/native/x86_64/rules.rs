//! Unwind rules: read from `.eh_frame` once for each return address, kept in one word.
//!
//! Most rules are of one shape: the caller's frame starts a fixed distance above `rsp` or `rbp`, the return address is right below it, and `rbp`
//! is where it was or at a fixed distance too. What is not of that shape is left to `full`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Operation, Pointer, Register,
    RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow,
    X86_64,
};

use crate::native::modules::{Module, Modules};

pub(in crate::native) type Bytes = EndianSlice<'static, NativeEndian>;
pub(in crate::native) type Row = UnwindTableRow<usize, Storage>;

/// Room for unwinding one frame without an allocator.
pub(in crate::native) struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// How to get from a frame to its caller, in one word: the caller's frame starts at the base plus a distance; its `rbp` is saved at a distance from there,
/// or unchanged when that is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::native) struct Rule(u64);

/// What the distance of a rule is from, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::native) enum Base {
    Sp,
    Bp,
    /// The word at `rbp` plus the distance: a function that aligned its stack.
    WordAtBp,
    /// No table covers the address.
    Unknown,
    /// The outermost frame.
    Outermost,
    /// Not of the simple shape.
    Full,
}

impl Rule {
    const UNKNOWN: Self = Self::none(Base::Unknown);
    const OUTERMOST: Self = Self::none(Base::Outermost);
    const FULL: Self = Self::none(Base::Full);

    const fn none(base: Base) -> Self {
        Self(base as u64)
    }

    const fn simple(base: Base, distance: i32, bp: i16) -> Self {
        Self(base as u64 | (bp as u16 as u64) << 16 | (distance as u32 as u64) << 32)
    }

    #[inline(always)]
    pub fn base(self) -> Base {
        match self.0 & 7 {
            0 => Base::Sp,
            1 => Base::Bp,
            2 => Base::WordAtBp,
            3 => Base::Unknown,
            4 => Base::Outermost,
            _ => Base::Full,
        }
    }

    #[inline(always)]
    pub fn distance(self) -> i64 {
        self.0 as i64 >> 32
    }

    #[inline(always)]
    pub fn bp(self) -> i16 {
        (self.0 >> 16) as i16
    }
}

/// Slots of the rule cache.
const SLOTS: usize = 1 << 14;

/// The unwind rules of this process, shared by all its threads. About 280 KiB of memory, of which what is used is touched.
pub struct Unwinder {
    modules: Modules,
    /// Counts refreshes; a kept stack or rule of another one is not used.
    generation: AtomicU32,
    /// Pairs of (address and generation, mixed with the rule; rule): a torn pair does not fit together.
    slots: [(AtomicU64, AtomicU64); SLOTS],
}

impl Unwinder {
    /// Maps memory for one and reads the loader's list. It is never freed: a thread may be using it at any time. `None`: no memory.
    /// Takes the loader's lock; not for the inside of `malloc`.
    pub fn new() -> Option<&'static Self> {
        let size = size_of::<Self>();
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps no memory in use.
        let memory = unsafe { libc::mmap(core::ptr::null_mut(), size, access, kind, -1, 0) };
        if memory == libc::MAP_FAILED {
            return None;
        }
        let unwinder = memory.cast::<Self>();
        // SAFETY: zeroed, page-aligned, large enough and ours for ever; all fields are valid when zero.
        let unwinder = unsafe {
            Modules::prepare(&raw mut (*unwinder).modules);
            &*unwinder
        };
        unwinder.refresh();
        Some(unwinder)
    }

    /// To be called after libraries were loaded or unloaded, by one thread at a time, outside `malloc`: forgets every rule.
    pub fn refresh(&self) {
        self.modules.refresh();
        self.generation.fetch_add(1, Relaxed);
    }

    #[inline(always)]
    pub(in crate::native) fn generation(&self) -> u32 {
        self.generation.load(Relaxed)
    }

    /// The rule for a return address.
    #[inline(always)]
    pub(in crate::native) fn rule(&self, address: u64) -> Rule {
        // user addresses have 47 bits
        let key = address ^ u64::from(self.generation.load(Relaxed)) << 48;
        let slot = self.slots.get(((address.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 50) as usize);
        if let Some((checked, rule)) = slot {
            let word = rule.load(Relaxed);
            if checked.load(Relaxed) ^ mix(word) == key {
                return Rule(word);
            }
        }
        let rule = self.read_rule(address);
        if let Some((checked, word)) = slot {
            word.store(rule.0, Relaxed);
            checked.store(key ^ mix(rule.0), Relaxed);
        }
        rule
    }

    #[cold]
    #[inline(never)]
    fn read_rule(&self, address: u64) -> Rule {
        self.with_row(
            address.wrapping_sub(1),
            |row, frames, signal| if signal { Rule::FULL } else { simple(row, frames) },
        )
        .unwrap_or(Rule::UNKNOWN)
    }

    /// Finds the row of the unwind table for exactly `address`. The last argument of `use_row`: a signal's return code.
    pub(in crate::native) fn with_row<R>(
        &self,
        address: u64,
        use_row: impl FnOnce(&Row, &EhFrame<Bytes>, bool) -> R,
    ) -> Option<R> {
        let Module { start, end, tables } = self.modules.find(address as usize)?;
        if tables < start || tables >= end {
            return None;
        }
        // SAFETY: the loader says that the module's tables lie there, and that it is mapped up to `end`. Its parts without memory, if any, lie
        // between its segments, where no table's entries lead.
        let bytes = |from: usize| unsafe { core::slice::from_raw_parts(from as *const u8, end - from) };
        let bases = BaseAddresses::default().set_eh_frame_hdr(tables as u64).set_text(start as u64);
        let header = EhFrameHdr::new(bytes(tables), NativeEndian).parse(&bases, 8).ok()?;
        let Pointer::Direct(frames) = header.eh_frame_ptr() else { return None };
        let frames = usize::try_from(frames).ok().filter(|frames| (start..end).contains(frames))?;
        let bases = bases.set_eh_frame(frames as u64);
        let section = EhFrame::new(bytes(frames), NativeEndian);
        let entry =
            header.table()?.fde_for_address(&section, &bases, address, EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::<usize, Storage>::new_in();
        let row = entry.unwind_info_for_address(&section, &bases, &mut context, address).ok()?;
        Some(use_row(row, &section, entry.is_signal_trampoline()))
    }
}

#[inline(always)]
const fn mix(word: u64) -> u64 {
    word.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn simple(row: &Row, frames: &EhFrame<Bytes>) -> Rule {
    match row.register(X86_64::RA) {
        None | Some(RegisterRule::Undefined) => return Rule::OUTERMOST,
        Some(RegisterRule::Offset(-8)) => {}
        _ => return Rule::FULL,
    }
    let bp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(0),
        Some(RegisterRule::Offset(distance)) => {
            i16::try_from(distance).ok().filter(|distance| *distance != AT_BP)
        }
        Some(RegisterRule::Expression(expression)) => at_bp(&expression, frames).then_some(AT_BP),
        _ => None,
    };
    let base = match row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => Some((Base::Sp, *offset)),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => Some((Base::Bp, *offset)),
        CfaRule::Expression(expression) => word_at_bp(expression, frames)
            .filter(|offset| *offset != 0 && i16::try_from(*offset).is_ok())
            .map(|offset| (Base::WordAtBp, offset)),
        _ => None,
    };
    match (bp, base) {
        (Some(bp), Some((base, distance))) => match i32::try_from(distance) {
            Ok(distance) => Rule::simple(base, distance, bp),
            Err(_) => Rule::FULL,
        },
        _ => Rule::FULL,
    }
}

/// The distance in an expression that says just "the word at `rbp` plus a distance".
fn word_at_bp(expression: &UnwindExpression<usize>, frames: &EhFrame<Bytes>) -> Option<i64> {
    let mut operations = expression.get(frames).ok()?.operations(ENCODING);
    let Operation::RegisterOffset { register: X86_64::RBP, offset, .. } = operations.next().ok()?? else {
        return None;
    };
    let Operation::Deref { .. } = operations.next().ok()?? else { return None };
    operations.next().ok()?.is_none().then_some(offset)
}

/// Whether an expression says just "at `rbp`": where functions that align their stack keep their caller's.
fn at_bp(expression: &UnwindExpression<usize>, frames: &EhFrame<Bytes>) -> bool {
    let Ok(expression) = expression.get(frames) else { return false };
    let mut operations = expression.operations(ENCODING);
    matches!(operations.next(), Ok(Some(Operation::RegisterOffset { register: X86_64::RBP, offset: 0, .. })))
        && matches!(operations.next(), Ok(None))
}

/// In place of a distance: the caller's `rbp` is where this frame's points.
pub(in crate::native) const AT_BP: i16 = i16::MIN;

pub(in crate::native) const ENCODING: gimli::Encoding =
    gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
