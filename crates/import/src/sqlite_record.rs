//! One row of SQLite: the types of its values, then the values. Pure.

/// How texts are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Utf8,
    Utf16Little,
    Utf16Big,
}

/// A value that was requested.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    /// Bytes, which no table here needs.
    Blob,
}

impl Value {
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            // An exporter may write whole numbers so.
            Value::Real(number) if number.fract() == 0.0 && number.abs() < 9.0e15 => Some(*number as i64),
            _ => None,
        }
    }
}

/// A number of one to nine bytes, and what follows it.
pub(crate) fn varint(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut value: u64 = 0;
    for (index, byte) in bytes.iter().enumerate().take(9) {
        if index == 8 {
            return Some((((value << 8) | u64::from(*byte)) as i64, &bytes[9..]));
        }
        value = (value << 7) | u64::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            return Some((value as i64, &bytes[index + 1..]));
        }
    }
    None
}

/// The values at these places; null where the row is shorter. `None` where the row is damaged.
pub(crate) fn read_record(payload: &[u8], encoding: Encoding, places: &[usize]) -> Option<Vec<Value>> {
    let (head, after) = varint(payload)?;
    let head = usize::try_from(head).ok()?;
    let consumed = payload.len() - after.len();
    let mut types = payload.get(consumed..head)?;
    let mut body = payload.get(head..)?;
    let mut values = vec![Value::Null; places.len()];
    let mut place = 0;
    while !types.is_empty() {
        let (kind, rest) = varint(types)?;
        types = rest;
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            12.. => usize::try_from((kind - 12) / 2).ok()?,
            _ => return None,
        };
        let content = body.get(..length)?;
        body = &body[length..];
        for (wanted, value) in places.iter().zip(&mut values) {
            if *wanted == place {
                *value = read_value(kind, content, encoding);
            }
        }
        place += 1;
    }
    Some(values)
}

fn read_value(kind: i64, content: &[u8], encoding: Encoding) -> Value {
    match kind {
        0 => Value::Null,
        8 => Value::Int(0),
        9 => Value::Int(1),
        1..=6 => {
            let negative = content.first().is_some_and(|byte| byte & 0x80 != 0);
            let start = if negative { -1 } else { 0 };
            Value::Int(content.iter().fold(start, |value, byte| (value << 8) | i64::from(*byte)))
        }
        7 => content.try_into().map_or(Value::Null, |bytes| Value::Real(f64::from_be_bytes(bytes))),
        _ if kind % 2 == 0 => Value::Blob,
        _ => Value::Text(text(content, encoding)),
    }
}

fn text(content: &[u8], encoding: Encoding) -> String {
    let unit = |pair: &[u8]| match (pair, encoding) {
        ([a, b], Encoding::Utf16Little) => u16::from_le_bytes([*a, *b]),
        ([a, b], _) => u16::from_be_bytes([*a, *b]),
        _ => u16::from(b'?'),
    };
    match encoding {
        Encoding::Utf8 => String::from_utf8_lossy(content).into_owned(),
        _ => String::from_utf16_lossy(&content.chunks(2).map(unit).collect::<Vec<u16>>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_read_back() {
        for (bytes, value) in [
            (&[0x00][..], 0),
            (&[0x7F], 127),
            (&[0x81, 0x00], 128),
            (&[0xFF; 9], -1),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x05], 5),
        ] {
            assert_eq!(varint(bytes), Some((value, &[][..])), "{bytes:?}");
        }
        assert_eq!(varint(&[0x80]), None);
        assert_eq!(varint(&[]), None);
    }

    #[test]
    fn values_of_every_type_are_read_and_a_short_row_ends_in_nulls() {
        // Head of 8 bytes: null, 1 byte, 3 bytes, real, one, text of 2, blob of 1.
        let mut row = vec![8, 0, 1, 3, 7, 9, 17, 14, 0xFE, 0x01, 0x00, 0x00];
        row.extend_from_slice(&2.5_f64.to_be_bytes());
        row.extend_from_slice(b"ab\xFF");
        let values = read_record(&row, Encoding::Utf8, &[0, 1, 2, 3, 4, 5, 6, 7, usize::MAX]);
        let expected = vec![
            Value::Null,
            Value::Int(-2),
            Value::Int(65_536),
            Value::Real(2.5),
            Value::Int(1),
            Value::Text("ab".to_owned()),
            Value::Blob,
            Value::Null,
            Value::Null,
        ];
        assert_eq!(values, Some(expected));
        for length in 0..row.len() {
            assert_eq!(read_record(&row[..length], Encoding::Utf8, &[0]), None, "{length}");
        }
    }

    #[test]
    fn texts_of_two_bytes_a_letter_are_read() {
        assert_eq!(text(b"a\0b\0", Encoding::Utf16Little), "ab");
        assert_eq!(text(b"\0a\0b\0", Encoding::Utf16Big), "ab?");
    }
}
