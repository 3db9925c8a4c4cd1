//! The file of the termination message: at most 4,096 bytes, written in place, because in a container it is a bind mount that cannot be replaced.
//!
//! Several supervisors may share one file (a rank each), and the program may write its own text. Each text of ours ends with a line that has its kind and a
//! checksum of the rest, so a text that anything else wrote or changed is recognised. Must never overwrite such a text, never follow a link, never create the
//! file, and never wait.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use stormlog_model::scrub;
use stormlog_model::text::inert_lines;

/// Where a container runtime mounts the file.
const USUAL: &str = "/dev/termination-log";
/// Names another file; empty switches the message off.
const VARIABLE: &str = "STORMLOG_TERMINATION_LOG";
/// What a kubelet reads of it.
const MOST: usize = 4096;
/// Begins the last line of a text of ours.
const MARK: &str = "-- stormlog ";

/// What a text is about. A later one may replace an earlier one of another supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The program runs, and memory is not short.
    Start,
    /// Memory is short, or is forecast to be.
    Ahead,
    /// The program has ended.
    End,
}

impl Kind {
    const ALL: [(Kind, &str); 3] = [(Kind::Start, "start"), (Kind::Ahead, "ahead"), (Kind::End, "end")];

    fn word(self) -> &'static str {
        Kind::ALL[self as usize].1
    }

    /// The kind of a text that is ours and was not changed.
    fn of(text: &[u8]) -> Option<Kind> {
        let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let (body, mark) = text.rsplit_once('\n')?;
        let (word, checksum) = mark.strip_prefix(MARK)?.split_once(' ')?;
        let (kind, _) = Kind::ALL.into_iter().find(|(_, known)| *known == word)?;
        (checksum == format!("{:08x}", fnv(body.as_bytes()))).then_some(kind)
    }
}

/// The termination message, open for writing.
#[derive(Debug)]
pub struct TerminationLog {
    file: File,
    opened: SystemTime,
    /// What this process wrote last.
    last: Vec<u8>,
}

impl TerminationLog {
    /// The file of this container, or the one that the environment names. `None` where there is none; an error where the named one cannot be written.
    pub(crate) fn find() -> Result<Option<Self>, (PathBuf, io::Error)> {
        match std::env::var_os(VARIABLE) {
            Some(path) if path.is_empty() => Ok(None),
            Some(path) => {
                let path = PathBuf::from(path);
                Self::open(&path).map(Some).map_err(|error| (path, error))
            }
            // Without a container there is none, and what cannot be written was not asked for.
            None => Ok(Self::open(Path::new(USUAL)).ok()),
        }
    }

    #[cfg(test)]
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Self::open(path)
    }

    fn open(path: &Path) -> io::Result<Self> {
        let file = stormlog_files::open_in_place(path)?;
        Ok(TerminationLog { file, opened: SystemTime::now(), last: Vec::new() })
    }

    /// Writes these lines as the verdict on a program that has ended; whether the file has them now.
    pub fn end(&mut self, lines: &[String]) -> bool {
        self.put(Kind::End, lines)
    }

    pub(crate) fn put(&mut self, kind: Kind, lines: &[String]) -> bool {
        let text = compose(kind, lines);
        self.locked(|log| {
            let found = log.read()?;
            if !log.may_replace(&found, kind) {
                return Ok(false);
            }
            log.file.write_all_at(&text, 0)?;
            log.file.set_len(text.len() as u64)?;
            log.last = text;
            Ok(true)
        })
    }

    /// Empties the file where it has what this process wrote.
    pub(crate) fn clear(&mut self) -> bool {
        self.locked(|log| {
            let is_own = !log.last.is_empty() && log.read()? == log.last;
            if is_own {
                log.file.set_len(0)?;
            }
            Ok(is_own)
        })
    }

    /// Another supervisor may be writing at this moment; its text is as good as ours.
    fn locked(&mut self, work: impl FnOnce(&mut Self) -> io::Result<bool>) -> bool {
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return false;
        }
        let done = work(self).unwrap_or(false);
        // The kernel releases it when the file is closed.
        let _ = flock(&self.file, FlockOperation::Unlock);
        done
    }

    /// What the file has; of a text that is longer than ours can be, the beginning.
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut found = vec![0; MOST + 1];
        let mut length = 0;
        while length < found.len() {
            match self.file.read_at(&mut found[length..], length as u64)? {
                0 => break,
                more => length += more,
            }
        }
        found.truncate(length);
        Ok(found)
    }

    fn may_replace(&self, found: &[u8], kind: Kind) -> bool {
        if found.is_empty() || found == self.last {
            return true;
        }
        match Kind::of(found) {
            // The first death of several ranks is the reason for the others; one that was there before us is an earlier program's.
            Some(Kind::End) => kind > Kind::Start && self.is_older_than_us(),
            Some(there) => kind >= there,
            None => false,
        }
    }

    fn is_older_than_us(&self) -> bool {
        let modified = self.file.metadata().and_then(|there| there.modified());
        modified.is_ok_and(|modified| modified < self.opened)
    }
}

/// The bytes of a message: without secrets and control characters, and no longer than a kubelet reads.
fn compose(kind: Kind, lines: &[String]) -> Vec<u8> {
    let text: Vec<String> = lines.iter().map(|line| scrub::text(line)).collect();
    let text = text.join("\n");
    let mut body = inert_lines(&text).into_owned();
    let mark = |body: &str| format!("\n{MARK}{} {:08x}\n", kind.word(), fnv(body.as_bytes()));
    let room = MOST - mark("").len();
    if body.len() > room {
        let cut = (0..=room - '…'.len_utf8()).rev().find(|at| body.is_char_boundary(*at)).unwrap_or(0);
        body.truncate(cut);
        body.push('…');
    }
    let end = mark(&body);
    body.push_str(&end);
    body.into_bytes()
}

/// FNV-1a: recognises a text that was changed, not one that was forged.
fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use std::fs;

    fn lines(words: &str) -> Vec<String> {
        vec![words.to_owned()]
    }

    fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("termination-log");
        fs::write(&path, content).unwrap();
        (place, path)
    }

    #[test]
    fn text_of_the_program_is_kept() {
        let (_place, path) = file("");
        let mut log = TerminationLog::open(&path).unwrap();
        assert!(log.put(Kind::Ahead, &lines("ahead")));
        fs::write(&path, "checkpoint failed: no space left").unwrap();
        assert!(!log.put(Kind::End, &lines("killed")) && !log.clear());
        assert_eq!(fs::read_to_string(&path).unwrap(), "checkpoint failed: no space left");
        // One that it added to ours as well.
        fs::write(&path, "").unwrap();
        assert!(log.put(Kind::Ahead, &lines("ahead")));
        let added = fs::read_to_string(&path).unwrap() + "and the disk is full\n";
        fs::write(&path, &added).unwrap();
        assert!(!log.put(Kind::End, &lines("killed")));
        assert_eq!(fs::read_to_string(&path).unwrap(), added);
    }

    #[test]
    fn shorter_text_leaves_nothing_of_a_longer_one_and_a_good_end_leaves_nothing() {
        let (_place, path) = file("");
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
        let before = inode(&path);
        let mut log = TerminationLog::open(&path).unwrap();
        assert!(log.put(Kind::Ahead, &lines(&"é".repeat(5000))));
        let longest = fs::read(&path).unwrap();
        assert!(longest.len() <= MOST && longest.len() > MOST - 4 && Kind::of(&longest) == Some(Kind::Ahead));
        assert!(log.put(Kind::Start, &lines("short")), "our own is ours to replace");
        assert!(fs::read_to_string(&path).unwrap().starts_with("short\n-- stormlog start "));
        assert!(log.clear());
        assert_eq!((fs::read(&path).unwrap().len(), inode(&path)), (0, before), "it is the same file");
    }

    #[test]
    fn first_death_of_several_ranks_stays_and_an_earlier_programs_goes() {
        let (_place, path) = file("");
        let mut one = TerminationLog::open(&path).unwrap();
        let mut two = TerminationLog::open(&path).unwrap();
        assert!(one.put(Kind::Ahead, &lines("one is near its limit")));
        assert!(!two.put(Kind::Start, &lines("two started")));
        assert!(two.put(Kind::End, &lines("two was killed")), "a death is more than a forecast");
        assert!(!one.put(Kind::End, &lines("one failed then")) && !one.clear());
        let mut later = TerminationLog::open(&path).unwrap();
        later.opened = SystemTime::now() + std::time::Duration::from_secs(1);
        assert!(!later.put(Kind::Start, &lines("started")) && later.put(Kind::Ahead, &lines("near")));
    }

    #[test]
    fn secrets_and_control_characters_are_not_written() {
        let secret = "pip --password=hunter2secret \x1b[31mred";
        let text = String::from_utf8(compose(Kind::End, &lines(secret))).unwrap();
        assert!(!text.contains("hunter2secret") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn only_a_regular_file_that_exists_is_opened() {
        let (place, path) = file("");
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(TerminationLog::open(&link).is_err() && TerminationLog::open(place.path()).is_err());
        assert!(TerminationLog::open(&place.path().join("missing")).is_err());
        assert!(TerminationLog::open(Path::new("/dev/null")).is_err());
    }
}
