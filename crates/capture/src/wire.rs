//! Numbers in as few bytes as they need, for blocks and checkpoints. Must never panic or reserve memory on a foreign length.

/// Appends numbers to bytes.
pub trait Put {
    /// Seven bits a byte, low ones first.
    fn put(&mut self, value: u64);
    /// A length and the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    #[inline]
    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Takes numbers off bytes; after the end, or past a number that is too long, everything is `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Take(bytes)
    }

    /// What [`Put::put`] wrote.
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        let (value, length) = number(self.0)?;
        self.0 = &self.0[length..];
        Some(value)
    }

    /// The same, for a number that must fit.
    #[inline]
    pub fn small(&mut self) -> Option<u32> {
        self.number().and_then(|value| u32::try_from(value).ok())
    }

    /// One byte.
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// What [`Put::put_bytes`] wrote.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// How many entries to reserve room for when `count` are announced: never more than the bytes that are left could hold.
    #[must_use]
    pub fn plausible(&self, count: u64) -> usize {
        usize::try_from(count).unwrap_or(usize::MAX).min(self.0.len())
    }

    /// Nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The number at the front and its length.
#[inline(always)]
pub(crate) fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    match bytes {
        [first, ..] if *first < 0x80 => Some((u64::from(*first), 1)),
        [first, second, ..] if *second < 0x80 => {
            Some((u64::from(*first & 0x7f) | u64::from(*second) << 7, 2))
        }
        _ => long_number(bytes),
    }
}

fn long_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let mut bytes = Vec::new();
        let values = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        for value in values {
            bytes.put(value);
        }
        bytes.put_bytes(b"abc");
        let mut take = Take::new(&bytes);
        for value in values {
            assert_eq!(take.number(), Some(value));
        }
        assert_eq!(take.bytes(), Some(&b"abc"[..]));
        assert_eq!(take.number(), None);
        assert_eq!(Take::new(&[0xff; 11]).number(), None);
        assert_eq!(Take::new(&[9, 1]).bytes(), None);
    }
}
