//! Parsing one JSON value with nothing forgiven: a key written twice is an error, not a silent loss.
//!
//! Nesting (128 deep) and UTF-8 are checked by serde_json; that an integer keeps all its digits is checked here.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// What is wrong with the text, and where, counted from the start of the value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// Lines after the first one.
    pub(crate) line_offset: u64,
    pub(crate) column: u64,
    pub(crate) message: String,
}

/// The value in `text`, which must hold nothing else.
pub(crate) fn parse(text: &[u8]) -> Result<Value, SyntaxError> {
    let wide = Cell::new(false);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let parsed = Strict { wide: &wide }.deserialize(&mut deserializer).and_then(|value| {
        deserializer.end()?;
        Ok(value)
    });
    let value = parsed.map_err(|error| syntax_error(text, &error))?;
    match wide.get().then(|| wide_integer(text)).flatten() {
        Some(digits) => Err(SyntaxError {
            line_offset: 0,
            column: 1,
            message: format!("the integer {digits} does not fit 64 bits"),
        }),
        None => Ok(value),
    }
}

fn syntax_error(text: &[u8], error: &serde_json::Error) -> SyntaxError {
    let lines_before = error.line().saturating_sub(1);
    let line = text.split(|byte| *byte == b'\n').nth(lines_before).unwrap_or_default();
    let found = line.get(error.column().saturating_sub(1)..).unwrap_or_default();
    let spelt = error.to_string();
    let message =
        if [&b"NaN"[..], b"Infinity", b"-Infinity", b"Infinity"].iter().any(|word| found.starts_with(word)) {
            "NaN and Infinity are not JSON numbers; write null for an unknown value".to_owned()
        } else {
            // serde_json repeats the position in its text; the reader prints a better one.
            spelt.split(" at line ").next().unwrap_or(&spelt).to_owned()
        };
    SyntaxError { line_offset: lines_before as u64, column: error.column() as u64, message }
}

/// The first integer outside strings that 64 bits cannot hold; serde_json would round it to a float.
fn wide_integer(text: &[u8]) -> Option<String> {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'"' => {
                at += 1;
                while at < text.len() && text[at] != b'"' {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let rest = &text[at..];
                let is_part =
                    |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
                let number = &rest[..rest.iter().take_while(|byte| is_part(byte)).count()];
                at += number.len();
                let number = std::str::from_utf8(number).unwrap_or_default();
                let is_integer = !number.contains(['.', 'e', 'E']);
                if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number.to_owned());
                }
            }
            _ => at += 1,
        }
    }
    None
}

/// `wide` is set when a number is beyond 64 bits, be it a float or an integer about to be rounded.
#[derive(Clone, Copy)]
struct Strict<'a> {
    wide: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        if value.abs() >= i64::MAX as f64 {
            self.wide.set(true);
        }
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} is given twice")));
            }
            let value = entries.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_python_would_let_pass() {
        for (text, message) in [
            (r#"{"a": 1, "a": 2}"#, "the key \"a\" is given twice"),
            (r#"{"a": NaN}"#, "NaN and Infinity are not JSON numbers; write null for an unknown value"),
            (r#"{"a": -Infinity}"#, "NaN and Infinity are not JSON numbers; write null for an unknown value"),
            (r#"{"a": [18446744073709551616]}"#, "the integer 18446744073709551616 does not fit 64 bits"),
            (r#"{"a": -9223372036854775809}"#, "the integer -9223372036854775809 does not fit 64 bits"),
            (r#"{"a": 1} x"#, "trailing characters"),
            (r#"{"a": "#, "EOF while parsing a value"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().message, message, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(parse(deep.as_bytes()).unwrap_err().message, "recursion limit exceeded");
        assert!(parse(b"{\"a\": \"\xff\"}").is_err());
    }

    #[test]
    fn keeps_order_and_exact_numbers() {
        assert_eq!(parse(br#"{"s": "18446744073709551616\"", "f": 1e300}"#).unwrap()["f"], 1e300);
        let value = parse(br#"{"b": 18446744073709551615, "a": -9223372036854775808, "c": 0.1}"#).unwrap();
        assert_eq!(value.to_string(), r#"{"b":18446744073709551615,"a":-9223372036854775808,"c":0.1}"#);
    }
}
