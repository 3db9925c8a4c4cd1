//! The first view: the machine, its GPUs, and everything that is recorded on it.

use ratatui::Frame;
use ratatui::layout::Rect;

use super::view::{KeyOutcome, View};
use super::{Subject, ViewName};
use crate::error::TuiError;
use crate::read::{Poller, SharedFleet};
use crate::state::entry::Entry;
use crate::state::key::{Button, Key, Mouse};
use crate::state::overview::{OverviewState, SortBy};
use crate::view::overview::draw;
use crate::view::table::{Drawn, Hit};
use crate::view::theme::Theme;

/// Rows that a turn of the wheel moves.
const WHEEL: usize = 3;

/// The view.
pub(crate) struct OverviewView {
    /// `None` where no thread could be started.
    poller: Option<Poller<(), stormlog_node::Overview>>,
    state: OverviewState,
    drawn: Drawn<SortBy>,
}

impl OverviewView {
    pub(crate) fn new(fleet: &SharedFleet) -> Self {
        OverviewView {
            poller: fleet.overview().ok(),
            state: OverviewState::default(),
            drawn: Drawn::default(),
        }
    }

    fn open_chosen(&self) -> KeyOutcome {
        match self.state.chosen() {
            Some(item) => {
                let subject =
                    Subject { path: Some(item.path().to_owned()), pid: item.pid(), ..Subject::default() };
                KeyOutcome::Open(ViewName::Process, subject)
            }
            None => KeyOutcome::Used,
        }
    }
}

impl View for OverviewView {
    fn key(&mut self, key: Key) -> KeyOutcome {
        if key == Key::Enter && !self.state.filter.is_open {
            return self.open_chosen();
        }
        if self.state.key(key) { KeyOutcome::Used } else { KeyOutcome::Unused }
    }

    fn mouse(&mut self, mouse: Mouse) -> KeyOutcome {
        let at = self.state.cursor.at;
        match mouse.button {
            Button::WheelUp => self.state.choose(at.saturating_sub(WHEEL)),
            Button::WheelDown => self.state.choose(at.saturating_add(WHEEL)),
            Button::Press => match self.drawn.hit(mouse.column, mouse.row) {
                Some(Hit::Header(sort)) => self.state.sort_by(sort),
                Some(Hit::Row(row)) if row == at => return self.open_chosen(),
                Some(Hit::Row(row)) => self.state.choose(row),
                None => {}
            },
            Button::Drag | Button::Release => return KeyOutcome::Unused,
        }
        KeyOutcome::Used
    }

    fn news(&mut self, is_paused: bool) -> Result<bool, TuiError> {
        let poller = self.poller.as_ref().ok_or(TuiError::ReaderGone)?;
        if is_paused && self.state.overview.is_some() {
            return Ok(false);
        }
        let Some(overview) = poller.news()? else { return Ok(false) };
        self.state.take(overview);
        Ok(true)
    }

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        self.drawn = draw(frame, area, &mut self.state, theme);
    }

    fn keys(&self) -> Vec<(&'static str, &'static str)> {
        vec![("Enter", "open"), ("/", "filter"), ("s", "sort")]
    }

    fn help(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("click", "select; click again to open; click a column head to sort"),
            ("Esc", "remove the filter"),
        ]
    }

    fn entry(&self) -> Option<&Entry> {
        Some(&self.state.filter)
    }

    fn set_shown(&mut self, is_shown: bool) {
        if let Some(poller) = &mut self.poller {
            poller.set_shown(is_shown);
        }
    }
}
