//! Source text around a line, read on demand. Files are named by the recorded program: only plain files of a sane
//! size are opened, and their text is made harmless.

use std::io::Read;
use std::path::{Path, PathBuf};

use stormlog_model::stacks::{Frame, FrameKind};

use crate::text::clean;

/// Largest file that is read.
const MOST_BYTES: u64 = 16 << 20;
/// Lines kept on each side: more than any screen shows.
const AROUND: u32 = 200;

/// Lines around one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) title: String,
    pub(crate) line: u32,
    /// Number and text, or why there are none.
    pub(crate) lines: Result<Vec<(u32, String)>, String>,
}

/// Keeps the excerpt that was asked for last.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    last: Option<(Frame, Excerpt)>,
}

impl Sources {
    pub(crate) fn excerpt(&mut self, frame: Option<&Frame>) -> &Excerpt {
        let none =
            || Frame { function: String::new(), file: String::new(), line: 0, kind: FrameKind::Remark };
        let wanted = frame.cloned().unwrap_or_else(none);
        let kept = self.last.take().filter(|(frame, _)| *frame == wanted);
        let (_, excerpt) = self.last.insert(kept.unwrap_or_else(|| {
            let excerpt = excerpt(&wanted);
            (wanted, excerpt)
        }));
        excerpt
    }
}

/// Reads the lines around the line of a frame.
pub(crate) fn excerpt(frame: &Frame) -> Excerpt {
    let excerpt = |lines| Excerpt { title: clean(&frame.place()).into_owned(), line: frame.line, lines };
    if frame.file.is_empty() || frame.line == 0 || frame.file.starts_with('<') {
        return excerpt(Err("the source of this row is unknown".to_owned()));
    }
    excerpt(lines_of(&PathBuf::from(&frame.file), frame.line))
}

fn lines_of(path: &Path, line: u32) -> Result<Vec<(u32, String)>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let file = stormlog_files::open_regular(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.len() > MOST_BYTES {
        return Err("not a source file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(cannot)?;
    let text = String::from_utf8_lossy(&bytes);
    let first = line.saturating_sub(AROUND).max(1);
    let number = |(at, text): (usize, &str)| {
        (u32::try_from(at + 1).unwrap_or(u32::MAX), clean(&text.replace('\t', "    ")).into_owned())
    };
    let skipped = first as usize - 1;
    let lines: Vec<(u32, String)> =
        text.lines().enumerate().skip(skipped).take(2 * AROUND as usize + 1).map(number).collect();
    if lines.iter().any(|(number, _)| *number == line) {
        Ok(lines)
    } else {
        Err(format!("has no line {line}: the file has changed since"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frame;

    #[test]
    fn source_is_read_on_demand_and_made_harmless() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.py");
        std::fs::write(&path, "first\n\tsecond \x1b[2J\nthird\n").unwrap();
        let name = path.to_str().unwrap();
        let mut sources = Sources::default();
        let lines = sources.excerpt(Some(&frame("f", name, 2))).lines.clone().unwrap();
        assert_eq!(lines[1], (2, "    second ␛[2J".to_owned()));
        assert_eq!(lines.len(), 3);
        let gone = sources.excerpt(Some(&frame("f", name, 9))).lines.clone().unwrap_err();
        assert_eq!(gone, "has no line 9: the file has changed since");
        for wrong in ["", "<string>", "/dev/zero", directory.path().to_str().unwrap(), "/nowhere/x.py"] {
            assert!(sources.excerpt(Some(&frame("f", wrong, 1))).lines.is_err(), "{wrong}");
        }
        assert!(sources.excerpt(None).lines.is_err());
    }
}
