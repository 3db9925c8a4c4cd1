//! What a sampled block stands for. A block of `s` bytes is recorded with probability 1 − e^(−s/mean), so it stands for the inverse of that.

use crate::level::Amount;

/// A count's unit in a sampled capture, where one block may stand for 1.6 of them.
const FINE: u64 = 1024;

/// The weights of one capture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    mean: u64,
}

impl Weights {
    /// `mean` bytes between samples; 0 when every block was recorded.
    pub(crate) fn new(mean: u64) -> Self {
        Weights { mean }
    }

    /// Mean bytes between samples; `None` when every block was recorded.
    pub(crate) fn mean(self) -> Option<u64> {
        (self.mean > 0).then_some(self.mean)
    }

    #[inline]
    pub(crate) fn is_exact(self) -> bool {
        self.mean == 0
    }

    /// What a recorded block counts.
    #[inline]
    pub(crate) fn amount(self, size: u64) -> Amount {
        if self.mean == 0 {
            return Amount { bytes: size, count: 1 };
        }
        let weight = 1.0 / self.chance(size);
        Amount { bytes: (size as f64 * weight).round() as u64, count: (weight * FINE as f64).round() as u64 }
    }

    /// Its share of the variance of the estimated bytes (Horvitz–Thompson).
    pub(crate) fn variance(self, size: u64) -> f64 {
        let chance = self.chance(size);
        (size as f64).powi(2) * (1.0 - chance) / chance.powi(2)
    }

    fn chance(self, size: u64) -> f64 {
        // A request for 0 bytes can only be recorded as one for 1 byte.
        -f64::exp_m1(-(size.max(1) as f64) / self.mean as f64)
    }

    /// A counter as a number of blocks.
    pub(crate) fn blocks(self, count: u64) -> u64 {
        if self.mean == 0 { count } else { count.saturating_add(FINE / 2) / FINE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_blocks_stand_for_many() {
        let weights = Weights::new(1 << 19);
        let small = weights.amount(64);
        assert!((small.bytes as f64 - (1 << 19) as f64).abs() < 100.0, "{small:?}");
        assert_eq!(weights.blocks(small.count), 8193);
        assert_eq!(weights.amount(100 << 20).bytes, 100 << 20);
        assert_eq!(Weights::new(0).amount(7), Amount { bytes: 7, count: 1 });
    }
}
