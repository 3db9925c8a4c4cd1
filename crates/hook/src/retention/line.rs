//! Text of fixed length in the caller's memory: what does not fit is cut. Must never allocate.

use stormlog_model::digits::decimal;

/// Bytes of a name of the program that are written.
const LONGEST_NAME: usize = 60;

/// Text of fixed length.
pub struct Line<'a> {
    bytes: &'a mut [u8],
    length: usize,
}

impl<'a> Line<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Line { bytes, length: 0 }
    }

    pub fn clear(&mut self) {
        self.length = 0;
    }

    pub fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// Takes back what was written after `length` bytes.
    pub fn shorten(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn push(&mut self, more: &[u8]) -> &mut Self {
        let room = self.bytes.len() - self.length;
        let more = &more[..more.len().min(room)];
        self.bytes[self.length..self.length + more.len()].copy_from_slice(more);
        self.length += more.len();
        self
    }

    pub fn number(&mut self, value: u64) -> &mut Self {
        self.push(decimal(value, &mut [0; 20]))
    }

    /// A number as people read it: `600 000`.
    pub fn count(&mut self, value: u64) -> &mut Self {
        let groups = [
            1_000_000_000_000_000_000,
            1_000_000_000_000_000,
            1_000_000_000_000,
            1_000_000_000,
            1_000_000,
            1000,
        ];
        let mut rest = value;
        for unit in groups.into_iter().filter(|unit| value >= *unit) {
            let group = rest / unit;
            if rest == value {
                self.number(group);
            } else {
                self.three(group);
            }
            self.push(b" ");
            rest %= unit;
        }
        if value < 1000 { self.number(rest) } else { self.three(rest) }
    }

    fn three(&mut self, value: u64) -> &mut Self {
        let digit = |unit: u64| b'0' + (value / unit % 10) as u8;
        self.push(&[digit(100), digit(10), digit(1)])
    }

    /// A name of the program: printable ASCII, of bounded length.
    pub fn name(&mut self, name: &[u8]) -> &mut Self {
        for byte in name.iter().take(LONGEST_NAME) {
            let byte = if (0x20..0x7f).contains(byte) && *byte != b'`' { *byte } else { b'?' };
            self.push(&[byte]);
        }
        if name.len() > LONGEST_NAME {
            self.push("…".as_bytes());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_groups_of_three_digits_as_in_every_view() {
        for value in [0, 7, 999, 1000, 1001, 10_000, 600_000, 1_000_000, 1_000_007, u64::MAX] {
            let mut room = [0; 64];
            let mut line = Line::new(&mut room);
            line.count(value);
            assert_eq!(line.text(), stormlog_model::text::grouped(value).as_bytes());
        }
    }
}
