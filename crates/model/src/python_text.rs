//! Numbers and values spelt the way Python spells them, because file contents and synthetic ids depend on it.

use serde_json::Value;

/// `repr(float)`: the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `str(value)` of a decoded JSON value, as used in synthetic session ids.
pub fn value_str(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(signed), _, _) => signed.to_string(),
            (_, Some(unsigned), _) => unsigned.to_string(),
            (_, _, float) => float_repr(float.unwrap_or(f64::NAN)),
        },
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `str.strip()`: Unicode white space and the four ASCII separators.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// `str.isspace()` of one character.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

/// `repr(value)` of a decoded JSON value; of a text only its quotes are chosen as Python does, no character is escaped but they.
pub fn value_repr(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains('\'') && !text.contains('"') => format!("\"{text}\""),
        Value::String(text) => format!("'{}'", text.replace('\'', "\\'")),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(value_repr).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let items = map.iter().map(|(key, value)| {
                format!("{}: {}", value_repr(&Value::String(key.clone())), value_repr(value))
            });
            format!("{{{}}}", items.collect::<Vec<String>>().join(", "))
        }
        scalar => value_str(scalar),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_spelt_like_python() {
        let cases = [
            (0.0, "0.0"),
            (1.5, "1.5"),
            (100.0, "100.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e22, "1.25e+22"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (1700000000.123456, "1700000000.123456"),
        ];
        for (value, text) in cases {
            assert_eq!(float_repr(value), text);
        }
    }
}
