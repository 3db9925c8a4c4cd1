//! The same snapshot as JSON, through the same builder and within the same limits as a pickle.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::build::Builder;
use super::limits::{self, MAX_PENDING, Tokens};
use super::value::{NO_SLOT, Val};
use crate::error::SnapshotError;

/// The outermost value and the number of bytes it took.
pub(super) fn read(source: impl Read, builder: &mut Builder) -> Result<(Val, u64), SnapshotError> {
    let mut problem = None;
    let mut pending = 0;
    let mut tokens = Tokens::new(source);
    let buffered = std::io::BufReader::with_capacity(256 * 1024, &mut tokens);
    let mut json = serde_json::Deserializer::from_reader(buffered);
    let value = Seed { builder, problem: &mut problem, pending: &mut pending }
        .deserialize(&mut json)
        .and_then(|value| json.end().map(|()| value));
    drop(json);
    let bytes = tokens.position();
    value.map(|value| (value, bytes)).map_err(|error| match problem {
        Some(problem) => problem,
        None if error.is_io() => limits::read_error(bytes, error.into()),
        None => SnapshotError::Json(error.to_string()),
    })
}

/// Errors of the builder travel beside serde's own, which can only carry text.
struct Seed<'a> {
    builder: &'a mut Builder,
    problem: &'a mut Option<SnapshotError>,
    /// Values of containers that are not complete yet.
    pending: &'a mut usize,
}

impl Seed<'_> {
    fn checked<T, E: Error>(&mut self, result: Result<T, SnapshotError>) -> Result<T, E> {
        result.map_err(|error| {
            let text = error.to_string();
            *self.problem = Some(error);
            E::custom(text)
        })
    }

    fn again(&mut self) -> Seed<'_> {
        Seed { builder: self.builder, problem: self.problem, pending: self.pending }
    }

    fn push<E: Error>(&mut self, values: &mut Vec<Val>, value: Val) -> Result<(), E> {
        if *self.pending == MAX_PENDING {
            return self.checked(Err(SnapshotError::TooMany {
                what: "values in one JSON container",
                limit: MAX_PENDING as u64,
            }));
        }
        *self.pending += 1;
        values.push(value);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Val;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Val, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Val;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot as JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Val, E> {
        Ok(Val::None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Val, E> {
        Ok(Val::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Val, E> {
        Ok(Val::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Val, E> {
        Ok(i64::try_from(value).map_or(Val::Unsigned(value), Val::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Val, E> {
        Ok(Val::Float(value))
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<Val, E> {
        let text = self.builder.string(value.as_bytes());
        self.checked(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Val, A::Error> {
        let mut items: Vec<Val> = Vec::new();
        while let Some(value) = seq.next_element_seed(self.again())? {
            match (items.last_mut(), value) {
                (Some(Val::Events(_, end)), Val::Events(from, to)) if *end == from => *end = to,
                _ => self.push(&mut items, value)?,
            }
        }
        *self.pending -= items.len();
        if items.is_empty() {
            return Ok(Val::FreshList(NO_SLOT));
        }
        let list = self.builder.list(&items, NO_SLOT);
        self.checked(list)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Val, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key_seed(self.again())? {
            self.push(&mut pairs, key)?;
            let value = map.next_value_seed(self.again())?;
            self.push(&mut pairs, value)?;
        }
        *self.pending -= pairs.len();
        if pairs.is_empty() {
            return Ok(Val::FreshDict(NO_SLOT));
        }
        let dict = self.builder.dict(&pairs);
        self.checked(dict)
    }
}
