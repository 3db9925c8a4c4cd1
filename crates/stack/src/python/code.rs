//! What a code object is called, read from memory while it is alive.

use super::{Interpreter, load};

/// A Python string as it is in memory: `kind` bytes (1, 2 or 4) a character, native byte order; kind 1 is Latin-1, not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// Bytes per character.
    pub kind: u8,
    /// The characters.
    pub bytes: &'a [u8],
}

/// Receives what [`Interpreter::describe`] reads. The slices are good only during the call. Must not allocate inside `malloc`.
pub trait CodeSink {
    /// The code object's qualified name, file, first line and location table (see [`crate::line_table`]).
    fn code(&mut self, name: Text<'_>, file: Text<'_>, first_line: u32, lines: &[u8]);
}

/// Strings longer than this are cut; a file name has at most 4096 bytes.
const LONGEST_TEXT: usize = 8 << 10;
/// Location tables longer than this are cut: some 10 million instructions.
const LONGEST_TABLE: usize = 32 << 20;

impl Interpreter {
    /// Reads the names and lines of a code object.
    ///
    /// # Safety
    /// `code` is a live code object: one a frame on this thread's stack refers to, as in [`crate::Nodes::python`].
    pub unsafe fn describe(&self, code: usize, sink: &mut impl CodeSink) {
        let layout = &self.layout;
        // SAFETY: the fields of a live code object refer to live strings and bytes, which never change.
        unsafe {
            let name = self.text(load(code, layout.code_name));
            let file = self.text(load(code, layout.code_file));
            let first_line: i32 = load(code, layout.code_first_line);
            sink.code(name, file, first_line.max(0) as u32, self.lines(code));
        }
    }

    /// A number that tells two code objects at one address apart by what we would record of them: name, file, first line and lines. For code that
    /// [`super::CodeWatch`] could not watch: say so by [`crate::Nodes::unwatched`], and compare this number in `Nodes::python`. Two code objects with the
    /// same number are the same to any report.
    ///
    /// # Safety
    /// As for [`Self::describe`].
    pub unsafe fn fingerprint(&self, code: usize) -> u64 {
        struct Hash(u64);
        impl CodeSink for Hash {
            fn code(&mut self, name: Text<'_>, file: Text<'_>, first_line: u32, lines: &[u8]) {
                for part in [name.bytes, file.bytes, &first_line.to_le_bytes(), lines] {
                    for chunk in part.chunks(8) {
                        let mut word = [0; 8];
                        word[..chunk.len()].copy_from_slice(chunk);
                        self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word))
                            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    }
                    self.0 ^= part.len() as u64;
                }
            }
        }
        let mut hash = Hash(0);
        // SAFETY: the caller guarantees that `code` is a live code object.
        unsafe { self.describe(code, &mut hash) };
        hash.0
    }

    /// # Safety
    /// `text` is 0 or a live `str`, `'a` no longer than its life.
    pub(super) unsafe fn text<'a>(&self, text: usize) -> Text<'a> {
        let nothing = Text { kind: 1, bytes: &[] };
        if text == 0 {
            return nothing;
        }
        let layout = &self.layout;
        // SAFETY: the caller guarantees that `text` is 0 or a live `str`. The characters of a compact string follow its
        // head; names in code objects are compact.
        unsafe {
            let state: u32 = load(text, layout.text_state);
            let (kind, compact, ascii) = ((state >> 2 & 7) as u8, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
            if !compact || !matches!(kind, 1 | 2 | 4) {
                return nothing;
            }
            let head = if ascii { layout.text_ascii } else { layout.text_compact };
            let length = load::<usize>(text, layout.text_length).min(LONGEST_TEXT) * usize::from(kind);
            Text { kind, bytes: core::slice::from_raw_parts((text + usize::from(head)) as *const u8, length) }
        }
    }

    /// # Safety
    /// `code` is a live code object, `'a` no longer than its life.
    unsafe fn lines<'a>(&self, code: usize) -> &'a [u8] {
        // SAFETY: the caller guarantees that `code` is a live code object; its table is a live `bytes`.
        unsafe {
            let table: usize = load(code, self.layout.code_lines);
            if table == 0 {
                return &[];
            }
            let length = load::<usize>(table, self.layout.bytes_length).min(LONGEST_TABLE);
            core::slice::from_raw_parts((table + usize::from(self.layout.bytes_data)) as *const u8, length)
        }
    }
}
