//! Births: whether there can be new processes at all, and those of the program whose parents died before anyone saw them,
//! by a double fork between two looks.
//!
//! They carry the run's mark in their environment. Making the supervisor the reaper of orphans would find them too, but a
//! daemon would then see our number where it expects 1 (`getppid() == 1` is how many tell that their parent died), and
//! the program must not see a difference. Must cost next to nothing while no process is born.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// More numbers than this between two looks: the list of processes is shorter.
const MOST_NUMBERS: u32 = 2048;
/// The mark stands among the first of a large environment or is not looked for.
const ENVIRONMENT: u64 = 1 << 18;

/// Looks at processes born since the last time.
pub(crate) struct Orphans {
    mark: Vec<u8>,
    loadavg: Option<File>,
    last: Option<u32>,
    /// Numbers that were handed out but could not be read yet: a process is a moment older than its number.
    again: Vec<u32>,
    /// The last look found births; what it came too early for is there at the next.
    is_late: bool,
}

impl Orphans {
    /// Of the run whose processes carry `name=value`.
    pub(crate) fn marked(name: &str, value: &Path) -> Self {
        let mut mark = name.as_bytes().to_vec();
        mark.push(b'=');
        mark.extend_from_slice(value.as_os_str().as_encoded_bytes());
        let loadavg = File::open("/proc/loadavg").ok();
        let last = newest_number(loadavg.as_ref());
        Orphans { mark, loadavg, last, again: Vec::new(), is_late: false }
    }

    /// Whether any process or thread was born on this machine since the last look, or could have been seen too early
    /// then. Without births there is nothing to look for, and this is one system call.
    pub(crate) fn are_possible(&self) -> bool {
        self.is_late || self.last.is_none() || newest_number(self.loadavg.as_ref()) != self.last
    }

    /// The numbers of marked processes that are new since the last look and not `known`.
    pub(crate) fn look(&mut self, known: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut candidates = std::mem::take(&mut self.again);
        let repeated = candidates.len();
        let newest = newest_number(self.loadavg.as_ref());
        self.is_late = newest != self.last;
        match (self.last, newest) {
            (Some(last), Some(now)) if last == now => {}
            (Some(last), Some(now)) if last < now && now - last <= MOST_NUMBERS => {
                candidates.extend(last + 1..=now);
                self.last = Some(now);
            }
            (_, now) => {
                candidates.extend(all_numbers());
                self.last = now;
            }
        }
        let mut found = Vec::new();
        for (position, pid) in candidates.into_iter().enumerate() {
            if known(pid) {
                continue;
            }
            match self.is_marked(pid) {
                Some(true) => found.push(pid),
                Some(false) => {}
                None if position >= repeated => self.again.push(pid),
                None => {}
            }
        }
        found
    }

    /// `None` when there is nothing to read: not yet born, in the middle of an exec, or gone.
    fn is_marked(&self, pid: u32) -> Option<bool> {
        let mut text = Vec::new();
        File::open(format!("/proc/{pid}/environ")).ok()?.take(ENVIRONMENT).read_to_end(&mut text).ok()?;
        if text.is_empty() {
            return None;
        }
        let has_mark = text.split(|byte| *byte == 0).any(|entry| entry == self.mark);
        Some(has_mark && is_process(pid))
    }
}

/// A thread's number opens the files of its process.
fn is_process(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    group.and_then(|group| group.trim().parse().ok()) == Some(pid)
}

/// The last number the kernel gave to a process or thread: the last word of `/proc/loadavg`.
fn newest_number(loadavg: Option<&File>) -> Option<u32> {
    let mut text = [0; 128];
    let length = loadavg?.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.split_whitespace().last()?.parse().ok()
}

fn all_numbers() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_marked_process_is_found_and_others_are_not() {
        let mut orphans = Orphans::marked("STORMLOG_TEST_MARK", Path::new("/some/run"));
        let start =
            |value: &str| Command::new("sleep").arg("60").env("STORMLOG_TEST_MARK", value).spawn().unwrap();
        let mut marked = start("/some/run");
        assert!(orphans.are_possible());
        let mut other = start("/some/run2");
        let mut found = orphans.look(|_| false);
        found.extend(orphans.look(|_| false));
        for child in [&mut marked, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found, [marked.id()]);
    }

    #[test]
    fn a_known_one_is_not_told_again_and_a_lost_place_is_found_by_the_list() {
        let mut orphans = Orphans::marked("STORMLOG_TEST_MARK_2", Path::new("/some/run"));
        let mut child =
            Command::new("sleep").arg("60").env("STORMLOG_TEST_MARK_2", "/some/run").spawn().unwrap();
        assert!(orphans.look(|pid| pid == child.id()).is_empty());
        orphans.last = Some(u32::MAX);
        let found = orphans.look(|_| false);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id()]);
    }
}
