//! Fingerprints of issues: a hash of what an issue is about, with everything that varies from run to run taken out.
//!
//! The texts, the order and the hash are 0.4.3's, so that the same trouble has the same id in every recording and whatever computed it. A
//! change of any rule here gives every known issue another id; there is no second implementation.

use std::fmt::Write;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::python_text::{float_repr, is_space, strip, value_repr};
use crate::{Problem, Record};

/// The version of the rules, part of what is hashed.
pub const FINGERPRINT_SCHEMA_VERSION: u64 = 1;
/// What an issue can be about.
pub const ISSUE_KINDS: [&str; 4] = ["oom", "collector_degradation", "alert", "hidden_memory_anomaly"];
/// What can have become of an issue.
pub const ISSUE_STATES: [&str; 4] = ["open", "resolved", "ignored", "regressed"];

const LONGEST_STEM: usize = 120;

/// What an issue is about, normalized.
#[derive(Debug, Clone, PartialEq)]
pub struct Fingerprint {
    /// The version of the rules.
    pub schema_version: u64,
    /// One of [`ISSUE_KINDS`].
    pub kind: String,
    /// Names and normalized values, sorted by name.
    pub dimensions: Record,
}

impl Fingerprint {
    /// The fingerprint of an issue about `dimensions`.
    pub fn new(kind: &str, dimensions: &Record) -> Result<Self, Problem> {
        let dimensions = normalize_dimensions(dimensions)?;
        Ok(Fingerprint { schema_version: FINGERPRINT_SCHEMA_VERSION, kind: kind.to_owned(), dimensions })
    }

    /// The id: `issue:` and 24 hexadecimal digits.
    pub fn id(&self) -> String {
        let mut text = String::from("{\"dimensions\":");
        write_compact(&mut text, &Value::Object(self.dimensions.clone()));
        text.push_str(",\"kind\":");
        write_text(&mut text, &self.kind);
        let _ = write!(text, ",\"schema_version\":{}}}", self.schema_version);
        let digest = Sha256::digest(text.as_bytes());
        let mut id = String::from("issue:");
        for byte in digest.iter().take(12) {
            let _ = write!(id, "{byte:02x}");
        }
        id
    }

    /// The object form.
    pub fn to_record(&self) -> Record {
        let fields = [
            ("schema_version", self.schema_version.into()),
            ("kind", self.kind.as_str().into()),
            ("dimensions", Value::Object(self.dimensions.clone())),
            ("fingerprint_id", self.id().into()),
        ];
        fields.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    }
}

/// The state a word stands for.
pub fn issue_state(word: &str) -> Result<&'static str, Problem> {
    let wanted = strip(word).to_lowercase();
    let known = ISSUE_STATES.into_iter().find(|state| *state == wanted);
    known.ok_or_else(|| Problem::at("state", format!("unsupported issue state: {word}")))
}

/// Dimensions with what varies taken out, in the order of their names.
pub fn normalize_dimensions(dimensions: &Record) -> Result<Record, Problem> {
    if dimensions.keys().any(|key| strip(key).is_empty()) {
        let message = "fingerprint dimension keys must be non-empty strings".to_owned();
        return Err(Problem::at("dimensions", message));
    }
    let mut names: Vec<&String> = dimensions.keys().collect();
    names.sort_unstable();
    names.into_iter().map(|name| Ok((name.clone(), normalized(&dimensions[name])?))).collect()
}

fn normalized(value: &Value) -> Result<Value, Problem> {
    Ok(match value {
        Value::Null | Value::Bool(_) => value.clone(),
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().map(|float| format!("{float:.6}").parse().unwrap_or(float));
            rounded.map_or_else(|| value.clone(), Value::from)
        }
        Value::Number(_) => value.clone(),
        Value::String(text) => dimension_of_text(text, "unknown").into(),
        Value::Array(items) => {
            let mut items = items.iter().map(normalized).collect::<Result<Vec<Value>, Problem>>()?;
            items.sort_by_cached_key(|item| {
                let mut text = String::new();
                write_compact(&mut text, item);
                text
            });
            Value::Array(items)
        }
        Value::Object(inner) => Value::Object(normalize_dimensions(inner)?),
    })
}

/// A value of an event as a dimension: its text with what varies taken out, `default` where there is none.
pub fn text_dimension(value: &Value, default: &str) -> String {
    match value {
        Value::Null => default.to_owned(),
        Value::String(text) => dimension_of_text(text, default),
        other => dimension_of_text(&value_repr(other), default),
    }
}

/// A text with what varies taken out; `default` where there is nothing in it.
pub fn dimension_of_text(text: &str, default: &str) -> String {
    let normalized = normalize_text(text);
    if normalized.is_empty() { default.to_owned() } else { normalized }
}

/// The beginning of an error's text, up to its first colon or line end.
pub fn error_stem(error: &Value) -> String {
    let text = text_dimension(error, "unknown");
    let stem = strip(text.split([':', '\n']).next().unwrap_or_default());
    let short: String = stem.chars().take(LONGEST_STEM).collect();
    if short.is_empty() { "unknown".to_owned() } else { short }
}

/// What an alert is about, by its sentence.
pub fn alert_category(context: &Value) -> String {
    let text = text_dimension(context, "unknown");
    if text.contains("fragmentation") {
        "high_fragmentation".to_owned()
    } else if text.contains("oom") || text.contains("out of memory") {
        "oom_alert".to_owned()
    } else if text == "unknown" {
        "generic_alert".to_owned()
    } else {
        text
    }
}

/// Lower case, hexadecimal numbers as `<hex>`, other numbers as `<num>`, white space as one blank. Empty when there is nothing in the text.
pub fn normalize_text(text: &str) -> String {
    let lower = strip(text).to_lowercase();
    one_blank(&without_numbers(&without_hex(&lower)))
}

fn without_hex(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("0x") {
        let digits = rest[at + 2..].bytes().take_while(u8::is_ascii_hexdigit).count();
        let end = if digits == 0 { at + 1 } else { at + 2 + digits };
        out.push_str(if digits == 0 { &rest[..end] } else { &rest[..at] });
        if digits > 0 {
            out.push_str("<hex>");
        }
        rest = &rest[end..];
    }
    out + rest
}

/// Replaces numbers that no letter or digit touches, with fraction and percent sign where they have one.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_free = !out.chars().next_back().is_some_and(is_word);
        match is_free.then(|| number_length(rest)).flatten() {
            Some(length) => {
                out.push_str("<num>");
                rest = &rest[length..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

/// The length of the number at the start of a text, if nothing word-like follows it.
fn number_length(text: &str) -> Option<usize> {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let free = |end: usize| !text[end..].chars().next().is_some_and(is_word);
    let whole = Some(digits(0)).filter(|length| *length > 0)?;
    let fraction = if text[whole..].starts_with('.') { digits(whole + 1) } else { 0 };
    let longest = if fraction > 0 { whole + 1 + fraction } else { whole };
    for end in [longest, whole] {
        if text[end..].starts_with('%') && free(end + 1) {
            return Some(end + 1);
        }
        if free(end) {
            return Some(end);
        }
    }
    None
}

fn one_blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if !is_space(character) {
            out.push(character);
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
    }
    out
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// `json.dumps(value, sort_keys=True, separators=(",", ":"))`.
fn write_compact(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) if number.is_f64() => {
            out.push_str(&float_repr(number.as_f64().unwrap_or(0.0)));
        }
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_compact(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut names: Vec<&String> = map.keys().collect();
            names.sort_unstable();
            out.push('{');
            for (at, name) in names.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_text(out, name);
                out.push(':');
                write_compact(out, &map[name]);
            }
            out.push('}');
        }
    }
}

/// A JSON string in ASCII.
fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            ' '..='~' => out.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_lose_what_varies() {
        // Each right side is what 0.4.3's normalize_text_dimension gives.
        let cases = [
            (" Warning ", "warning"),
            ("Level 3", "level <num>"),
            ("12.5% used", "<num> used"),
            ("12.5abc 7%x 9.", "<num>.5abc <num>%x <num>."),
            ("at 0xDEADbeef!", "at <hex>!"),
            ("0x", "0x"),
            ("00x1f", "<num><hex>"),
            ("a1 1a 1_000 -5 1.2.3", "a1 1a 1_000 -<num> <num>.<num>"),
            ("a \t\n b", "a b"),
            ("  ", ""),
            ("used=95%", "used=<num>"),
            ("cuda:0", "cuda:<num>"),
            ("code=15", "code=<num>"),
            ("7.61GB/8.00GB", "<num>.61gb/<num>.00gb"),
            ("2/8", "<num>/<num>"),
        ];
        for (text, expected) in cases {
            assert_eq!(normalize_text(text), expected, "{text:?}");
            assert_eq!(normalize_text(expected), expected, "{expected:?} is stable");
        }
    }

    #[test]
    fn ids_are_those_of_the_older_release() {
        let dimensions =
            json!({"backend": "cuda", "reason": null, "fields": ["b", "a"], "size": 0.123_456_789, "ü": "Ü"});
        let fingerprint = Fingerprint::new("oom", dimensions.as_object().unwrap()).unwrap();
        // hashlib.sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:24]
        let text = "{\"dimensions\":{\"backend\":\"cuda\",\"fields\":[\"a\",\"b\"],\"reason\":null,\"size\":0.123457,\
                    \"\\u00fc\":\"\\u00fc\"},\"kind\":\"oom\",\"schema_version\":1}";
        let hex: String =
            Sha256::digest(text.as_bytes()).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(fingerprint.id(), format!("issue:{hex}"));
        assert!(normalize_dimensions(json!({" ": 1}).as_object().unwrap()).is_err());
    }

    #[test]
    fn states_are_words_in_any_case() {
        assert_eq!(issue_state(" Resolved ").unwrap(), "resolved");
        assert_eq!(issue_state("gone").unwrap_err().message, "unsupported issue state: gone");
    }
}
