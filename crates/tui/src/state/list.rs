//! A cursor in a list that is longer than the screen.

use crate::state::key::Key;

/// Which row is chosen, and which is the first on screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) at: usize,
    top: usize,
    /// Rows on screen when last drawn: how far a page goes.
    page: usize,
}

impl Cursor {
    /// On this row.
    pub(crate) fn on(at: usize) -> Self {
        Cursor { at, ..Cursor::default() }
    }

    /// Moves by a key among `len` rows; false when the key is none that moves.
    pub(crate) fn key(&mut self, key: Key, len: usize) -> bool {
        let page = self.page.max(2) - 1;
        self.at = match key {
            Key::Up | Key::Letter('k') => self.at.saturating_sub(1),
            Key::Down | Key::Letter('j') => self.at.saturating_add(1),
            Key::PageUp => self.at.saturating_sub(page),
            Key::PageDown => self.at.saturating_add(page),
            Key::Home | Key::Letter('g') => 0,
            Key::End | Key::Letter('G') => usize::MAX,
            _ => return false,
        }
        .min(len.saturating_sub(1));
        true
    }

    /// The row on a line of the list as it was drawn last.
    pub(crate) fn at_line(&self, line: usize) -> usize {
        self.top + line
    }

    /// The rows to show on `height` lines: the chosen one is among them.
    pub(crate) fn window(&mut self, height: usize, len: usize) -> std::ops::Range<usize> {
        self.at = self.at.min(len.saturating_sub(1));
        self.page = height;
        let last_top = len.saturating_sub(height);
        self.top = self.top.min(self.at).max((self.at + 1).saturating_sub(height)).min(last_top);
        self.top..len.min(self.top + height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_row_is_always_on_screen() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.window(5, 100), 0..5);
        cursor.key(Key::PageDown, 100);
        assert_eq!((cursor.at, cursor.window(5, 100)), (4, 0..5));
        cursor.key(Key::Down, 100);
        assert_eq!(cursor.window(5, 100), 1..6);
        cursor.key(Key::End, 100);
        assert_eq!(cursor.window(5, 100), 95..100);
        assert_eq!(cursor.window(5, 3), 0..3);
        assert_eq!(cursor.at, 2);
        assert_eq!(cursor.window(0, 3), 3..3, "no room is no panic");
        assert_eq!(cursor.window(4, 0), 0..0);
    }
}
