//! JSON text exactly as Python's `json.dumps` spells it, so that our files and 0.4.3's are the same bytes.
//!
//! ASCII only (`\uXXXX` for the rest), `", "` and `": "` between parts, floats by `repr`.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use stormlog_model::float_repr;

/// `json.dumps(value)`.
pub fn dumps(value: &impl Serialize) -> String {
    let mut out = Vec::new();
    // Writing JSON values to memory cannot fail.
    let _ = write_with(&mut out, value, PythonFormatter::compact());
    String::from_utf8(out).unwrap_or_default()
}

/// `json.dump(value, out)`.
pub fn write_compact(out: impl Write, value: &impl Serialize) -> io::Result<()> {
    write_with(out, value, PythonFormatter::compact())
}

/// `json.dump(value, out, indent=2)`, as if `depth` levels deep already.
pub fn write_indented(out: impl Write, value: &impl Serialize, depth: usize) -> io::Result<()> {
    write_with(out, value, PythonFormatter { indent: Some(depth), has_value: false })
}

/// The value with the keys of every object sorted: what `sort_keys=True` writes.
pub fn sort_keys(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            map.sort_keys();
            map.values_mut().for_each(sort_keys);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(sort_keys),
        _ => {}
    }
}

fn write_with(out: impl Write, value: &impl Serialize, formatter: PythonFormatter) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(out, formatter)).map_err(io::Error::from)
}

struct PythonFormatter {
    /// `None` writes on one line; else the current depth.
    indent: Option<usize>,
    has_value: bool,
}

impl PythonFormatter {
    fn compact() -> Self {
        PythonFormatter { indent: None, has_value: false }
    }

    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.has_value = false;
        if let Some(depth) = &mut self.indent {
            *depth += 1;
        }
        out.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        if let Some(depth) = &mut self.indent {
            *depth -= 1;
            if self.has_value {
                self.line(out)?;
            }
        }
        self.has_value = true;
        out.write_all(bracket)
    }

    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        out.write_all(b"\n")?;
        (0..self.indent.unwrap_or(0)).try_for_each(|_| out.write_all(b"  "))
    }

    fn between<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        match (self.indent, first) {
            (None, true) => Ok(()),
            (None, false) => out.write_all(b", "),
            (Some(_), true) => self.line(out),
            (Some(_), false) => {
                out.write_all(b",")?;
                self.line(out)
            }
        }
    }
}

impl Formatter for PythonFormatter {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(float_repr(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        if text.is_ascii() {
            return out.write_all(text.as_bytes());
        }
        let mut units = [0u16; 2];
        for character in text.chars() {
            if character.is_ascii() {
                out.write_all(&[character as u8])?;
            } else {
                for unit in character.encode_utf16(&mut units) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.between(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _out: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.between(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _out: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn is_what_python_writes() {
        let value = json!({"b": [1, 2.5, 1e22], "a": {"x": null, "é\u{1F600}": "tab\t\u{1}\u{7f}"}, "e": {}, "l": []});
        assert_eq!(
            dumps(&value),
            r#"{"b": [1, 2.5, 1e+22], "a": {"x": null, "\u00e9\ud83d\ude00": "tab\t\u0001"#.to_owned()
                + "\u{7f}"
                + r#""}, "e": {}, "l": []}"#
        );
        let mut sorted = value.clone();
        sort_keys(&mut sorted);
        assert!(dumps(&sorted).starts_with(r#"{"a": {"x""#));
    }

    #[test]
    fn indents_like_python() {
        let mut out = Vec::new();
        write_indented(&mut out, &json!({"a": [1, {}], "b": []}), 0).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
    }
}
