//! Protobuf's wire format, field by field, without copying: pprof and Perfetto are written in it. Must stop at the first bytes that are not a field.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A varint or a fixed-size number.
    Number(u64),
    /// A text, a message or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(crate) fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Bytes(_) => 0,
        }
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Number(_) => &[],
            Value::Bytes(bytes) => bytes,
        }
    }

    /// The numbers of a repeated field: packed, or one by one.
    pub(crate) fn numbers(self) -> Numbers<'a> {
        match self {
            Value::Number(number) => Numbers { one: Some(number), rest: &[] },
            Value::Bytes(rest) => Numbers { one: None, rest },
        }
    }
}

/// Numbers of one field.
pub(crate) struct Numbers<'a> {
    one: Option<u64>,
    rest: &'a [u8],
}

impl Iterator for Numbers<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.one.take().or_else(|| varint(&mut self.rest))
    }
}

/// The fields of a message.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    start: usize,
    is_cut: bool,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Fields { rest: message, start: message.len(), is_cut: false }
    }

    /// The content of the first field, where that is a message with the number 1; as much of it as there is.
    pub(crate) fn first_message(mut bytes: &'a [u8]) -> Option<&'a [u8]> {
        (varint(&mut bytes)? == 1 << 3 | 2).then_some(())?;
        let length = usize::try_from(varint(&mut bytes)?).ok().filter(|length| *length > 0)?;
        Some(&bytes[..length.min(bytes.len())])
    }

    /// Whether everything was a field.
    pub(crate) fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }

    /// The same, or the last field's value is longer than the message.
    pub(crate) fn is_whole_or_cut_value(&self) -> bool {
        self.is_whole() || self.is_cut
    }

    /// Bytes that were read.
    pub(crate) fn offset(&self) -> u64 {
        (self.start - self.rest.len()) as u64
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    fn next(&mut self) -> Option<(u32, Value<'a>)> {
        let mut rest = self.rest;
        let key = varint(&mut rest)?;
        let field = u32::try_from(key >> 3).ok().filter(|field| *field > 0)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut rest)?),
            1 => Value::Number(u64::from_le_bytes(*take(&mut rest, 8)?.first_chunk()?)),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                self.is_cut = length > rest.len();
                Value::Bytes(take(&mut rest, length)?)
            }
            5 => Value::Number(u32::from_le_bytes(*take(&mut rest, 4)?.first_chunk()?).into()),
            _ => return None,
        };
        self.rest = rest;
        Some((field, value))
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

pub(crate) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(place as u32 * 7).unwrap_or(0);
        if byte & 0x80 == 0 {
            *bytes = &bytes[place + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_until_the_first_damage() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x03, b'a', b'b', b'c', 0x1d, 1, 0, 0, 0, 0x07];
        let mut fields = Fields::of(&message);
        assert_eq!(fields.next(), Some((1, Value::Number(150))));
        assert_eq!(fields.next(), Some((2, Value::Bytes(b"abc"))));
        assert_eq!(fields.next(), Some((3, Value::Number(1))));
        assert_eq!(fields.next(), None);
        assert!(!fields.is_whole());
        assert_eq!(fields.offset(), 13);
        assert_eq!(Value::Bytes(&[1, 0x96, 0x01]).numbers().collect::<Vec<_>>(), [1, 150]);
        assert_eq!(varint(&mut &[0xff; 11][..]), None);
    }
}
