//! What to record and where, as one line of text: `path=/run/heap-%p.bin;native=1;pyalloc=1;sample=524288;max=5000000;gpu=1;host=1`.
//! Must never allocate: it is read before the program's first allocation.

use stormlog_capture::layout::{LIVE_SUFFIX, MAX_SLOTS, SLOT_SIZE, flags};

/// Longest path, with everything put in for its `%`.
pub const MAX_PATH: usize = 4096;

/// Slots of a live file with the smallest bound: more than the compactor takes at once (2.5 MiB).
const FEWEST_SLOTS: u64 = 40;

/// The options of a recording.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Path of the capture with `%p` (process) and `%n` (number of the recording in it) still in it.
    path: [u8; MAX_PATH],
    path_length: usize,
    /// Native stacks.
    pub native: bool,
    /// CPython's own allocators.
    pub python_allocators: bool,
    /// Mean bytes between samples; 0 records everything.
    pub sample: u64,
    /// Bytes of the capture at most; 0 for no bound.
    pub max: u64,
    /// What a framework reports of the memory of devices.
    pub gpu: bool,
    /// The memory of the host.
    pub host: bool,
}

impl Options {
    /// No options; a place to parse into.
    pub const EMPTY: Self = Self {
        path: [0; MAX_PATH],
        path_length: 0,
        native: false,
        python_allocators: false,
        sample: 0,
        max: 0,
        gpu: true,
        host: true,
    };

    /// Reads the text into `self`; false when there is no usable path or an option has no meaning.
    #[must_use]
    pub fn parse(&mut self, text: &[u8]) -> bool {
        *self = Self::EMPTY;
        for option in text.split(|byte| *byte == b';').filter(|option| !option.is_empty()) {
            let Some(equals) = option.iter().position(|byte| *byte == b'=') else { return false };
            let (name, value) = (&option[..equals], &option[equals + 1..]);
            match name {
                b"path" if !value.is_empty() && value.len() < MAX_PATH / 2 && !value.contains(&0) => {
                    self.path[..value.len()].copy_from_slice(value);
                    self.path_length = value.len();
                }
                b"native" => self.native = value == b"1",
                b"pyalloc" => self.python_allocators = value == b"1",
                b"gpu" => self.gpu = value == b"1",
                b"host" => self.host = value == b"1",
                b"sample" => match number(value) {
                    Some(sample) => self.sample = sample,
                    None => return false,
                },
                b"max" => match number(value) {
                    Some(max) => self.max = max,
                    None => return false,
                },
                _ => return false,
            }
        }
        self.path_length > 0
    }

    /// The bits of the header that these options stand for.
    #[must_use]
    pub const fn flags(&self) -> u32 {
        (if self.native { flags::NATIVE } else { 0 })
            | (if self.python_allocators { flags::PYTHON_ALLOCATORS } else { 0 })
            | (if self.host { 0 } else { flags::NO_HOST })
    }

    /// Slots of a bounded live file; 0 for no bound. Three eighths of the capture: as much is for what the compactor makes of them, and the rest
    /// for what it rewrites while the old one is still there.
    #[must_use]
    pub fn slot_limit(&self) -> u32 {
        match self.max {
            0 => 0,
            max => (max / 8 * 3 / SLOT_SIZE as u64).clamp(FEWEST_SLOTS, MAX_SLOTS as u64) as u32,
        }
    }

    /// Writes the path of the live file, zero-terminated; `attempt` above 0 adds a suffix, so that no capture is ever overwritten.
    /// False when it is too long.
    #[must_use]
    pub fn live_path(&self, process: u32, number: u32, attempt: u32, target: &mut Text) -> bool {
        target.clear();
        let pattern = &self.path[..self.path_length];
        let mut rest = pattern;
        while let [first, tail @ ..] = rest {
            rest = tail;
            match (first, tail.first()) {
                (b'%', Some(b'p')) => target.number(u64::from(process)),
                (b'%', Some(b'n')) => target.number(u64::from(number)),
                (b'%', Some(b'%')) => target.push(b"%"),
                _ => {
                    target.push(&[*first]);
                    continue;
                }
            }
            rest = &tail[1..];
        }
        if attempt > 0 {
            target.push(b".");
            target.number(u64::from(attempt));
        }
        target.push(LIVE_SUFFIX.as_bytes());
        target.push(&[0]);
        !target.overflowed
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// Text on the stack, cut and marked when it does not fit.
#[derive(Debug)]
pub struct Text {
    bytes: [u8; MAX_PATH],
    length: usize,
    overflowed: bool,
}

impl Default for Text {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Text {
    /// Nothing yet.
    pub const EMPTY: Self = Self { bytes: [0; MAX_PATH], length: 0, overflowed: false };

    /// What was written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Starts again.
    pub fn clear(&mut self) {
        self.length = 0;
        self.overflowed = false;
    }

    /// Adds bytes.
    pub fn push(&mut self, more: &[u8]) {
        match self.bytes.get_mut(self.length..self.length + more.len()) {
            Some(space) => {
                space.copy_from_slice(more);
                self.length += more.len();
            }
            None => self.overflowed = true,
        }
    }

    /// Adds a number in decimal.
    pub fn number(&mut self, value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut left = value;
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.push(&digits[at..]);
    }

    /// Adds a JSON string of bytes that are probably UTF-8; others become `?`.
    pub fn json_string(&mut self, text: &[u8]) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let valid = core::str::from_utf8(text).is_ok();
        self.push(b"\"");
        for byte in text {
            match byte {
                b'"' | b'\\' => self.push(&[b'\\', *byte]),
                0..0x20 => self.push(&[
                    b'\\',
                    b'u',
                    b'0',
                    b'0',
                    HEX[usize::from(byte >> 4)],
                    HEX[usize::from(byte & 15)],
                ]),
                0x80.. if !valid => self.push(b"?"),
                _ => self.push(&[*byte]),
            }
        }
        self.push(b"\"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_line_of_options() {
        let mut options = Options::EMPTY;
        assert!(options.parse(b"path=/run/a;native=1;pyalloc=1;sample=524288;max=1073741824"));
        assert_eq!(options.slot_limit(), 6144);
        assert!(options.native && options.python_allocators);
        assert_eq!(options.sample, 524_288);
        assert!(options.gpu && options.host, "both are recorded unless that is declined");
        assert!(options.parse(b"path=/run/a;gpu=0;host=0"));
        assert!(!options.gpu && !options.host);
        assert_eq!(options.flags(), flags::NO_HOST);
        assert!(options.parse(b"path=/run/a;native=1;pyalloc=1"));
        assert_eq!(options.flags(), flags::NATIVE | flags::PYTHON_ALLOCATORS);
    }

    #[test]
    fn invalid_options_are_rejected() {
        let long = [b"path=".as_slice(), &[b'x'; MAX_PATH]].concat();
        for wrong in [
            b"".as_slice(),
            b"path=",
            b"native=1",
            b"path=/a;colour=red",
            b"path=/a;sample=much",
            b"path=/a;max=-1",
            b"path",
            &long,
        ] {
            assert!(!Options::EMPTY.clone().parse(wrong), "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn the_path_names_process_recording_and_attempt() {
        let mut options = Options::EMPTY;
        assert!(options.parse(b"path=/run/100%%-%p-%n-%x.bin"));
        let mut text = Text::default();
        assert!(options.live_path(4711, 2, 0, &mut text));
        assert_eq!(text.bytes(), b"/run/100%-4711-2-%x.bin.live\0");
        assert!(options.live_path(4711, 2, 3, &mut text));
        assert_eq!(text.bytes(), b"/run/100%-4711-2-%x.bin.3.live\0");
    }

    #[test]
    fn strings_are_quoted_for_json() {
        let mut text = Text::default();
        text.json_string(b"a\"b\\c\nd");
        text.json_string(b"\xff!");
        assert_eq!(text.bytes(), b"\"a\\\"b\\\\c\\u000ad\"\"?!\"");
    }
}
