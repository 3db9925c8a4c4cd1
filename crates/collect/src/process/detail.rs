//! The text of `/proc/PID/smaps_rollup`: PSS, USS and what the memory is made of, exact.

use serde::Serialize;

use crate::text::{key_size, lines};

/// Exact sums over the whole address space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryDetail {
    /// Resident bytes, exact.
    pub rss: Option<u64>,
    /// Resident bytes, each shared page divided by the number of processes that share it.
    pub pss: Option<u64>,
    /// The part of the PSS that belongs to no file.
    pub pss_anonymous: Option<u64>,
    /// The part of the PSS that belongs to files.
    pub pss_file: Option<u64>,
    /// The part of the PSS that is shared memory or tmpfs.
    pub pss_shared_memory: Option<u64>,
    /// Resident bytes no other process shares: what ending this one would free.
    pub uss: Option<u64>,
    /// Resident bytes that others share.
    pub shared: Option<u64>,
    /// Those no other process shares and that were written: heap, stacks, copies of pages that were shared before.
    pub private_dirty: Option<u64>,
    /// Those that others share and that were written, by this process or before it was forked.
    pub shared_dirty: Option<u64>,
    /// Bytes that belong to no file, shared or not.
    pub anonymous: Option<u64>,
    /// Bytes in transparent huge pages.
    pub anonymous_huge_pages: Option<u64>,
    /// Bytes swapped out.
    pub swap: Option<u64>,
    /// Swapped bytes, shared ones divided.
    pub swap_pss: Option<u64>,
    /// Locked bytes.
    pub locked: Option<u64>,
}

/// Reads the rollup. `None` when it is not a rollup; a kernel thread's is empty.
pub(crate) fn parse(text: &[u8]) -> Option<MemoryDetail> {
    let mut detail = MemoryDetail::default();
    let mut uss = Sum::default();
    let mut shared = Sum::default();
    for line in lines(text) {
        let Some((key, value)) = key_size(line) else { continue };
        match key {
            b"Private_Dirty" => detail.private_dirty = Some(value),
            b"Shared_Dirty" => detail.shared_dirty = Some(value),
            _ => {}
        }
        let slot = match key {
            b"Rss" => &mut detail.rss,
            b"Pss" => &mut detail.pss,
            b"Pss_Anon" => &mut detail.pss_anonymous,
            b"Pss_File" => &mut detail.pss_file,
            b"Pss_Shmem" => &mut detail.pss_shared_memory,
            b"Anonymous" => &mut detail.anonymous,
            b"AnonHugePages" => &mut detail.anonymous_huge_pages,
            b"Swap" => &mut detail.swap,
            b"SwapPss" => &mut detail.swap_pss,
            b"Locked" => &mut detail.locked,
            b"Private_Clean" | b"Private_Dirty" | b"Private_Hugetlb" => {
                uss.add(value);
                continue;
            }
            b"Shared_Clean" | b"Shared_Dirty" | b"Shared_Hugetlb" => {
                shared.add(value);
                continue;
            }
            _ => continue,
        };
        *slot = Some(value);
    }
    detail.uss = uss.0;
    detail.shared = shared.0;
    (text.is_empty() || detail.rss.is_some()).then_some(detail)
}

#[derive(Default)]
struct Sum(Option<u64>);

impl Sum {
    fn add(&mut self, value: u64) {
        self.0 = Some(self.0.unwrap_or(0).saturating_add(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_does_not_split_the_pss() {
        let text =
            b"5581-7ffe ---p 00000000 00:00 0   [rollup]\nRss:  100 kB\nPss: 60 kB\nShared_Clean: 40 kB\n\
            Shared_Dirty: 0 kB\nPrivate_Clean: 10 kB\nPrivate_Dirty: 50 kB\nSwap: 0 kB\n";
        let detail = parse(text).unwrap();
        assert_eq!(detail.uss, Some(60 << 10));
        assert_eq!(detail.shared, Some(40 << 10));
        assert_eq!((detail.private_dirty, detail.shared_dirty), (Some(50 << 10), Some(0)));
        assert_eq!(detail.swap, Some(0));
        assert_eq!(detail.pss_anonymous, None);
        assert_eq!(parse(b"nonsense"), None);
        assert_eq!(parse(b""), Some(MemoryDetail::default()));
    }
}
