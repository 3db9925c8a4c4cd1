//! View 6: the bundles that programs left when they died, and the page of each.

use std::path::PathBuf;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use stormlog_postmortem::bundle::BundleName;

use super::view::{KeyOutcome, View};
use super::{Subject, ViewName};
use crate::error::TuiError;
use crate::read::Poller;
use crate::read::crashes::CrashesReader;
use crate::state::crashes::{CrashSort, CrashesAction, CrashesLook, CrashesState};
use crate::state::entry::Entry;
use crate::state::key::{Button, Key, Mouse};
use crate::view::crashes::draw;
use crate::view::listing::Headers;
use crate::view::theme::Theme;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(2);

/// The crashes.
pub(crate) struct CrashesView {
    state: CrashesState,
    poller: Result<Poller<Option<PathBuf>, CrashesLook>, Option<TuiError>>,
    headers: Headers,
    list: Rect,
}

impl CrashesView {
    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        let mut reader = CrashesReader::new(roots);
        let poller = Poller::start("crashes", EVERY, None, move |asked: &Option<PathBuf>| reader.look(asked));
        CrashesView {
            state: CrashesState::default(),
            poller: poller.map_err(Some),
            headers: Headers::new(),
            list: Rect::default(),
        }
    }

    fn follow(&mut self, action: CrashesAction) -> KeyOutcome {
        if let Ok(poller) = &mut self.poller {
            poller.ask(self.state.opened.clone());
        }
        match action {
            CrashesAction::None => KeyOutcome::Unused,
            CrashesAction::Used | CrashesAction::Page(_) => KeyOutcome::Used,
            CrashesAction::Export(path) => KeyOutcome::Open(ViewName::Actions, Subject::path(path)),
            CrashesAction::Process => match self.state.crash() {
                Some(crash) if crash.run.is_some() || crash.pid.is_some() => {
                    let subject = Subject { path: crash.run.clone(), pid: crash.pid, at_ns: None };
                    KeyOutcome::Open(ViewName::Process, subject)
                }
                _ => KeyOutcome::Say("only a bundle is known of this process".to_owned()),
            },
        }
    }
}

impl View for CrashesView {
    fn key(&mut self, key: Key) -> KeyOutcome {
        let action = self.state.key(key);
        self.follow(action)
    }

    fn mouse(&mut self, mouse: Mouse) -> KeyOutcome {
        let is_page = self.state.opened.is_some();
        let action = match mouse.button {
            Button::WheelUp | Button::WheelDown if is_page => {
                if let Some(page) = &mut self.state.page {
                    page.wheel(mouse.button == Button::WheelDown);
                }
                CrashesAction::Used
            }
            Button::WheelUp => self.state.key(Key::Up),
            Button::WheelDown => self.state.key(Key::Down),
            Button::Press if !is_page && mouse.row == self.list.y => {
                let hit = self.headers.iter().find(|(_, from, to)| (*from..*to).contains(&mouse.column));
                if let Some((column, ..)) = hit {
                    self.state.sort_by(CrashSort::ALL[*column]);
                }
                CrashesAction::Used
            }
            Button::Press if !is_page && self.list.contains((mouse.column, mouse.row).into()) => {
                let line = self.state.cursor.at_line(usize::from(mouse.row - self.list.y - 1));
                if line == self.state.cursor.at {
                    self.state.key(Key::Enter)
                } else {
                    if line < self.state.len() {
                        self.state.cursor.at = line;
                    }
                    CrashesAction::Used
                }
            }
            _ => return KeyOutcome::Unused,
        };
        self.follow(action)
    }

    fn news(&mut self, is_paused: bool) -> Result<bool, TuiError> {
        let poller = match &mut self.poller {
            Ok(poller) => poller,
            Err(error) => return error.take().map_or(Ok(false), Err),
        };
        // A page that was asked for comes all the same.
        let is_asked = self.state.is_empty_yet || (self.state.opened.is_some() && self.state.page.is_none());
        if is_paused && !is_asked {
            return Ok(false);
        }
        let look = poller.news()?;
        let is_new = look.is_some();
        look.into_iter().for_each(|look| self.state.take(look));
        Ok(is_new)
    }

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        (self.headers, self.list) = draw(frame, area, &mut self.state, theme);
    }

    fn keys(&self) -> Vec<(&'static str, &'static str)> {
        match self.state.opened.is_some() {
            true => vec![("Esc", "list"), ("e", "export"), ("p", "process")],
            false => {
                vec![("Enter", "page"), ("e", "export"), ("p", "process"), ("/", "filter"), ("s", "sort")]
            }
        }
    }

    fn entry(&self) -> Option<&Entry> {
        Some(&self.state.filter)
    }

    fn set_shown(&mut self, is_shown: bool) {
        if let Ok(poller) = &mut self.poller {
            poller.set_shown(is_shown);
        }
    }

    fn open(&mut self, subject: &Subject) {
        if let Some(path) = &subject.path {
            let name = path.file_name().and_then(|name| name.to_str());
            self.state.open(path, name.and_then(BundleName::parse).is_some());
            self.follow(CrashesAction::Used);
        }
    }
}
