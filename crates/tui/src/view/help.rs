//! What the keys do.

use ratatui::Frame;
use ratatui::text::{Line, Span};

use crate::view::frame::popup;
use crate::view::theme::Theme;

/// Keys of the call tree.
pub(crate) const TREE: &[(&str, &str)] = &[
    ("↑ ↓  k j", "one row up or down; PgUp PgDn Home End too"),
    ("→  l", "expand a row, and the chain of single children below it"),
    ("←", "close a row, or go to its caller"),
    ("Enter Space", "open or close"),
    ("e  c", "open everything below; close everything"),
    ("h", "hide import frames; library frames too; nothing"),
    ("o", "largest first by bytes or by count"),
    ("s", "source of the chosen line"),
    ("/  n  N", "search; next and previous match"),
    ("q  Esc", "leave"),
];

/// Keys of the live view.
pub(crate) const LIVE: &[(&str, &str)] = &[
    ("↑ ↓  k j", "one line up or down; PgUp PgDn Home End too"),
    ("o  t  a", "order by own bytes, total bytes, allocations"),
    ("/", "show only lines that contain a text; Esc ends it"),
    ("<  >", "one thread at a time, or all"),
    ("m", "the memory of the host or of each GPU"),
    ("p  Tab", "choose a process; go to the next"),
    ("Space", "pause and continue"),
    ("Enter  s", "source of the chosen line"),
    ("q  Esc", "quit; the program continues"),
];

/// Draws the keys over the screen.
pub(crate) fn draw(frame: &mut Frame<'_>, keys: &[(&'static str, &'static str)], theme: &Theme) {
    let row = |(key, does): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!(" {key:<12}"), theme.key()), Span::raw(*does)])
    };
    popup(frame, "keys", keys.iter().map(row).collect());
}
