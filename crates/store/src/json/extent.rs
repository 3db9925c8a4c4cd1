//! Where a JSON value ends, found without parsing it.
//!
//! Only strings and nesting are looked at; whether the value is well-formed is for the parser that gets the slice.
//! Resumable, so that a value spread over several windows is scanned once.

/// The state of a scan over one value.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    depth: u32,
    in_string: bool,
    position: usize,
    started: bool,
}

impl Extent {
    /// Scans on over `bytes`, which start where the value starts and may have grown since the last call.
    /// The length of the value once its end is seen. Scalars end at the first delimiter after them, or at the end
    /// of the input, which the caller knows.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        while self.position < bytes.len() {
            let rest = &bytes[self.position..];
            if self.in_string {
                let found = memchr::memchr2(b'"', b'\\', rest);
                let Some(at) = found else {
                    self.position = bytes.len();
                    return None;
                };
                if rest[at] == b'\\' {
                    if at + 1 >= rest.len() {
                        // The escaped byte is not here yet: look at the backslash again then.
                        self.position += at;
                        return None;
                    }
                    self.position += at + 2;
                    continue;
                }
                self.in_string = false;
                self.position += at + 1;
                if self.depth == 0 {
                    return Some(self.position);
                }
                continue;
            }
            if self.depth == 0 && self.started {
                // A scalar: up to the next delimiter.
                let end = rest
                    .iter()
                    .position(|byte| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t'));
                match end {
                    Some(at) => return Some(self.position + at),
                    None => {
                        self.position = bytes.len();
                        return None;
                    }
                }
            }
            let at = if self.depth == 0 { Some(0) } else { next_structural(rest) };
            let Some(at) = at else {
                self.position = bytes.len();
                return None;
            };
            self.position += at + 1;
            self.started = true;
            match rest[at] {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(self.position);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Forgets the first `count` bytes of the value: the caller has dropped them.
    pub(crate) fn discard(&mut self, count: usize) {
        self.position = self.position.saturating_sub(count);
    }

    /// Whether the scan stopped inside a string.
    pub(crate) fn in_string(&self) -> bool {
        self.in_string
    }

    /// How far the scan has come.
    pub(crate) fn position(&self) -> usize {
        self.position
    }
}

/// The next byte that opens or closes something. Telemetry has a quote every dozen bytes, so a table beats a search.
fn next_structural(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(text: &str) -> Option<usize> {
        Extent::default().advance(text.as_bytes())
    }

    #[test]
    fn finds_the_end() {
        assert_eq!(extent(r#"{"a": "}\"]", "b": [{}]} , next"#), Some(24));
        assert_eq!(extent(r#""text\\" tail"#), Some(8));
        assert_eq!(extent("12.5, 3"), Some(4));
        assert_eq!(extent("[[[]]]x"), Some(6));
        assert_eq!(extent(r#"{"open": ["#), None);
        assert_eq!(extent(r#"{"open": "\"#), None);
        assert_eq!(extent("123"), None);
    }

    #[test]
    fn resumes_where_it_stopped() {
        let text = br#"{"k\\\"": "}", "deep": [1, {"x": "\u007d"}]}..."#;
        let whole = Extent::default().advance(text);
        let mut scan = Extent::default();
        let mut found = None;
        for end in 0..=text.len() {
            found = scan.advance(&text[..end]);
            if found.is_some() {
                break;
            }
        }
        assert_eq!(found, whole);
        assert_eq!(whole, Some(text.len() - 3));
    }
}
