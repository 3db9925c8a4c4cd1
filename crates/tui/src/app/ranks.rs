//! The third view: the ranks of a job, living or ended, however many run directories it has.

use ratatui::Frame;
use ratatui::layout::Rect;

use super::view::{KeyOutcome, View};
use super::{Subject, ViewName};
use crate::error::TuiError;
use crate::read::{Poller, SharedFleet};
use crate::state::entry::Entry;
use crate::state::key::{Button, Key, Mouse};
use crate::state::ranks::{RankSort, RanksState};
use crate::view::ranks::draw;
use crate::view::table::{Drawn, Hit};
use crate::view::theme::Theme;

/// Rows that a turn of the wheel moves.
const WHEEL: usize = 3;

/// The view.
pub(crate) struct RanksView {
    /// `None` where no thread could be started.
    poller: Option<Poller<Option<String>, Vec<stormlog_node::JobRow>>>,
    state: RanksState,
    drawn: Drawn<RankSort>,
    /// A run whose job is to be shown once it is known.
    wanted: Option<std::path::PathBuf>,
}

impl RanksView {
    pub(crate) fn new(fleet: &SharedFleet) -> Self {
        RanksView {
            poller: fleet.jobs().ok(),
            state: RanksState::default(),
            drawn: Drawn::default(),
            wanted: None,
        }
    }

    fn open_chosen(&self) -> KeyOutcome {
        match self.state.chosen() {
            Some(rank) => KeyOutcome::Open(
                ViewName::Process,
                Subject { path: Some(rank.run.to_path_buf()), pid: rank.pid, ..Subject::default() },
            ),
            None => KeyOutcome::Used,
        }
    }

    /// The memory over time is read for the job that is shown.
    fn ask(&mut self) {
        let key = self.state.shown_job().map(|job| job.key.clone());
        if let Some(poller) = self.poller.as_mut().filter(|_| key.is_some()) {
            poller.ask(key);
        }
    }
}

impl View for RanksView {
    fn key(&mut self, key: Key) -> KeyOutcome {
        if key == Key::Enter && !self.state.filter.is_open && self.state.chooser.is_none() {
            return self.open_chosen();
        }
        let is_used = self.state.key(key);
        self.ask();
        if is_used { KeyOutcome::Used } else { KeyOutcome::Unused }
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
        if is_paused && self.state.jobs.is_some() {
            return Ok(false);
        }
        let Some(jobs) = poller.news()? else { return Ok(false) };
        self.state.take(jobs);
        if let Some(run) = self.wanted.take() {
            self.state.show_run(&run);
        }
        self.ask();
        Ok(true)
    }

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        self.drawn = draw(frame, area, &mut self.state, theme);
    }

    fn keys(&self) -> Vec<(&'static str, &'static str)> {
        vec![("Enter", "open"), ("[ ]", "job"), ("J", "jobs"), ("/", "filter"), ("s", "sort")]
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

    fn takes_all_keys(&self) -> bool {
        self.state.filter.is_open || self.state.chooser.is_some()
    }

    fn set_shown(&mut self, is_shown: bool) {
        if let Some(poller) = &mut self.poller {
            poller.set_shown(is_shown);
        }
    }

    fn open(&mut self, subject: &Subject) {
        if let Some(path) = &subject.path {
            self.state.show_run(path);
            self.wanted = Some(path.clone());
            self.ask();
        }
    }
}
