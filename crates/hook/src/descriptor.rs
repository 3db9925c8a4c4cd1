//! The descriptor of the live file: made, and reopened where the program closed it. Must never take a number that the program could get.
//!
//! A number at or above the program's limit of open files is out of its reach and does not count against the limit, which the kernel asks
//! about when a number is given out and not later. Where the limit cannot be raised for that moment no descriptor is kept: the file is opened by
//! its path whenever it grows.

use stormlog_capture::layout::{LIVE_SUFFIX, SLOTS};

use crate::options::{Options, Text};
use crate::sys::{self, Errno};

/// Most names tried when captures of that name are there already.
const MAX_ATTEMPTS: u32 = 10_000;
/// With a higher limit than this the number is just below it: the kernel's table of descriptors is as long as the highest number, and every fork
/// copies it.
const HIGHEST: u64 = 4093;
/// Numbers that are tried below the limit.
const TRIED: u64 = 64;

/// An open live file.
#[derive(Clone, Copy)]
pub struct Opened {
    pub number: i32,
    /// It may stay open: the program cannot get its number.
    pub stays: bool,
}

/// Makes a live file that was not there, beside no capture of its name. Its path, with a zero at the end, is put into `path`.
pub fn create(options: &Options, number: u32, path: &mut Text) -> Result<Opened, Errno> {
    for attempt in 0..MAX_ATTEMPTS {
        if !options.live_path(sys::process(), number, attempt, path) {
            return Err(libc::ENAMETOOLONG);
        }
        let mut finished = Text::default();
        finished.push(&path.bytes()[..path.bytes().len() - 1 - LIVE_SUFFIX.len()]);
        finished.push(&[0]);
        if let Ok(there) = sys::open(finished.bytes(), libc::O_PATH, 0) {
            sys::close(there);
            continue;
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        match out_of_reach(|| sys::open(path.bytes(), flags, 0o600)) {
            Ok(opened) => {
                if let Err(error) = sys::reserve(opened.number, 0, SLOTS) {
                    sys::close(opened.number);
                    sys::remove(path.bytes());
                    return Err(error);
                }
                return Ok(opened);
            }
            Err(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(libc::EEXIST)
}

/// Opens the live file again, if the path still leads to it.
pub fn reopen(path: &[u8], identity: (u64, u64)) -> Option<Opened> {
    let open = || sys::open(path, libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0);
    let opened = out_of_reach(open).ok()?;
    if sys::identity(opened.number) == Some(identity) {
        return Some(opened);
    }
    sys::close(opened.number);
    None
}

/// Opens something and moves it to a number out of the program's reach, or to the highest it can get.
fn out_of_reach(open: impl FnOnce() -> Result<i32, Errno>) -> Result<Opened, Errno> {
    let (soft, hard) = sys::limits(libc::RLIMIT_NOFILE);
    let wanted = soft.min(HIGHEST);
    // Both: the program may have opened as many files as it may.
    let is_raised =
        sys::set_limits(libc::RLIMIT_NOFILE, soft.saturating_add(2), hard.max(soft.saturating_add(2)));
    let opened = open().map(|low| {
        let numbers = wanted.saturating_sub(TRIED)..=wanted;
        let high = numbers.rev().find_map(|number| sys::duplicate_from(low, number as usize).ok());
        if high.is_some() {
            sys::close(low);
        }
        let number = high.unwrap_or(low);
        Opened { number, stays: number as u64 >= wanted }
    });
    if is_raised {
        sys::set_limits(libc::RLIMIT_NOFILE, soft, hard);
    }
    opened
}
