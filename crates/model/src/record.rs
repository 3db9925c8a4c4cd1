//! Reading typed values out of a JSON record, with the error texts of the contract.
//!
//! Booleans are never integers, and a number that is not an integer is an error rather than rounded.

use serde_json::Value;

use crate::{Problem, Record};

/// An integer as JSON can hold it exactly.
pub(crate) fn integer(value: &Value, field: &str) -> Result<i128, Problem> {
    match value {
        Value::Number(number) => {
            if let Some(signed) = number.as_i64() {
                return Ok(signed.into());
            }
            if let Some(unsigned) = number.as_u64() {
                return Ok(unsigned.into());
            }
            Err(Problem::of(field, "must be an integer"))
        }
        _ => Err(Problem::of(field, "must be an integer")),
    }
}

/// An integer that fits 64 bits with a sign.
pub(crate) fn signed(value: &Value, field: &str) -> Result<i64, Problem> {
    integer(value, field)?.try_into().map_err(|_| Problem::of(field, "must be at most 9223372036854775807"))
}

/// `null` or an integer.
pub(crate) fn optional_integer(value: &Value, field: &str) -> Result<Option<i128>, Problem> {
    if value.is_null() { Ok(None) } else { integer(value, field).map(Some) }
}

/// A string with something in it besides white space.
pub(crate) fn non_empty<'a>(value: &'a Value, field: &str) -> Result<&'a str, Problem> {
    match value {
        Value::Null => Err(Problem::of(field, "must be a non-empty string")),
        Value::String(text) if text.trim().is_empty() => {
            Err(Problem::of(field, "must be a non-empty string"))
        }
        Value::String(text) => Ok(text),
        _ => Err(Problem::of(field, "must be a string")),
    }
}

/// `null` or any string.
pub(crate) fn optional_string<'a>(value: &'a Value, field: &str) -> Result<Option<&'a str>, Problem> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        _ => Err(Problem::of(field, "must be a string")),
    }
}

/// The value under `key`, `null` when it is not there.
pub(crate) fn get<'a>(record: &'a Record, key: &str) -> &'a Value {
    record.get(key).unwrap_or(&Value::Null)
}
