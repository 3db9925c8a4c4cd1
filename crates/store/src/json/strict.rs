//! Parsing one JSON value with nothing forgiven: a key written twice is an error, not a silent loss.
//!
//! Numbers, nesting (128 deep) and UTF-8 are checked by serde_json.

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
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let parsed = Strict.deserialize(&mut deserializer).and_then(|value| {
        deserializer.end()?;
        Ok(value)
    });
    parsed.map_err(|error| {
        // serde_json repeats the position in its text; the reader prints a better one.
        let text = error.to_string();
        let message = text.split(" at line ").next().unwrap_or(&text).to_owned();
        SyntaxError {
            line_offset: (error.line() as u64).saturating_sub(1),
            column: error.column() as u64,
            message,
        }
    })
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
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
        while let Some(item) = items.next_element_seed(Strict)? {
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
            let value = entries.next_value_seed(Strict)?;
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
            (r#"{"a": NaN}"#, "expected value"),
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
        let value = parse(br#"{"b": 18446744073709551615, "a": -9223372036854775808, "c": 0.1}"#).unwrap();
        assert_eq!(value.to_string(), r#"{"b":18446744073709551615,"a":-9223372036854775808,"c":0.1}"#);
    }
}
