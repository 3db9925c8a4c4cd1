//! The code of this process itself, at the limit of a memory cgroup.
//!
//! There the kernel drops pages of code before it kills. Code that a watching process needs ten times a second is read from disk again at once,
//! with the pages around it; the kernel counts that as progress, and puts off the kill of the program for minutes. So the pages that the watching
//! needs, not those of the start, are locked in memory. Must never fail its caller: where the limit of locked memory (RLIMIT_MEMLOCK) is too
//! small, less is locked.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;
/// An entry of `/proc/self/pagemap`: the page is in memory.
const PRESENT: u64 = 1 << 63;

/// The code of this program, as far as it was used since [`OwnCode::of_now`].
#[derive(Debug)]
pub struct OwnCode {
    mappings: Vec<Range<usize>>,
    locked: usize,
}

impl OwnCode {
    /// From now on a page counts as used when it is run or read again. Empty where the kernel does not show the mappings.
    #[must_use]
    pub fn of_now() -> Self {
        let program = fs::read_link("/proc/self/exe").ok().and_then(|path| path.to_str().map(str::to_owned));
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let program = program.unwrap_or_default();
        let mappings: Vec<Range<usize>> = maps.lines().filter_map(|line| code_of(line, &program)).collect();
        for code in &mappings {
            // SAFETY: executable pages of a file that are never written: what is dropped is read from the file again, unchanged. Pages read for a fault are
            // not read around, so that few are there that were not asked for.
            unsafe {
                libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_DONTNEED);
                libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_RANDOM);
            }
        }
        OwnCode { mappings, locked: 0 }
    }

    /// Locks the pages that were used, at most this many bytes of them in all. May be called again, for those that came later.
    pub fn lock_used(&mut self, most: usize) {
        let Ok(table) = File::open("/proc/self/pagemap") else { return };
        self.locked = 0;
        for code in &self.mappings {
            for used in used_pages(&table, code) {
                if self.locked + used.len() > most {
                    return;
                }
                // SAFETY: the range is inside a mapping of this program's own code, which is never unmapped; locking changes no content.
                if unsafe { libc::mlock(used.start as *const libc::c_void, used.len()) } != 0 {
                    return;
                }
                self.locked += used.len();
            }
        }
    }
}

/// Runs of pages that are in memory, by address.
fn used_pages(table: &File, code: &Range<usize>) -> Vec<Range<usize>> {
    let mut entries = vec![0_u8; code.len() / PAGE * 8];
    if table.read_exact_at(&mut entries, (code.start / PAGE * 8) as u64).is_err() {
        return Vec::new();
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (page, entry) in entries.chunks_exact(8).enumerate() {
        let is_present = entry.try_into().is_ok_and(|entry| u64::from_ne_bytes(entry) & PRESENT != 0);
        let start = code.start + page * PAGE;
        match runs.last_mut() {
            _ if !is_present => {}
            Some(last) if last.end == start => last.end += PAGE,
            _ => runs.push(start..start + PAGE),
        }
    }
    runs
}

/// The range of a mapping of `/proc/self/maps` that is code of this file.
fn code_of(line: &str, program: &str) -> Option<Range<usize>> {
    let (range, rest) = line.split_once(' ')?;
    // Not `r--p`: data that the loader has relocated looks like that too, and is not in the file.
    let is_code = rest.starts_with("r-xp");
    if !is_code || program.is_empty() || !rest.ends_with(program) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_meant() {
        let code = "55d0a000-55d0f000 r-xp 00001000 fe:00 12                         /usr/bin/stormlog";
        assert_eq!(code_of(code, "/usr/bin/stormlog"), Some(0x55d0_a000..0x55d0_f000));
        assert_eq!(code_of(code, "/usr/bin/other"), None);
        assert_eq!(code_of(&code.replace("r-xp", "rw-p"), "/usr/bin/stormlog"), None);
        assert_eq!(code_of("damaged", "/usr/bin/stormlog"), None);
    }

    #[test]
    fn used_code_is_locked_up_to_the_bound() {
        let mut code = OwnCode::of_now();
        assert!(!code.mappings.is_empty());
        code.lock_used(0);
        assert_eq!(code.locked, 0);
        code.lock_used(4 << 20);
        assert!(code.locked > 0 && code.locked <= 4 << 20, "{}", code.locked);
    }
}
