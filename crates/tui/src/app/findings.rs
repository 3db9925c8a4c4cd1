//! View 5: what is wrong with the recordings, the newest first.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use stormlog_postmortem::bundle::BundleName;

use super::view::{KeyOutcome, View};
use super::{Subject, ViewName};
use crate::error::TuiError;
use crate::read::Poller;
use crate::read::findings::{FindingsAsk, FindingsReader};
use crate::state::entry::Entry;
use crate::state::findings::{FindingSort, FindingsAction, FindingsLook, FindingsState};
use crate::state::key::{Button, Key, Mouse};
use crate::view::findings::draw;
use crate::view::listing::Headers;
use crate::view::theme::Theme;

/// Between two looks once everything is judged.
const EVERY: Duration = Duration::from_secs(5);
/// Runs that are judged without being asked, and how many more at a time.
const RUNS: usize = 50;

/// The findings.
pub(crate) struct FindingsView {
    state: FindingsState,
    poller: Result<Poller<FindingsAsk, FindingsLook>, Option<TuiError>>,
    ask: FindingsAsk,
    turn: Arc<AtomicU64>,
    /// A subject that this view itself opens elsewhere does not narrow its own list.
    is_leaving: bool,
    headers: Headers,
    list: Rect,
}

impl FindingsView {
    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        let turn = Arc::new(AtomicU64::new(0));
        let ask = FindingsAsk { subject: None, most: RUNS, turn: 0 };
        let mut reader = FindingsReader::new(roots, Arc::clone(&turn));
        let poller = Poller::start("findings", EVERY, ask.clone(), move |ask: &FindingsAsk| reader.look(ask));
        FindingsView {
            state: FindingsState::default(),
            poller: poller.map_err(Some),
            ask,
            turn,
            is_leaving: false,
            headers: Headers::new(),
            list: Rect::default(),
        }
    }

    /// Asks; a judgement in progress for another request is cancelled.
    fn ask(&mut self, subject: Option<PathBuf>, most: usize) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        self.ask = FindingsAsk { subject, most, turn };
        if let Ok(poller) = &mut self.poller {
            poller.ask(self.ask.clone());
        }
    }

    fn narrow(&mut self, subject: Option<PathBuf>) {
        if subject != self.ask.subject {
            self.state = FindingsState::about(subject.clone(), self.state.sort);
            self.ask(subject, RUNS);
        }
    }

    fn follow(&mut self, action: FindingsAction) -> KeyOutcome {
        match action {
            FindingsAction::None => return KeyOutcome::Unused,
            FindingsAction::Used => {}
            FindingsAction::Process => {
                let Some((recording, row)) = self.state.chosen() else { return KeyOutcome::Used };
                let subject = Subject { path: Some(recording.path.clone()), pid: row.pid, at_ns: row.at_ns };
                self.is_leaving = true;
                return KeyOutcome::Open(ViewName::Process, subject);
            }
            FindingsAction::All => self.narrow(None),
            FindingsAction::More => {
                let more = self.ask.most + RUNS;
                self.ask(self.ask.subject.clone(), more);
            }
        }
        KeyOutcome::Used
    }
}

impl View for FindingsView {
    fn key(&mut self, key: Key) -> KeyOutcome {
        let action = self.state.key(key);
        self.follow(action)
    }

    fn mouse(&mut self, mouse: Mouse) -> KeyOutcome {
        match (mouse.button, &mut self.state.page) {
            (Button::WheelUp | Button::WheelDown, Some(page)) => {
                page.wheel(mouse.button == Button::WheelDown)
            }
            (Button::WheelUp, None) => drop(self.state.key(Key::Up)),
            (Button::WheelDown, None) => drop(self.state.key(Key::Down)),
            (Button::Press, None) if mouse.row == self.list.y => {
                let hit = self.headers.iter().find(|(_, from, to)| (*from..*to).contains(&mouse.column));
                if let Some((column, ..)) = hit {
                    self.state.sort_by(FindingSort::ALL[*column]);
                }
            }
            (Button::Press, None) if self.list.contains((mouse.column, mouse.row).into()) => {
                let line = self.state.cursor.at_line(usize::from(mouse.row - self.list.y - 1));
                if line == self.state.cursor.at {
                    self.state.key(Key::Enter);
                } else if line < self.state.len() {
                    self.state.cursor.at = line;
                }
            }
            _ => return KeyOutcome::Unused,
        }
        KeyOutcome::Used
    }

    fn news(&mut self, is_paused: bool) -> Result<bool, TuiError> {
        let poller = match &mut self.poller {
            Ok(poller) => poller,
            Err(error) => return error.take().map_or(Ok(false), Err),
        };
        if is_paused && !self.state.is_empty_yet {
            return Ok(false);
        }
        match poller.news()? {
            // Of another question.
            Some(look) if look.subject != self.ask.subject => Ok(false),
            Some(look) => {
                self.state.take(look);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        (self.headers, self.list) = draw(frame, area, &mut self.state, theme);
    }

    fn keys(&self) -> Vec<(&'static str, &'static str)> {
        match (self.state.page.is_some(), &self.ask.subject) {
            (true, _) => vec![("Esc", "list"), ("p", "its process")],
            (false, Some(_)) => vec![
                ("Enter", "evidence"),
                ("p", "process"),
                ("a", "all runs"),
                ("/", "filter"),
                ("s", "sort"),
            ],
            (false, None) => vec![("Enter", "evidence"), ("p", "process"), ("/", "filter"), ("s", "sort")],
        }
    }

    fn help(&self) -> Vec<(&'static str, &'static str)> {
        vec![("a", "findings of all runs, not of one recording"), ("m", "analyse older runs too")]
    }

    fn entry(&self) -> Option<&Entry> {
        Some(&self.state.filter)
    }

    fn set_shown(&mut self, is_shown: bool) {
        if let Ok(poller) = &mut self.poller {
            poller.set_shown(is_shown);
        }
        // A judgement in progress is cancelled while hidden, and started again.
        self.ask(self.ask.subject.clone(), self.ask.most);
    }

    fn open(&mut self, subject: &Subject) {
        let is_bundle = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).and_then(BundleName::parse).is_some()
        };
        if std::mem::take(&mut self.is_leaving) {
            return;
        }
        // A bundle is shown by Crashes; its findings are those of its run.
        if let Some(path) = subject.path.clone().filter(|path| !is_bundle(path)) {
            self.narrow(Some(path));
        }
    }
}
