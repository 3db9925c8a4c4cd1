//! What is printed while watching: whole lines anywhere, and on a terminal one line that is kept up to date.
//!
//! A reader that went away is noticed once and never written to again.

use std::io::{self, IsTerminal, Write};

/// Standard output of a watch.
pub(crate) struct Screen {
    is_silent: bool,
    is_terminal: bool,
    has_live_line: bool,
    is_gone: bool,
}

impl Screen {
    /// `is_silent`: nothing is printed until the answer.
    pub(crate) fn new(is_silent: bool) -> Self {
        Screen { is_silent, is_terminal: io::stdout().is_terminal(), has_live_line: false, is_gone: false }
    }

    /// Whether lines can be kept up to date.
    pub(crate) fn is_live(&self) -> bool {
        self.is_terminal && !self.is_silent
    }

    /// Whether the reader went away.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// One line.
    pub(crate) fn line(&mut self, text: &str) {
        if self.is_silent {
            return;
        }
        let clear = if std::mem::take(&mut self.has_live_line) { "\r\x1b[K" } else { "" };
        self.write(&format!("{clear}{text}\n"));
    }

    /// Replaces the live line. Too long for the terminal, it would be left standing: it is cut.
    pub(crate) fn live(&mut self, text: &str) {
        let width = terminal_width();
        let shown: String = text.chars().take(width.saturating_sub(1)).collect();
        self.has_live_line = true;
        self.write(&format!("\r\x1b[K{shown}"));
    }

    /// Leaves the live line standing and goes below it.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.has_live_line) {
            self.write("\n");
        }
    }

    /// The answer of a silent screen.
    pub(crate) fn answer(&mut self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    fn write(&mut self, text: &str) {
        if self.is_gone {
            return;
        }
        let mut out = io::stdout().lock();
        self.is_gone = out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err();
    }
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col).max(20))
}
