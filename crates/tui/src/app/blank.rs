//! A view that has nothing to show in this build.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Paragraph;

use super::view::{Turn, View};
use crate::error::TuiError;
use crate::state::key::Key;
use crate::view::theme::Theme;

/// One sentence.
pub(crate) struct Blank(pub(crate) &'static str);

impl View for Blank {
    fn key(&mut self, _key: Key) -> Turn {
        Turn::Unused
    }

    fn news(&mut self, _is_paused: bool) -> Result<bool, TuiError> {
        Ok(false)
    }

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        frame.render_widget(Paragraph::new(self.0).style(theme.faint()), area);
    }

    fn keys(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}
