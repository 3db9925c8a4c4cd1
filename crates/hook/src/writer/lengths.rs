//! How long numbers are in a record, by table: so that a record's length and its control word come out of one addition. Must agree with the
//! format (`stormlog_capture::record`).

use stormlog_capture::record::{NARROW, WIDE, zigzag};

/// By the bits of a number: the bytes it takes, and 256 times its length code at its place in the control word. So the sum for all numbers of a record is
/// its length and its control word.
const fn lengths<const LENGTHS: usize, const BITS: usize>(lengths: [u8; LENGTHS], place: u32) -> [u32; BITS] {
    let (mut table, mut bits, mut code) = ([0; BITS], 0, 0);
    while bits < BITS {
        if bits > 8 * lengths[code] as usize {
            code += 1;
        }
        table[bits] = lengths[code] as u32 | (code as u32) << (8 + place);
        bits += 1;
    }
    table
}

pub(super) static LENGTHS_OF_A: [u32; 64] = lengths(WIDE, 5);
pub(super) static LENGTHS_OF_B: [u32; 64] = lengths(WIDE, 8);
pub(super) static LENGTHS_OF_C: [u32; 33] = lengths(NARROW, 11);
pub(super) static LENGTHS_OF_D: [u32; 33] = lengths(NARROW, 13);

#[inline(always)]
pub(super) const fn bytes(length: u32) -> usize {
    (length & 0xff) as usize
}

/// How many bits the number has; 63 for 64, which take as many bytes.
#[inline(always)]
pub(super) const fn bits(value: u64) -> usize {
    (value << 1 | value | 1).ilog2() as usize
}

#[inline(always)]
pub(super) const fn narrow_bits(value: u32) -> usize {
    ((value as u64) << 1 | 1).ilog2() as usize
}

/// How far it is from one address to another, both divisible by eight.
#[inline(always)]
pub(super) const fn difference(address: u64, last: u64) -> u64 {
    zigzag((address >> 3).wrapping_sub(last >> 3) as i64)
}

/// A zigzag of a 32-bit difference.
#[inline(always)]
pub(super) const fn zigzag32(difference: u32) -> u32 {
    let value = difference as i32;
    ((value << 1) ^ (value >> 31)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_capture::record::unzigzag;

    #[test]
    fn lengths_are_those_of_the_format() {
        let code = |length: u32, place: u32| (length >> (8 + place)) as usize;
        for many in 0..64 {
            for value in [0, 1_u64 << many, (1 << many) - 1, u64::MAX >> (63 - many)] {
                let (a, b) = (LENGTHS_OF_A[bits(value)], LENGTHS_OF_B[bits(value)]);
                assert_eq!((bytes(a), code(a, 5)), (bytes(b), code(b, 8)));
                assert_eq!(usize::from(WIDE[code(a, 5)]), bytes(a));
                assert!(bytes(a) == 8 || value >> (8 * bytes(a)) == 0, "{value:#x} in {}", bytes(a));
                let value = value as u32;
                let (c, d) = (LENGTHS_OF_C[narrow_bits(value)], LENGTHS_OF_D[narrow_bits(value)]);
                assert_eq!((bytes(c), code(c, 11)), (bytes(d), code(d, 13)));
                assert_eq!(usize::from(NARROW[code(c, 11)]), bytes(c));
                assert!(bytes(c) == 4 || value >> (8 * bytes(c)) == 0);
            }
        }
        assert_eq!(bytes(LENGTHS_OF_A[bits(0)]) + bytes(LENGTHS_OF_C[narrow_bits(0)]), 0);
    }

    #[test]
    fn differences_of_nodes_come_back() {
        for (from, to) in [(0_u32, 5_u32), (5, 0), (u32::MAX, 1), (1, u32::MAX), (7, 7)] {
            let stored = zigzag32(to.wrapping_sub(from));
            assert_eq!(from.wrapping_add(unzigzag(u64::from(stored)) as u32), to);
        }
    }
}
