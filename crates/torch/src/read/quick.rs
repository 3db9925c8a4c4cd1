//! The dictionaries a trace is made of, read in one go: `}`, memoise, `(`, keys from the memo, plain values, `u`.
//!
//! A shortcut of [`super::pickle`], never another reading: what is not exactly of this form, or not whole in the window,
//! is left untouched for the machine, and what is accepted leaves everything as the machine would have left it.

use super::build::{Builder, Result};
use super::keys;
use super::pickle::{Machine, short_long};
use super::value::{Memo, SHARED, Slot, Val};

const MEMOIZE: u8 = 0x94;

/// A value and the bytes after it; nothing when the machine has to look.
type Read<'w, T> = Option<(T, &'w [u8])>;

impl Machine {
    /// Reads the dictionary at the start of `window`; says how many bytes it took.
    #[inline]
    pub(super) fn quick_dict(&mut self, window: &[u8], builder: &mut Builder) -> Result<Option<usize>> {
        let [b'}', MEMOIZE, b'(', rest @ ..] = window else { return Ok(None) };
        if !self.shortcuts {
            return Ok(None);
        }
        let (memo, wide) = (self.memo.len(), self.wide.len());
        self.memo.push(Slot::SPENT);
        let value = match self.quick_items(rest, builder) {
            Some(rest) => builder.shape()?.map(|value| (value, rest)),
            None => None,
        };
        let Some((value, rest)) = value else {
            self.memo.truncate(memo);
            self.wide.truncate(wide);
            return Ok(None);
        };
        if let (Some(own), Some(packed)) = (self.memo.get_mut(memo), Slot::pack(value)) {
            *own = packed;
        }
        self.puts += self.memo.len() - memo;
        self.push_value(value);
        Ok(Some(window.len() - rest.len()))
    }

    /// Keys and values up to the `u`, into the builder's slots.
    fn quick_items<'w>(&mut self, mut rest: &'w [u8], builder: &mut Builder) -> Option<&'w [u8]> {
        builder.start_dict();
        loop {
            let (slot, after) = match rest {
                [b'h', slot, after @ ..] => (usize::from(*slot), after),
                [b'j', a, b, c, d, after @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, after),
                [b'u', after @ ..] => return Some(after),
                _ => return None,
            };
            let key = self.memo.get(slot)?.text()?;
            if key == 0 || key >= keys::COUNT as u32 {
                return None;
            }
            rest = self.quick_value(key, after, builder)?;
        }
    }

    /// Each kind of value goes straight to its place: carried about, it would cost more than reading it.
    #[inline]
    fn quick_value<'w>(&mut self, key: u32, rest: &'w [u8], builder: &mut Builder) -> Option<&'w [u8]> {
        match rest {
            [b'h', slot, after @ ..] => self.quick_get(key, usize::from(*slot), builder).map(|()| after),
            [b'j', a, b, c, d, after @ ..] => {
                let slot = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
                self.quick_get(key, slot, builder).map(|()| after)
            }
            [0x8a, length @ 1..=8, after @ ..] => {
                let (digits, after) = after.split_at_checked(usize::from(*length))?;
                builder.put(key, Val::Int(short_long(digits)));
                Some(after)
            }
            [b']', MEMOIZE, b'(', after @ ..] => {
                let (stack, after) = self.quick_stack(after, builder)?;
                builder.put(key, Val::Stack { id: stack, slot: SHARED });
                Some(after)
            }
            [b']', MEMOIZE, after @ ..] => {
                self.memo.push(Slot::EMPTY_LIST);
                builder.put(key, Val::FreshList(SHARED));
                Some(after)
            }
            [0x8c, length, after @ ..] => {
                let (text, after) = after.split_at_checked(usize::from(*length))?;
                let [MEMOIZE, after @ ..] = after else { return None };
                let value = builder.string(text).ok()?;
                self.memo.push(Slot::pack(value)?);
                builder.put(key, value);
                Some(after)
            }
            [b'N', after @ ..] => {
                builder.put(key, Val::None);
                Some(after)
            }
            [flag @ (0x88 | 0x89), after @ ..] => {
                builder.put(key, Val::Bool(*flag == 0x88));
                Some(after)
            }
            _ => {
                let (first, after) = small_number(rest)?;
                if !matches!(after, [b'K' | b'M' | b'J', ..]) {
                    builder.put(key, Val::Int(first));
                    return Some(after);
                }
                // A pair, such as a pool's id.
                let (second, after) = small_number(after)?;
                let [0x86, MEMOIZE, after @ ..] = after else { return None };
                let pair = Val::Pair(u32::try_from(first).ok()?, u32::try_from(second).ok()?);
                self.wide.push(pair);
                self.memo.push(Slot::elsewhere(self.wide.len() as u32 - 1));
                builder.put(key, pair);
                Some(after)
            }
        }
    }

    /// What a slot holds, if reading it changes nothing.
    #[inline]
    fn quick_get(&self, key: u32, slot: usize, builder: &mut Builder) -> Option<()> {
        let slot = self.memo.get(slot)?;
        if let Some(id) = slot.text() {
            builder.put(key, Val::Str(id));
            return Some(());
        }
        match slot.unpack() {
            Memo::Value(value) => builder.put(key, value),
            Memo::Elsewhere(index) => builder.put(key, self.wide.get(index as usize).copied()?),
            Memo::Open(_) | Memo::Spent | Memo::Unset => return None,
        }
        Some(())
    }

    /// A list of frames that are all in the memo already.
    fn quick_stack<'w>(&mut self, mut rest: &'w [u8], builder: &mut Builder) -> Read<'w, u32> {
        builder.frames.clear();
        loop {
            let (slot, after) = match rest {
                [b'j', a, b, c, d, after @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, after),
                [b'h', slot, after @ ..] => (usize::from(*slot), after),
                [b'e', after @ ..] if !builder.frames.is_empty() => {
                    let id = builder.stack_here().ok()?;
                    self.memo.push(Slot::pack(Val::Stack { id, slot: SHARED })?);
                    return Some((id, after));
                }
                _ => return None,
            };
            builder.frames.push(self.memo.get(slot)?.frame()?);
            rest = after;
        }
    }
}

#[inline]
fn small_number(rest: &[u8]) -> Read<'_, i64> {
    match rest {
        [b'K', value, after @ ..] => Some((i64::from(*value), after)),
        [b'M', a, b, after @ ..] => Some((i64::from(u16::from_le_bytes([*a, *b])), after)),
        [b'J', a, b, c, d, after @ ..] => Some((i64::from(i32::from_le_bytes([*a, *b, *c, *d])), after)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::input::Input;
    use super::super::pickle;
    use super::*;

    fn seed(name: &str) -> Vec<u8> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Everything that was read, or the complaint, as text.
    fn reading(bytes: &[u8], shortcuts: bool) -> String {
        let mut builder = Builder::new();
        let mut input = Input::new(bytes);
        let root = pickle::run(&mut input, &mut builder, shortcuts);
        format!("{:?}", root.and_then(|root| builder.finish(root, input.position())))
    }

    fn same(bytes: &[u8]) {
        let (quick, slow) = (reading(bytes, true), reading(bytes, false));
        assert!(quick == slow, "{}\n{}", &quick[..quick.len().min(300)], &slow[..slow.len().min(300)]);
    }

    #[test]
    fn recordings_read_the_same_with_and_without_shortcuts() {
        for name in ["graph-s11-expandable", "kvcache-s11-oomretry", "streams-s11-default", "gpt-oom"] {
            let bytes = seed(&format!("{name}.pickle.gz"));
            assert!(reading(&bytes, true).starts_with("Ok(Snapshot"));
            same(&bytes);
        }
    }

    #[test]
    fn values_of_newer_files_take_the_shortcut_too() {
        // {"action": "alloc", "size": 5, "pool_id": (1, 2), "frames": []} twice, the keys in the memo.
        let mut bytes = b"\x80\x04]\x94(".to_vec();
        for key in ["action", "size", "pool_id", "frames", "alloc"] {
            bytes.extend([0x8c, key.len() as u8]);
            bytes.extend(key.bytes());
            bytes.push(MEMOIZE);
        }
        bytes.extend(b"00000}\x94(h\x01h\x05h\x02K\x05h\x03K\x01M\x02\x00\x86\x94h\x04]\x94u");
        let one = bytes.clone();
        bytes.extend(b"}\x94(h\x01h\x05h\x02\x8a\x01\xffh\x03h\x07h\x04h\x08ue.");
        let one = [&one[..], b"e."].concat();
        assert!(reading(&one, true).contains("a list of segments"), "{}", reading(&one, true));
        same(&bytes);
        same(&one);
    }

    proptest! {
        #[test]
        fn damaged_recordings_are_judged_the_same(
            changes in prop::collection::vec((0usize..20_000, any::<u8>()), 1..6), cut in 0usize..20_000,
        ) {
            let mut bytes = seed("graph-s11-default.pickle.gz");
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(bytes.len().min(2000 + cut));
            same(&bytes);
        }
    }
}
