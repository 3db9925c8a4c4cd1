//! What the program itself prints, where a run keeps it in a file.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use stormlog_model::layout::OUTPUT_FILE;

/// Bytes at its end that are read: more than a line on any screen.
const END: u64 = 4096;

/// The last line that says something. Of a progress bar, which writes over itself, what is there now.
pub(super) fn last_line(run: &Path) -> Option<String> {
    let mut file = stormlog_files::open_regular(&run.join(OUTPUT_FILE)).ok()?;
    let end = file.seek(SeekFrom::End(0)).ok()?;
    file.seek(SeekFrom::Start(end.saturating_sub(END))).ok()?;
    let mut bytes = Vec::new();
    file.take(END).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.rsplit(['\n', '\r']).map(without_escapes);
    lines.map(|line| line.trim().to_owned()).find(|line| !line.is_empty())
}

/// The text without what colours it or moves the cursor.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\x1b' {
            plain.push(letter);
        } else if letters.next() == Some('[') {
            // Numbers, and one letter that says what is done with them.
            while letters.next_if(|next| !('@'..='~').contains(next)).is_some() {}
            letters.next();
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_skips_blank_lines() {
        let run = tempfile::tempdir().unwrap();
        assert_eq!(last_line(run.path()), None, "not every run has one");
        let said = |text: &[u8]| {
            std::fs::write(run.path().join(OUTPUT_FILE), text).unwrap();
            last_line(run.path())
        };
        assert_eq!(said(b""), None);
        assert_eq!(said(b"one\ntwo\n\n  \n").as_deref(), Some("two"));
        assert_eq!(said(b"epoch 1\n 10%\r 20%\r 30%").as_deref(), Some("30%"));
        assert_eq!(said(b"a\x1b[1;31mred\x1b[0m b\x1b").as_deref(), Some("ared b"));
        assert_eq!(said(b"broken \xff\xfe\n").as_deref(), Some("broken \u{fffd}\u{fffd}"));
        assert_eq!(said("x".repeat(100_000).as_bytes()).map(|line| line.len()), Some(4096));
    }
}
