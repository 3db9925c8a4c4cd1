//! What a view is to the shell.

use ratatui::Frame;
use ratatui::layout::Rect;

use crate::app::{Subject, ViewName};
use crate::error::TuiError;
use crate::state::entry::Entry;
use crate::state::key::{Key, Mouse};
use crate::view::theme::Theme;

/// What a key or a click led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyOutcome {
    /// The view has no use for it: the shell may.
    Unused,
    /// The view took it.
    Used,
    /// Another view, about this.
    Open(ViewName, Subject),
    /// A sentence for the user, shown in the footer until the next key.
    Say(String),
    /// A text for the clipboard of the terminal.
    Copy(String),
}

/// One tab. It reads in a thread of its own ([`crate::read::Poller`]): no function here may wait for a disk.
pub(crate) trait View {
    /// Takes a key. Keys that belong to the shell come only while [`View::takes_all_keys`].
    fn key(&mut self, key: Key) -> KeyOutcome;

    /// Takes a click, a drag or the wheel inside the area it was drawn in last.
    fn mouse(&mut self, _mouse: Mouse) -> KeyOutcome {
        KeyOutcome::Unused
    }

    /// Takes in what was read since; true when there is something to draw. While paused only what the user asked for is taken.
    fn news(&mut self, is_paused: bool) -> Result<bool, TuiError>;

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme);

    /// The keys of the footer, the most needed first.
    fn keys(&self) -> Vec<(&'static str, &'static str)>;

    /// More keys, for the help only.
    fn help(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// The text that is being typed, shown in the footer.
    fn entry(&self) -> Option<&Entry> {
        None
    }

    /// A text is typed, or a box asks something: digits, Tab, `?`, `q` and Space are the view's.
    fn takes_all_keys(&self) -> bool {
        self.entry().is_some_and(|entry| entry.is_open)
    }

    /// Shown or hidden from now on; a hidden view reads nothing.
    fn set_shown(&mut self, _is_shown: bool) {}

    /// Shows this from now on. Every view gets every subject: it takes those that concern it.
    fn open(&mut self, _subject: &Subject) {}
}
