//! Unwind rules: read from `.eh_frame` once for each return address, kept in one word.
//!
//! Most rules are of one shape: the caller's frame starts a fixed distance above `rsp` or `rbp`, the return address lies right below it, and `rbp`
//! is where it was or at a fixed distance too. What is not of that shape is left to `full`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Operation, Pointer, Register,
    RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow,
    X86_64,
};

use super::modules::{Module, Modules};

pub(super) type Bytes = EndianSlice<'static, NativeEndian>;
pub(super) type Row = UnwindTableRow<usize, Storage>;

/// Room for unwinding one frame without an allocator.
pub(super) struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// How to get from a frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// No table covers the address.
    Unknown,
    /// The outermost frame.
    Outermost,
    /// Not of the simple shape.
    Full,
    /// The caller's frame starts at `from` plus `distance`; its `rbp` is saved at `bp` from there, or unchanged when 0.
    Simple { from: From, distance: i32, bp: i16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Sp,
    Bp,
    /// The word at `rbp` plus the distance: a function that aligned its stack.
    WordAtBp,
}

impl Rule {
    fn pack(self) -> u64 {
        match self {
            Self::Unknown => 1,
            Self::Outermost => 2,
            Self::Full => 3,
            Self::Simple { from, distance, bp } => {
                (4 + from as u64) | (u64::from(bp as u16) << 16) | (u64::from(distance as u32) << 32)
            }
        }
    }

    #[inline(always)]
    fn unpack(word: u64) -> Self {
        let from = match word & 0xff {
            1 => return Self::Unknown,
            2 => return Self::Outermost,
            4 => From::Sp,
            5 => From::Bp,
            6 => From::WordAtBp,
            _ => return Self::Full,
        };
        Self::Simple { from, distance: (word >> 32) as i32, bp: (word >> 16) as i16 }
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
        // SAFETY: new anonymous memory.
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

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Relaxed)
    }

    /// The rule for a return address.
    #[inline]
    pub(super) fn rule(&self, address: u64) -> Rule {
        // user addresses have 47 bits
        let key = address ^ u64::from(self.generation.load(Relaxed)) << 48;
        let slot = self.slots.get(((address.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 50) as usize);
        if let Some((checked, rule)) = slot {
            let word = rule.load(Relaxed);
            if checked.load(Relaxed) ^ mix(word) == key {
                return Rule::unpack(word);
            }
        }
        let rule = self.read_rule(address);
        if let Some((checked, word)) = slot {
            word.store(rule.pack(), Relaxed);
            checked.store(key ^ mix(rule.pack()), Relaxed);
        }
        rule
    }

    #[cold]
    #[inline(never)]
    fn read_rule(&self, address: u64) -> Rule {
        self.with_row(
            address.wrapping_sub(1),
            |row, frames, signal| if signal { Rule::Full } else { simple(row, frames) },
        )
        .unwrap_or(Rule::Unknown)
    }

    /// Finds the row of the unwind table for exactly `address`. The last argument of `use_row`: a signal's return code.
    pub(super) fn with_row<R>(
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

fn mix(word: u64) -> u64 {
    word.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn simple(row: &Row, frames: &EhFrame<Bytes>) -> Rule {
    match row.register(X86_64::RA) {
        None | Some(RegisterRule::Undefined) => return Rule::Outermost,
        Some(RegisterRule::Offset(-8)) => {}
        _ => return Rule::Full,
    }
    let bp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => Some(0),
        Some(RegisterRule::Offset(distance)) => {
            i16::try_from(distance).ok().filter(|distance| *distance != AT_BP)
        }
        Some(RegisterRule::Expression(expression)) => at_bp(&expression, frames).then_some(AT_BP),
        _ => None,
    };
    let from = match row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => Some((From::Sp, *offset)),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => Some((From::Bp, *offset)),
        CfaRule::Expression(expression) => word_at_bp(expression, frames)
            .filter(|offset| *offset != 0 && i16::try_from(*offset).is_ok())
            .map(|offset| (From::WordAtBp, offset)),
        _ => None,
    };
    match (bp, from) {
        (Some(bp), Some((from, distance))) => match i32::try_from(distance) {
            Ok(distance) => Rule::Simple { from, distance, bp },
            Err(_) => Rule::Full,
        },
        _ => Rule::Full,
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
pub(super) const AT_BP: i16 = i16::MIN;

pub(super) const ENCODING: gimli::Encoding =
    gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
