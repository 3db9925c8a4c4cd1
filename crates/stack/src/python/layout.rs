//! Offsets of the fields we read in CPython's structures: a table for 3.11 and 3.12, what the interpreter publishes from 3.13 on.
//!
//! Must never guess: a version that is not here is refused.

use super::Unsupported;

/// Byte offsets and constants of one interpreter build (64-bit, with a GIL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// In the thread state: the current frame, or the C frame that holds it.
    pub thread_frame: u16,
    /// In the C frame (3.11, 3.12): the current frame.
    pub cframe_frame: Option<u16>,
    pub thread_id: u16,
    pub frame_previous: u16,
    pub frame_code: u16,
    pub frame_instruction: u16,
    pub frame_owner: u16,
    /// 3.11: the byte that says C called this frame. Later versions put a frame of their own (a shim) on the C stack instead.
    pub frame_entry: Option<u16>,
    pub frame_locals: u16,
    pub stack_top: StackTop,
    pub code_name: u16,
    pub code_file: u16,
    pub code_lines: u16,
    pub code_first_line: u16,
    pub code_instructions: u16,
    pub bytes_length: u16,
    pub bytes_data: u16,
    pub text_length: u16,
    pub text_state: u16,
    /// Size of a string's head when it is ASCII, and when it is not.
    pub text_ascii: u16,
    pub text_compact: u16,
}

/// Where a frame that called another one keeps the end of its evaluation stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackTop {
    /// An index into its locals.
    Index(u16),
    /// Not known for this version.
    Unknown,
}

/// A frame on the thread's own stack of frames.
pub(super) const OWNER_THREAD: u8 = 0;
/// Frames with this owner or a greater one are no Python frames (3.12+).
pub(super) const OWNER_SHIM: u8 = 3;
/// A generator's frame counts from its first instruction.
pub(super) const OWNER_GENERATOR: u8 = 1;
/// From 3.14 references in frames carry a tag in their lowest bits; objects are 8-byte aligned everywhere.
pub(super) const REFERENCE: usize = !7;

impl Layout {
    pub const V3_11: Self = Self {
        thread_frame: 56,
        cframe_frame: Some(8),
        thread_id: 152,
        frame_previous: 48,
        frame_code: 32,
        frame_instruction: 56,
        frame_owner: 69,
        frame_entry: Some(68),
        frame_locals: 72,
        stack_top: StackTop::Index(64),
        code_name: 128,
        code_file: 112,
        code_lines: 136,
        code_first_line: 72,
        code_instructions: 184,
        bytes_length: 16,
        bytes_data: 32,
        text_length: 16,
        text_state: 32,
        text_ascii: 48,
        text_compact: 72,
    };

    const V3_12: Self = Self {
        cframe_frame: Some(0),
        thread_id: 136,
        frame_previous: 8,
        frame_code: 0,
        frame_owner: 70,
        frame_entry: None,
        code_first_line: 68,
        code_instructions: 192,
        text_ascii: 40,
        text_compact: 56,
        ..Self::V3_11
    };

    /// The index of the first instruction a debugger may see; it is right before `co_extra`, which is right before the instructions.
    pub fn code_first_traceable(&self) -> u16 {
        self.code_instructions - 16
    }

    /// The number of words of the evaluation stack; right before the first line.
    pub fn code_stack_size(&self) -> u16 {
        self.code_first_line - 4
    }

    /// The number of local variables, which the evaluation stack follows; right after the first line.
    pub fn code_locals(&self) -> u16 {
        self.code_first_line + 4
    }

    pub fn code_extra(&self) -> u16 {
        self.code_instructions - 8
    }

    /// The layout for `version` (as `Py_Version` spells it). `runtime`: the address of `_PyRuntime`, or 0.
    ///
    /// # Safety
    /// `runtime` is 0 or the address of the interpreter's `_PyRuntime`.
    pub unsafe fn of(version: u32, runtime: usize) -> Result<Self, Unsupported> {
        // the last byte is f0 for a final release: tables made from releases say nothing about what came before
        match (version >> 16, version & 0xf0) {
            (0x030b, 0xf0) => Ok(Self::V3_11),
            (0x030c, 0xf0) => Ok(Self::V3_12),
            // SAFETY: the caller guarantees that `runtime` is the interpreter's `_PyRuntime`, which begins with the
            // published offsets in these versions.
            (0x030d, 0xf0) if runtime != 0 => unsafe { Self::published(version, runtime, &OFFSETS_3_13) },
            // SAFETY: the caller guarantees that `runtime` is the interpreter's `_PyRuntime`, which begins with the
            // published offsets in these versions.
            (0x030e, 0xf0) if runtime != 0 => unsafe { Self::published(version, runtime, &OFFSETS_3_14) },
            _ => Err(Unsupported::Version(version)),
        }
    }

    /// The layout that the interpreter itself publishes.
    ///
    /// # Safety
    /// `runtime` is the address of the `_PyRuntime` of a CPython of this version.
    unsafe fn published(version: u32, runtime: usize, at: &Published) -> Result<Self, Unsupported> {
        // SAFETY: `_PyRuntime` starts with `_Py_DebugOffsets`, an array of u64 as far as we read, constant for the process's life.
        let words = unsafe { core::slice::from_raw_parts(runtime as *const u64, at.unicode + 4) };
        if words[0] != u64::from_le_bytes(*b"xdebugpy") || words[1] != u64::from(version) {
            return Err(Unsupported::Offsets(version));
        }
        if words[2] != 0 {
            return Err(Unsupported::FreeThreaded(version));
        }
        let ascii = offset(words, at.unicode + 3, version)?;
        let code_first_line = offset(words, at.code + 5, version)?;
        let frame_locals = offset(words, at.frame + 4, version)?;
        let as_3_12 =
            frame_locals == Self::V3_12.frame_locals && code_first_line == Self::V3_12.code_first_line;
        Ok(Self {
            thread_frame: offset(words, at.thread + 4, version)?,
            cframe_frame: None,
            thread_id: offset(words, at.thread + 5, version)?,
            frame_previous: offset(words, at.frame + 1, version)?,
            frame_code: offset(words, at.frame + 2, version)?,
            frame_instruction: offset(words, at.frame + 3, version)?,
            frame_owner: offset(words, at.frame + 5, version)?,
            frame_entry: None,
            frame_locals,
            // 3.13 has the fields of 3.12 here and does not publish this one
            stack_top: if version >> 16 == 0x030d && as_3_12 {
                Self::V3_12.stack_top
            } else {
                StackTop::Unknown
            },
            code_name: offset(words, at.code + 3, version)?,
            code_file: offset(words, at.code + 1, version)?,
            code_lines: offset(words, at.code + 4, version)?,
            code_first_line,
            code_instructions: offset(words, at.code + 9, version).and_then(|at| match at {
                16.. => Ok(at),
                _ => Err(Unsupported::Offsets(version)),
            })?,
            bytes_length: offset(words, at.bytes + 1, version)?,
            bytes_data: offset(words, at.bytes + 2, version)?,
            text_length: offset(words, at.unicode + 2, version)?,
            text_state: offset(words, at.unicode + 1, version)?,
            text_ascii: ascii,
            text_compact: ascii + 16, // the UTF-8 form and its length follow
        })
    }
}

/// Where the groups of `_Py_DebugOffsets` start, in words.
struct Published {
    thread: usize,
    frame: usize,
    code: usize,
    bytes: usize,
    unicode: usize,
}

const OFFSETS_3_13: Published = Published { thread: 19, frame: 28, code: 34, bytes: 64, unicode: 67 };
const OFFSETS_3_14: Published = Published { thread: 22, frame: 31, code: 39, bytes: 74, unicode: 77 };

/// No structure we read is larger than this; anything else means that the table of offsets is not what we think.
fn offset(words: &[u64], index: usize, version: u32) -> Result<u16, Unsupported> {
    match words.get(index) {
        Some(&value) if value < 4096 => Ok(value as u16),
        _ => Err(Unsupported::Offsets(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, OFFSETS_3_13, Unsupported};

    const V3_13_5: u32 = 0x030d_05f0;

    fn fake_runtime() -> [u64; 128] {
        let mut words = [8; 128];
        words[0] = u64::from_le_bytes(*b"xdebugpy");
        words[1] = V3_13_5.into();
        words[2] = 0;
        words[OFFSETS_3_13.code + 9] = 200;
        words
    }

    fn read(words: &[u64; 128], version: u32) -> Result<Layout, Unsupported> {
        // SAFETY: the words stand for a runtime that begins with its offsets.
        unsafe { Layout::of(version, words.as_ptr() as usize) }
    }

    #[test]
    fn published_offsets_are_taken_or_refused() {
        let mut words = fake_runtime();
        assert_eq!(read(&words, V3_13_5).unwrap().code_instructions, 200);
        words[OFFSETS_3_13.frame + 1] = 1 << 40;
        assert_eq!(read(&words, V3_13_5), Err(Unsupported::Offsets(V3_13_5)));
        words = fake_runtime();
        words[0] += 1;
        assert_eq!(read(&words, V3_13_5), Err(Unsupported::Offsets(V3_13_5)));
        words = fake_runtime();
        words[2] = 1;
        assert_eq!(read(&words, V3_13_5), Err(Unsupported::FreeThreaded(V3_13_5)));
    }

    #[test]
    fn unknown_versions_and_early_releases_are_refused() {
        for version in [0x030a_0df0, 0x030f_00f0, 0x030b_00b3, 0x0400_00f0] {
            assert_eq!(read(&fake_runtime(), version), Err(Unsupported::Version(version)));
        }
    }
}
