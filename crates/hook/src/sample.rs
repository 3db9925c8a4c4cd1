//! Poisson sampling by bytes. Every byte is as likely as any other to be the one that is sampled, so a block of `s` bytes is recorded with
//! probability 1 − e^(−s/mean), independent of all others; a reader that weighs it by the inverse has an unbiased total.
//! Must cost a block that is not sampled next to nothing, neither when it comes nor when it goes.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicUsize, Ordering};

use crate::session;
use crate::sys;

/// Buckets of the set; each is one cache line.
const BUCKETS: usize = 1 << 14;
const PER_BUCKET: usize = 8;
/// All buckets, and how many blocks are in each.
const BYTES: usize = BUCKETS * (size_of::<Bucket>() + size_of::<AtomicU16>());

#[repr(align(64))]
struct Bucket([AtomicUsize; PER_BUCKET]);

/// Addresses of the sampled blocks that live, and behind the buckets the number of blocks in each: most blocks that come to their end were not
/// sampled, and one number answers for eight addresses. All zeroes is one without memory.
#[repr(C)]
pub struct Sampled {
    buckets: AtomicPtr<Bucket>,
}

impl Sampled {
    /// Makes (or empties) the set; only while nothing is recorded.
    pub fn prepare(&self) -> bool {
        let old = self.buckets.swap(null_mut(), Ordering::AcqRel);
        if !old.is_null() {
            sys::unmap(old.cast(), BYTES);
        }
        let new = sys::map_private(BYTES);
        self.buckets.store(new.cast(), Ordering::Release);
        !new.is_null()
    }

    /// Makes the set where there is none, as in a forked child; another thread may be doing the same.
    #[cold]
    fn make(&self) -> bool {
        let new = sys::map_private(BYTES);
        if new.is_null() {
            return false;
        }
        let made = self
            .buckets
            .compare_exchange(null_mut(), new.cast(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if !made {
            sys::unmap(new, BYTES);
        }
        true
    }

    #[inline(always)]
    fn bucket(&self, address: usize) -> Option<(&Bucket, &AtomicU16)> {
        let buckets = self.buckets.load(Ordering::Acquire);
        let index = ((address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as usize;
        // SAFETY: null in a forked child, else mapped with the numbers behind; the index has as many bits as there are buckets.
        (!buckets.is_null()).then(|| unsafe {
            let numbers = buckets.add(BUCKETS).cast::<AtomicU16>();
            (&*buckets.add(index), &*numbers.add(index))
        })
    }

    /// False: the block is not there. A block comes in before the program has it, so that the thread that frees it finds its number.
    #[inline(always)]
    fn may_have(&self, address: usize) -> bool {
        self.bucket(address).is_some_and(|(_, number)| number.load(Ordering::Relaxed) != 0)
    }

    fn has(&self, address: usize) -> bool {
        self.may_have(address)
            && self.bucket(address).is_some_and(|(bucket, _)| {
                bucket.0.iter().any(|place| place.load(Ordering::Relaxed) == address)
            })
    }

    /// Remembers a block. False when its bucket is full: then it must not be recorded, for its end would not be noticed.
    fn add(&self, address: usize) -> bool {
        let Some((bucket, number)) = self.bucket(address) else { return self.make() && self.add(address) };
        let is_in = bucket
            .0
            .iter()
            .any(|place| place.compare_exchange(0, address, Ordering::AcqRel, Ordering::Relaxed).is_ok());
        if is_in {
            number.fetch_add(1, Ordering::Relaxed);
        }
        is_in
    }

    #[inline(always)]
    fn remove(&self, address: usize) -> bool {
        let Some((bucket, number)) = self.bucket(address) else { return false };
        let was_in =
            bucket.0.iter().any(|place| place.load(Ordering::Relaxed) == address && take_out(place, address));
        if was_in {
            number.fetch_sub(1, Ordering::Relaxed);
        }
        was_in
    }
}

#[cold]
fn take_out(place: &AtomicUsize, address: usize) -> bool {
    place.compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// True when a block of this many bytes is not to be recorded. To be asked once for each block.
#[inline(always)]
pub fn passes_over(thread: &mut crate::thread::Thread, bytes: usize) -> bool {
    if session::options().sample == 0 {
        return false;
    }
    thread.countdown = thread.countdown.saturating_sub(bytes.min(i64::MAX as usize) as i64);
    thread.countdown >= 0
}

/// True when the block at `address`, which is not [passed over](passes_over), is to be recorded.
#[inline(always)]
pub fn takes(thread: &mut crate::thread::Thread, address: usize) -> bool {
    session::options().sample == 0 || hit(thread, address)
}

/// False: the end of the block at `address` is not to be recorded.
#[inline(always)]
pub fn may_have_taken(address: usize) -> bool {
    session::options().sample == 0 || session::current().is_some_and(|state| state.sampled.may_have(address))
}

/// Whether the capture has a record of the block at `address` because it was sampled. False where every block is recorded.
pub fn has_taken(address: usize) -> bool {
    session::options().sample > 0 && session::current().is_some_and(|state| state.sampled.has(address))
}

#[cold]
fn hit(thread: &mut crate::thread::Thread, address: usize) -> bool {
    thread.countdown = draw(&mut thread.seed);
    let known = session::current().is_some_and(|state| state.sampled.add(address));
    if !known {
        session::lost(1);
    }
    known
}

/// True when the end of the block at `address` is to be recorded.
#[inline(always)]
pub fn took(address: usize) -> bool {
    session::options().sample == 0 || session::current().is_some_and(|state| state.sampled.remove(address))
}

/// Remembers a block again whose end was taken back (a `realloc` that failed).
pub fn keep(address: usize) {
    if session::options().sample > 0 {
        let _ = session::current().is_some_and(|state| state.sampled.add(address));
    }
}

/// Bytes to the next sample: exponentially distributed.
pub fn draw(seed: &mut u64) -> i64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    let uniform = ((*seed >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
    (-uniform.ln() * session::options().sample as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_knows_what_was_put_in() {
        let set = Sampled { buckets: AtomicPtr::new(null_mut()) };
        assert!(set.prepare());
        for block in 1..2000_usize {
            assert!(set.add(block * 48));
        }
        for block in 1..2000_usize {
            assert!(set.has(block * 48) && !set.has(block * 48 + 16));
            assert!(set.remove(block * 48));
            assert!(!set.remove(block * 48) && !set.has(block * 48));
        }
        for full in 0..=PER_BUCKET {
            assert_eq!(set.add(4096), full < PER_BUCKET);
        }
    }
    /// The threads of a forked child, whose set is empty memory.
    #[test]
    fn threads_that_make_the_set_at_once_share_it() {
        for _ in 0..100 {
            let set = Sampled { buckets: AtomicPtr::new(null_mut()) };
            let blocks = |thread: usize| (1..20).map(move |block| (thread * 100 + block) * 48);
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for thread in 1..5 {
                    let (set, start) = (&set, &start);
                    scope.spawn(move || {
                        start.wait();
                        assert!(blocks(thread).all(|block| set.add(block)));
                    });
                }
            });
            assert!((1..5).flat_map(blocks).all(|block| set.remove(block)));
            sys::unmap(set.buckets.load(Ordering::Relaxed).cast(), BYTES);
        }
    }
}
