//! View 4: the allocators of PyTorch, TensorFlow and JAX.

use std::path::PathBuf;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;

use super::Subject;
use super::view::{KeyOutcome, View};
use crate::error::TuiError;
use crate::read::Poller;
use crate::read::frameworks::{FrameworksAsk, FrameworksLook, FrameworksReader};
use crate::state::entry::Entry;
use crate::state::frameworks::{FrameworksState, Order, Pane, Step};
use crate::state::key::{Button, Key, Mouse};
use crate::view::frameworks::draw;
use crate::view::listing::Headers;
use crate::view::theme::Theme;

const EVERY: Duration = Duration::from_secs(2);

/// The view.
pub(crate) struct FrameworksView {
    state: FrameworksState,
    /// Started when the view is shown first.
    poller: Option<Poller<FrameworksAsk, FrameworksLook>>,
    /// Where the list was drawn last.
    headers: Headers,
    list: Rect,
}

impl FrameworksView {
    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        let state = FrameworksState::new(roots);
        FrameworksView { state, poller: None, headers: Headers::new(), list: Rect::default() }
    }

    fn follow(&mut self, step: Step) -> KeyOutcome {
        if let Some(poller) = &mut self.poller {
            poller.ask(self.state.ask());
        }
        match step {
            Step::Unused => KeyOutcome::Unused,
            Step::Used => KeyOutcome::Used,
            Step::Copy(text) => KeyOutcome::Copy(text),
            Step::Say(text) => KeyOutcome::Say(text.to_owned()),
        }
    }
}

impl View for FrameworksView {
    fn key(&mut self, key: Key) -> KeyOutcome {
        let step = self.state.key(key);
        self.follow(step)
    }

    fn mouse(&mut self, mouse: Mouse) -> KeyOutcome {
        let is_page = self.state.pane != Pane::List;
        match mouse.button {
            Button::WheelUp | Button::WheelDown if is_page => {
                self.state.page.wheel(mouse.button == Button::WheelDown);
            }
            Button::WheelUp => return self.key(Key::Up),
            Button::WheelDown => return self.key(Key::Down),
            Button::Press if !is_page && self.list.contains((mouse.column, mouse.row).into()) => {
                match mouse.row.checked_sub(self.list.y + 1) {
                    Some(line) => self.state.click(usize::from(line)),
                    None => {
                        let hit =
                            self.headers.iter().find(|(_, from, to)| (*from..*to).contains(&mouse.column));
                        if let Some((column, ..)) = hit {
                            self.state.sort(Order::ALL[*column]);
                        }
                    }
                }
            }
            _ => return KeyOutcome::Unused,
        }
        self.follow(Step::Used)
    }

    fn news(&mut self, is_paused: bool) -> Result<bool, TuiError> {
        let Some(poller) = &mut self.poller else { return Ok(false) };
        // What a key asked for comes also while paused.
        let is_wanted = self.state.chosen().is_some() && self.state.detail().is_none();
        if is_paused && self.state.is_read && !is_wanted && self.state.pane != Pane::Replay {
            return Ok(false);
        }
        let Some(look) = poller.news()? else { return Ok(false) };
        self.state.take(look);
        poller.ask(self.state.ask());
        Ok(true)
    }

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        (self.headers, self.list) = draw(frame, area, &mut self.state, theme);
    }

    fn keys(&self) -> Vec<(&'static str, &'static str)> {
        match self.state.pane {
            Pane::List => vec![
                ("Enter", "page"),
                ("r", "replay"),
                ("/", "filter"),
                ("s", "sort"),
                ("y", "copy command"),
            ],
            Pane::Page => vec![("Esc", "close"), ("r", "replay"), ("y", "copy command")],
            Pane::Replay => vec![("Esc", "close"), ("y", "copy command")],
        }
    }

    fn help(&self) -> Vec<(&'static str, &'static str)> {
        vec![("a", "all sources, not only those of the run that was opened")]
    }

    fn entry(&self) -> Option<&Entry> {
        Some(&self.state.filter)
    }

    fn set_shown(&mut self, is_shown: bool) {
        if self.poller.is_none() && is_shown {
            let mut reader = FrameworksReader::default();
            let look = move |ask: &FrameworksAsk| reader.look(ask);
            self.poller = Poller::start("frameworks", EVERY, self.state.ask(), look).ok();
        }
        if let Some(poller) = &mut self.poller {
            poller.set_shown(is_shown);
        }
    }

    fn open(&mut self, subject: &Subject) {
        if let Some(path) = &subject.path {
            self.state.open(path);
            self.follow(Step::Used);
        }
    }
}
