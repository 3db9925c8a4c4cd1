//! Python's `repr` of plain data, read back as JSON.
//!
//! 0.4.3 writes the metadata column of a CSV with `str(dict)`. Understood: dicts, lists, tuples, strings, numbers,
//! `True`, `False`, `None`. Anything else (sets, bytes, objects, nan) has no JSON form and is an error.

use serde_json::{Map, Number, Value};

/// Nothing a person writes nests deeper, and a hostile file must not overflow the stack.
const MAX_DEPTH: usize = 128;

/// What could not be read, and where in the text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LiteralError {
    pub(crate) at: usize,
    pub(crate) expected: &'static str,
}

/// The value `text` spells.
pub(crate) fn parse(text: &str) -> Result<Value, LiteralError> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.space();
    if parser.at < text.len() {
        return Err(parser.expected("nothing more"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, LiteralError> {
        if depth > MAX_DEPTH {
            return Err(self.expected("at most 128 levels"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.dict(depth),
            Some(b'[') => self.items(b']', depth),
            Some(b'(') => self.items(b')', depth),
            Some(b'\'' | b'"') => self.string().map(Value::String),
            Some(b'0'..=b'9' | b'-' | b'.') => self.number(),
            _ => self.word(),
        }
    }

    fn dict(&mut self, depth: usize) -> Result<Value, LiteralError> {
        self.at += 1;
        let mut map = Map::new();
        loop {
            self.space();
            if self.take(b'}') {
                return Ok(Value::Object(map));
            }
            let key = match self.value(depth + 1)? {
                Value::String(key) => key,
                // JSON keys are strings; Python's own json module writes other keys the same way.
                Value::Null => "null".into(),
                scalar @ (Value::Bool(_) | Value::Number(_)) => scalar.to_string(),
                _ => return Err(self.expected("a string key")),
            };
            self.space();
            if !self.take(b':') {
                return Err(self.expected("':'"));
            }
            let value = self.value(depth + 1)?;
            map.insert(key, value);
            self.space();
            if !self.take(b',') && self.peek() != Some(b'}') {
                return Err(self.expected("',' or '}'"));
            }
        }
    }

    fn items(&mut self, close: u8, depth: usize) -> Result<Value, LiteralError> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.space();
            if self.take(close) {
                return Ok(Value::Array(items));
            }
            items.push(self.value(depth + 1)?);
            self.space();
            if !self.take(b',') && self.peek() != Some(close) {
                return Err(self.expected("',' or the end of the list"));
            }
        }
    }

    fn string(&mut self) -> Result<String, LiteralError> {
        let quote = self.peek();
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(character) = self.text[self.at..].chars().next() else {
                return Err(self.expected("a closing quote"));
            };
            self.at += character.len_utf8();
            match character {
                '\\' => out.push(self.escape()?),
                _ if Some(character as u32) == quote.map(u32::from) => return Ok(out),
                _ => out.push(character),
            }
        }
    }

    fn escape(&mut self) -> Result<char, LiteralError> {
        let Some(kind) = self.peek() else { return Err(self.expected("an escape")) };
        self.at += 1;
        let digits = match kind {
            b'n' => return Ok('\n'),
            b't' => return Ok('\t'),
            b'r' => return Ok('\r'),
            b'\\' | b'\'' | b'"' => return Ok(kind as char),
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            _ => return Err(self.expected("an escape")),
        };
        let hex = self.text.get(self.at..self.at + digits);
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
        self.at += digits;
        code.ok_or(LiteralError { at: self.at.saturating_sub(digits), expected: "a character code" })
    }

    fn number(&mut self) -> Result<Value, LiteralError> {
        let start = self.at;
        let rest = &self.text[start..];
        let length = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
            .count();
        self.at += length;
        let text = &rest[..length];
        let wrong = LiteralError { at: start, expected: "a number" };
        if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            let integer =
                text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
            return integer.map(Value::Number).map_err(|_| wrong);
        }
        let float = text.parse::<f64>().ok().and_then(Number::from_f64);
        float.map(Value::Number).ok_or(wrong)
    }

    fn word(&mut self) -> Result<Value, LiteralError> {
        for (word, value) in [("None", Value::Null), ("True", true.into()), ("False", false.into())] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected("a value"))
    }

    fn space(&mut self) {
        let blank = self.text[self.at..].bytes().take_while(u8::is_ascii_whitespace).count();
        self.at += blank;
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expected(&self, expected: &'static str) -> LiteralError {
        LiteralError { at: self.at, expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn reads_what_python_prints() {
        let text = r#"{'a': None, "it's": [1, -2.5, 1e-07, (True, False)], 'n\n\x07\u00e9': {}, 'big': 18446744073709551615, 1: 'x'}"#;
        let expected = json!({"a": null, "it's": [1, -2.5, 1e-7, [true, false]], "n\n\u{7}é": {},
            "big": 18446744073709551615u64, "1": "x"});
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "{1, 2}",
            "nan",
            "b'x'",
            "<object>",
            "{'a': }",
            "'open",
            "[1",
            "{'a': 1} 2",
            "",
            "'\\q'",
            "99999999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,60}") {
            let _ = parse(&text);
        }
    }
}
