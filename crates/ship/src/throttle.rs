//! The bound of bandwidth: a bucket that fills with the rate and holds what is sent in one second.

use std::thread;
use std::time::{Duration, Instant};

/// Lets bytes through at a rate.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Bytes a second; 0 is without bound.
    rate: u64,
    /// May be below zero after a block larger than the bucket.
    available: f64,
    at: Instant,
}

impl Throttle {
    pub(crate) fn new(rate: u64, now: Instant) -> Self {
        Throttle { rate, available: rate as f64, at: now }
    }

    /// Takes the bytes, and gives the time to wait before they are sent.
    fn take(&mut self, bytes: u64, now: Instant) -> Duration {
        if self.rate == 0 {
            return Duration::ZERO;
        }
        let rate = self.rate as f64;
        self.available += now.saturating_duration_since(self.at).as_secs_f64() * rate;
        self.available = self.available.min(rate) - bytes as f64;
        self.at = now;
        Duration::from_secs_f64((-self.available / rate).max(0.0))
    }

    /// Waits until the bytes may be sent.
    pub(crate) fn wait(&mut self, bytes: u64) {
        let delay = self.take(bytes, Instant::now());
        if !delay.is_zero() {
            thread::sleep(delay);
        }
    }

    /// Bytes that one span may send; everything without a bound.
    pub(crate) fn budget(&self, span: Duration) -> u64 {
        if self.rate == 0 { u64::MAX } else { self.rate.saturating_mul(span.as_secs().max(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sent_in_any_time_stay_within_the_rate_and_one_bucket() {
        const RATE: u64 = 1 << 20;
        let start = Instant::now();
        let (mut now, mut sent, mut throttle) = (start, 0, Throttle::new(RATE, start));
        for number in 0..2000_u64 {
            let bytes = (number * 7919) % (256 << 10);
            // Each block is sent when it may be, sometimes later.
            now += throttle.take(bytes, now) + Duration::from_millis(number % 3 * 40);
            sent += bytes;
            let most = RATE as f64 * (1.0 + now.duration_since(start).as_secs_f64());
            assert!(sent as f64 <= most + 1.0, "{sent} bytes after {:?}", now.duration_since(start));
        }
        assert!(sent > 200 * RATE);
    }

    #[test]
    fn rate_of_zero_is_without_bound() {
        let now = Instant::now();
        let mut throttle = Throttle::new(0, now);
        assert_eq!(throttle.take(u64::MAX, now), Duration::ZERO);
        assert_eq!(throttle.budget(Duration::from_secs(1)), u64::MAX);
    }
}
