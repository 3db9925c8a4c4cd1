//! Births: whether there can be new processes at all, and those of the program whose parents died before anyone saw them,
//! by a double fork between two looks.
//!
//! The kernel gives an orphan to init or to an ancestor that asked for orphans, so it is looked for among the children of
//! ours, and known by the run's mark in its environment. Making the supervisor the reaper of orphans would find them too,
//! but a daemon would then see our number where it expects 1 (`getppid() == 1` is how many daemons detect that their parent died),
//! and the program must not see a difference. Must cost next to nothing while no process is born, and little while others
//! are: a machine that compiles has a thousand births a second.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use stormlog_collect::process::ProcessReader;

/// The mark is among the first of a large environment or is not looked for.
const ENVIRONMENT: u64 = 1 << 18;
/// Init, the parent of orphans without a subreaper.
const INIT: u32 = 1;
/// Most ancestors that are followed: bounds the walk if `/proc` is inconsistent.
const MOST_ANCESTORS: usize = 64;
/// The kernel gives a list of children in pieces of a page.
const PIECE: usize = 4096;

/// Looks at processes born since the last time.
pub(crate) struct Orphans {
    mark: Vec<u8>,
    loadavg: Option<File>,
    last: Option<u32>,
    search: OrphanSearch,
    /// What was there at the last look.
    seen: BTreeSet<u32>,
    /// Those that could not be read yet: a process number is assigned shortly before the process can be read.
    again: Vec<u32>,
    /// The last look found births; a process it could not read yet is readable at the next.
    is_late: bool,
}

/// Where an orphan can be.
enum OrphanSearch {
    /// Among the children of the processes that adopt orphans. The kernel lists children by thread; orphans go to the first thread.
    ChildrenOf(Vec<File>),
    /// This kernel lists no children, or not those of init.
    Anywhere,
}

impl Orphans {
    /// Watches for processes with `name=value` in their environment, the mark of this run. Must be called before the program starts: the processes that
    /// exist now are taken for those of others.
    pub(crate) fn marked(name: &str, value: &Path) -> Self {
        let mut mark = name.as_bytes().to_vec();
        mark.push(b'=');
        mark.extend_from_slice(value.as_os_str().as_encoded_bytes());
        let loadavg = File::open("/proc/loadavg").ok();
        let last = newest_number(loadavg.as_ref());
        let mut search = OrphanSearch::of_orphans();
        let seen = search.numbers();
        Orphans { mark, loadavg, last, search, seen, again: Vec::new(), is_late: false }
    }

    /// Whether any process or thread was born on this machine since the last look, or could have been seen too early
    /// then. Without births there is nothing to look for, and this is one system call.
    pub(crate) fn are_possible(&self) -> bool {
        self.is_late || self.last.is_none() || newest_number(self.loadavg.as_ref()) != self.last
    }

    /// The numbers of marked processes that are new since the last look and not `known`.
    pub(crate) fn look(&mut self, known: impl Fn(u32) -> bool) -> Vec<u32> {
        let newest = newest_number(self.loadavg.as_ref());
        self.is_late = newest != self.last;
        self.last = newest;
        let now = self.search.numbers();
        let mut found = Vec::new();
        for pid in std::mem::take(&mut self.again) {
            if !known(pid) && self.is_marked(pid) == Some(true) {
                found.push(pid);
            }
        }
        for pid in now.difference(&self.seen).copied().filter(|pid| !known(*pid)) {
            match self.is_marked(pid) {
                Some(true) => found.push(pid),
                Some(false) => {}
                None => self.again.push(pid),
            }
        }
        self.seen = now;
        found
    }

    /// `None` when there is nothing to read: in the middle of an exec, or gone.
    fn is_marked(&self, pid: u32) -> Option<bool> {
        let mut text = Vec::with_capacity(PIECE);
        File::open(format!("/proc/{pid}/environ")).ok()?.take(ENVIRONMENT).read_to_end(&mut text).ok()?;
        if text.is_empty() {
            return None;
        }
        Some(text.split(|byte| *byte == 0).any(|entry| entry == self.mark))
    }
}

impl OrphanSearch {
    /// Of this process's orphaned descendants: init of its namespace, and every ancestor, for each may have asked.
    fn of_orphans() -> Self {
        let Ok(init) = children_file(INIT) else { return OrphanSearch::Anywhere };
        let ancestors = ancestors(std::process::id()).into_iter().filter(|pid| *pid != INIT);
        let files = ancestors.filter_map(|pid| children_file(pid).ok());
        OrphanSearch::ChildrenOf(std::iter::once(init).chain(files).collect())
    }

    /// The processes that exist now.
    fn numbers(&mut self) -> BTreeSet<u32> {
        match self {
            OrphanSearch::ChildrenOf(files) => {
                let mut numbers = BTreeSet::new();
                // An ancestor that ended gets no orphans any more.
                files.retain(|file| read_numbers(file, &mut numbers).is_ok());
                numbers
            }
            OrphanSearch::Anywhere => {
                let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeSet::new() };
                entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
            }
        }
    }
}

fn children_file(pid: u32) -> std::io::Result<File> {
    File::open(format!("/proc/{pid}/task/{pid}/children"))
}

/// Parents, their parents and so on, as far as this namespace shows them.
fn ancestors(pid: u32) -> Vec<u32> {
    let mut above = Vec::new();
    let mut next = pid;
    while let Ok(stat) = ProcessReader::open(next).and_then(|mut reader| reader.stat())
        && stat.ppid != 0
        && above.len() < MOST_ANCESTORS
    {
        next = stat.ppid;
        above.push(next);
    }
    above
}

/// All numbers in the file, which may come in several pieces.
fn read_numbers(file: &File, numbers: &mut BTreeSet<u32>) -> std::io::Result<()> {
    let mut text = Vec::new();
    let mut piece = [0; PIECE];
    loop {
        let length = file.read_at(&mut piece, text.len() as u64)?;
        if length == 0 {
            break;
        }
        text.extend_from_slice(&piece[..length]);
    }
    let words = text.split(|byte| byte.is_ascii_whitespace());
    numbers.extend(words.filter_map(|word| std::str::from_utf8(word).ok()?.parse::<u32>().ok()));
    Ok(())
}

/// The last number the kernel gave to a process or thread: the last word of `/proc/loadavg`.
fn newest_number(loadavg: Option<&File>) -> Option<u32> {
    let mut text = [0; 128];
    let length = loadavg?.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn sleeps(name: &str, value: &str) -> Child {
        Command::new("sleep").arg("60").env(name, value).spawn().unwrap()
    }

    fn ends(mut child: Child) -> u32 {
        child.kill().unwrap();
        child.wait().unwrap();
        child.id()
    }

    /// Our own children are never orphans, so any process is searched.
    fn anywhere(name: &str) -> Orphans {
        let mut orphans = Orphans::marked(name, Path::new("/some/run"));
        orphans.search = OrphanSearch::Anywhere;
        orphans.seen = orphans.search.numbers();
        orphans
    }

    #[test]
    fn a_marked_process_is_found_and_others_are_not() {
        let mut orphans = anywhere("STORMLOG_TEST_MARK");
        let marked = sleeps("STORMLOG_TEST_MARK", "/some/run");
        assert!(orphans.are_possible());
        let other = sleeps("STORMLOG_TEST_MARK", "/some/run2");
        let mut found = orphans.look(|_| false);
        found.extend(orphans.look(|_| false));
        ends(other);
        assert_eq!(found, [ends(marked)]);
    }

    #[test]
    fn known_orphan_is_not_reported_again() {
        let mut orphans = anywhere("STORMLOG_TEST_MARK_2");
        let child = sleeps("STORMLOG_TEST_MARK_2", "/some/run");
        assert!(orphans.look(|pid| pid == child.id()).is_empty());
        assert!(orphans.look(|_| false).is_empty());
        ends(child);
    }

    #[test]
    fn an_orphan_is_found_where_the_kernel_puts_it() {
        let mut orphans = Orphans::marked("STORMLOG_TEST_MARK_3", Path::new("/some/run"));
        assert!(matches!(orphans.search, OrphanSearch::ChildrenOf(_)), "this kernel lists children");
        let script = "sleep 60 > /dev/null 2>&1 & echo $!";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("STORMLOG_TEST_MARK_3", "/some/run").stdout(Stdio::piped());
        let said = shell.output().unwrap().stdout;
        let pid: u32 = String::from_utf8(said).unwrap().trim().parse().unwrap();
        let mut found = orphans.look(|_| false);
        found.extend(orphans.look(|_| false));
        Command::new("kill").arg(pid.to_string()).status().unwrap();
        assert_eq!(found, [pid]);
    }

    #[test]
    fn a_list_of_more_than_one_piece_is_read_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("children");
        let list: String = (1..=3000).map(|number| format!("{number} ")).collect();
        std::fs::write(&path, list).unwrap();
        let mut numbers = BTreeSet::new();
        read_numbers(&File::open(path).unwrap(), &mut numbers).unwrap();
        assert_eq!(numbers, (1..=3000).collect());
    }
}
