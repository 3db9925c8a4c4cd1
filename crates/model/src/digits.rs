//! Decimal digits without the formatting machinery: for code that must not allocate, and for code that writes millions of numbers.

/// The digits of a number, in the caller's memory.
#[must_use]
pub fn decimal(mut value: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    &room[at..]
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn smallest_and_largest_numbers_are_written_whole() {
        for value in [0, 7, 10, 99, u64::MAX] {
            assert_eq!(decimal(value, &mut [0; 20]), value.to_string().as_bytes());
        }
    }
}
