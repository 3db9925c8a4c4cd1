//! A text that is longer than the screen: lines, and which is the first one shown.

use crate::state::key::Key;
use crate::text::{clean, width};

/// Lines kept of a text; longer ones are cut with a remark.
const MOST_LINES: usize = 10_000;
/// A wheel's step.
const STEP: usize = 3;

/// A text with a title.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) title: String,
    lines: Vec<String>,
    top: usize,
    /// The end was requested: a text that grows is shown at its end, until another key scrolls.
    is_at_end: bool,
    /// Lines on screen and lines in all when last drawn.
    drawn: (usize, usize),
}

impl Page {
    pub(crate) fn new(title: &str, text: &str) -> Self {
        let mut page = Page { title: clean(title).into_owned(), ..Page::default() };
        page.set(text);
        page
    }

    /// Another text at the same place, as of a job that prints.
    pub(crate) fn set(&mut self, text: &str) {
        self.lines = text.lines().take(MOST_LINES).map(|line| clean(line).into_owned()).collect();
        if text.lines().nth(MOST_LINES).is_some() {
            self.lines.push("… (cut here)".to_owned());
        }
    }

    /// Scrolls; false when the key is none that does.
    pub(crate) fn key(&mut self, key: Key) -> bool {
        let page = self.drawn.0.max(2) - 1;
        self.top = match key {
            Key::Up | Key::Letter('k') => self.top.saturating_sub(1),
            Key::Down | Key::Letter('j') => self.top.saturating_add(1),
            Key::PageUp => self.top.saturating_sub(page),
            Key::PageDown => self.top.saturating_add(page),
            Key::Home | Key::Letter('g') => 0,
            Key::End | Key::Letter('G') => usize::MAX,
            _ => return false,
        }
        .min(self.last_top());
        self.is_at_end = matches!(key, Key::End | Key::Letter('G'));
        true
    }

    pub(crate) fn wheel(&mut self, is_down: bool) {
        let step = if is_down { Key::Down } else { Key::Up };
        for _ in 0..STEP {
            self.key(step);
        }
    }

    fn last_top(&self) -> usize {
        self.drawn.1.saturating_sub(self.drawn.0)
    }

    /// The lines to show, broken to this many columns; a broken line continues under the text of its first part. Also how many are above and below.
    pub(crate) fn window(&mut self, columns: usize, height: usize) -> (Vec<String>, usize, usize) {
        let broken: Vec<String> = self.lines.iter().flat_map(|line| broken(line, columns)).collect();
        self.drawn = (height, broken.len());
        self.top = if self.is_at_end { self.last_top() } else { self.top.min(self.last_top()) };
        let shown: Vec<String> = broken.iter().skip(self.top).take(height).cloned().collect();
        let below = broken.len() - self.top - shown.len();
        (shown, self.top, below)
    }
}

/// A line in parts of at most this many columns, between words where there are some.
fn broken(line: &str, columns: usize) -> Vec<String> {
    if width(line) <= columns || columns < 8 {
        return vec![line.to_owned()];
    }
    // Under the text that follows a label such as `  try       …`.
    let indent = line.len() - line.trim_start().len();
    let label = line[indent..].find("  ").map(|at| indent + at);
    let after = label.map(|at| at + line[at..].len() - line[at..].trim_start().len());
    let hang = after.filter(|at| *at <= columns / 2).unwrap_or(indent.min(columns / 2));
    let mut parts = Vec::new();
    let mut part = String::new();
    for word in line.split_inclusive(' ') {
        // A word that fits no line is broken where it is.
        let fits_below = hang + width(word.trim_end()) <= columns;
        if !part.trim().is_empty() && fits_below && width(&part) + width(word.trim_end()) > columns {
            parts.push(std::mem::take(&mut part).trim_end().to_owned());
            part = " ".repeat(hang);
        }
        for letter in word.chars() {
            if width(&part) + width(letter.encode_utf8(&mut [0; 4])) > columns {
                parts.push(std::mem::take(&mut part).trim_end().to_owned());
                part = " ".repeat(hang);
            }
            part.push(letter);
        }
    }
    parts.push(part.trim_end().to_owned());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_wraps_under_its_text() {
        let mut page = Page::new(
            "a page",
            "  try       use a smaller batch, or release the list before the next step\nend",
        );
        let (lines, above, below) = page.window(40, 10);
        assert_eq!(
            lines,
            [
                "  try       use a smaller batch, or",
                "            release the list before the",
                "            next step",
                "end"
            ]
        );
        assert_eq!((above, below), (0, 0));
        assert_eq!(page.window(5, 10).0.len(), 2, "no room is no panic");
    }

    #[test]
    fn long_path_begins_beside_its_label() {
        let mut page = Page::new("a page", "  bundle    /runs/2026-11-16T16-13-23Z-leak/oom_dump_1, here");
        assert_eq!(
            page.window(40, 10).0,
            ["  bundle    /runs/2026-11-16T16-13-23Z-l", "            eak/oom_dump_1, here"]
        );
    }

    #[test]
    fn keys_scroll_within_the_text_and_control_characters_are_shown() {
        let text: String = (0..50).map(|number| format!("line {number} \x1b[2J\n")).collect();
        let mut page = Page::new("title", &text);
        page.window(80, 10);
        page.key(Key::End);
        let (lines, above, below) = page.window(80, 10);
        assert_eq!((lines[0].as_str(), above, below), ("line 40 ␛[2J", 40, 0));
        page.key(Key::PageUp);
        assert_eq!(page.window(80, 10).1, 31);
        page.wheel(false);
        assert_eq!(page.window(80, 10).1, 28);
        assert!(!page.key(Key::Enter));
    }

    #[test]
    fn end_of_a_text_that_grows_is_followed_until_another_key_scrolls() {
        let lines = |count: usize| "line\n".repeat(count);
        let mut page = Page::new("title", &lines(5));
        page.window(80, 10);
        page.key(Key::Letter('G'));
        page.set(&lines(50));
        assert_eq!((page.window(80, 10).1, page.window(80, 10).2), (40, 0));
        page.key(Key::Up);
        page.set(&lines(60));
        assert_eq!(page.window(80, 10).1, 39);
    }
}
