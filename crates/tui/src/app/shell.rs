//! The shell around the views: tabs, footer, help, pause, the way back.

use std::path::PathBuf;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::actions::ActionsView;
use super::crashes::CrashesView;
use super::findings::FindingsView;
use super::frameworks::FrameworksView;
use super::overview::OverviewView;
use super::process::ProcessView;
use super::ranks::RanksView;
use super::view::{KeyOutcome, View};
use super::{AppOptions, Subject, ViewName};
use crate::error::TuiError;
use crate::read::SharedFleet;
use crate::show::Show;
use crate::state::key::{Button, Flow, Key, Mouse};
use crate::text::{clean, fit, width};
use crate::view::frame::{keys, popup, too_small};
use crate::view::theme::Theme;

/// Keys that work in every view, for the help.
const SHELL_KEYS: &[(&str, &str)] = &[
    ("1 … 7  Tab", "the views; a click on a tab too"),
    ("↑ ↓  k j", "one row up or down; PgUp PgDn g G too; the wheel"),
    ("Space", "pause, and continue"),
    ("Esc", "close the popup, or go back"),
    ("Ctrl-L", "redraw the screen"),
    ("q  Ctrl-C", "quit; recordings continue"),
];
/// Keys that the footer always ends with.
const FOOTER_KEYS: &[(&str, &str)] = &[("1-7", "views"), ("?", "help"), ("q", "leave")];
/// Steps back that are kept.
const MOST_STEPS: usize = 32;
/// The narrowest and lowest screen that has room for a view.
const LEAST: (u16, u16) = (40, 8);

/// The application.
pub(crate) struct App {
    views: Vec<Box<dyn View>>,
    shown: ViewName,
    before: Vec<ViewName>,
    is_paused: bool,
    shows_help: bool,
    message: Option<String>,
    has_mouse: bool,
    /// For the terminal's clipboard, once drawn.
    copied: Option<String>,
    /// Columns of each tab, as drawn last.
    tabs: Vec<(u16, u16)>,
    body: Rect,
}

impl App {
    pub(crate) fn new(options: AppOptions) -> Self {
        let has_mouse = options.config.mouse;
        let (subject, start) = opening(&options);
        let mut app = App::of(views(&options), has_mouse);
        app.shown = start;
        app.views[start.index()].set_shown(true);
        if let Some(subject) = subject {
            app.views.iter_mut().for_each(|view| view.open(&subject));
        }
        app
    }

    /// With these views, one for each name.
    pub(crate) fn of(views: Vec<Box<dyn View>>, has_mouse: bool) -> Self {
        debug_assert_eq!(views.len(), ViewName::ALL.len());
        App {
            views,
            shown: ViewName::Overview,
            before: Vec::new(),
            is_paused: false,
            shows_help: false,
            message: None,
            has_mouse,
            copied: None,
            tabs: Vec::new(),
            body: Rect::default(),
        }
    }

    fn view(&mut self) -> &mut dyn View {
        self.views[self.shown.index()].as_mut()
    }

    fn go(&mut self, to: ViewName) {
        if to == self.shown {
            return;
        }
        self.before.push(self.shown);
        let extra = self.before.len().saturating_sub(MOST_STEPS);
        self.before.drain(..extra);
        self.switch(to);
    }

    fn switch(&mut self, to: ViewName) {
        self.view().set_shown(false);
        self.shown = to;
        self.view().set_shown(true);
    }

    fn back(&mut self) -> Flow {
        match self.before.pop() {
            Some(before) => self.switch(before),
            None => return Flow::Leave,
        }
        Flow::Stay
    }

    fn follow(&mut self, turn: KeyOutcome) -> bool {
        match turn {
            KeyOutcome::Unused => return false,
            KeyOutcome::Used => {}
            KeyOutcome::Open(view, subject) => {
                self.views.iter_mut().for_each(|view| view.open(&subject));
                self.go(view);
            }
            KeyOutcome::Say(text) => self.message = Some(text),
            KeyOutcome::Copy(text) => {
                self.message = Some(format!("copied: {text}"));
                self.copied = Some(text);
            }
        }
        true
    }

    fn shell_key(&mut self, key: Key) -> Flow {
        let count = ViewName::ALL.len();
        match key {
            Key::Letter('q') => return Flow::Leave,
            Key::Letter('?') => self.shows_help = true,
            Key::Letter(' ') => self.is_paused = !self.is_paused,
            Key::Letter(digit @ '1'..='7') => self.go(ViewName::ALL[digit as usize - '1' as usize]),
            Key::Tab => self.go(ViewName::ALL[(self.shown.index() + 1) % count]),
            Key::BackTab => self.go(ViewName::ALL[(self.shown.index() + count - 1) % count]),
            Key::Escape => return self.back(),
            _ => {}
        }
        Flow::Stay
    }

    fn draw_tabs(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        let paused = if self.is_paused { " PAUSED " } else { "" };
        let room = usize::from(area.width).saturating_sub(width(paused));
        let whole: usize = ViewName::ALL.iter().map(|name| width(name.word()) + 4).sum();
        let (mut spans, mut column) = (Vec::new(), 0);
        self.tabs.clear();
        for (index, name) in ViewName::ALL.into_iter().enumerate() {
            // Where not all words fit, only the shown view has its word.
            let word = if whole <= room || name == self.shown { name.word() } else { "" };
            let text =
                if word.is_empty() { format!(" {} ", index + 1) } else { format!(" {} {word} ", index + 1) };
            let wide = u16::try_from(width(&text)).unwrap_or(u16::MAX);
            self.tabs.push((column, column.saturating_add(wide)));
            column = column.saturating_add(wide);
            spans.push(Span::styled(text, if name == self.shown { theme.chosen() } else { theme.faint() }));
        }
        spans.push(Span::raw(" ".repeat(room.saturating_sub(usize::from(column)))));
        spans.push(Span::styled(paused, theme.found()));
        frame.render_widget(Paragraph::new(Line::from(spans)), area);
    }

    fn draw_footer(&mut self, frame: &mut Frame<'_>, area: Rect, theme: &Theme) {
        let columns = usize::from(area.width);
        let line = if let Some(entry) = self.view().entry().filter(|entry| entry.is_open) {
            Line::from(fit(&format!("/{}▏", clean(&entry.text)), columns).into_owned())
        } else if let Some(message) = &self.message {
            Line::styled(fit(&clean(message), columns).into_owned(), theme.found())
        } else {
            let tail: usize = FOOTER_KEYS.iter().map(|(key, does)| width(key) + width(does) + 3).sum();
            let room = area.width.saturating_sub(u16::try_from(tail).unwrap_or(0));
            let mut line = keys(&self.view().keys(), room, theme);
            line.spans.extend(keys(FOOTER_KEYS, area.width, theme).spans);
            line
        };
        frame.render_widget(Paragraph::new(line), area);
    }

    fn draw_help(&mut self, frame: &mut Frame<'_>, theme: &Theme) {
        let name = self.shown.word();
        let view = self.view();
        let row = |(key, does): &(&'static str, &'static str)| {
            Line::from(vec![Span::styled(format!(" {key:<13}"), theme.key()), Span::raw(*does)])
        };
        let mut lines: Vec<Line<'_>> = view.keys().iter().map(row).collect();
        lines.extend(view.help().iter().map(row));
        lines.push(Line::default());
        lines.extend(SHELL_KEYS.iter().map(row));
        popup(frame, &format!("keys of {name}"), lines);
    }
}

impl Show for App {
    fn draw(&mut self, frame: &mut Frame<'_>, theme: &Theme) {
        let whole = frame.area();
        if whole.width < LEAST.0 || whole.height < LEAST.1 {
            return too_small(frame);
        }
        let [tabs, body, foot] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(whole);
        self.body = body;
        self.draw_tabs(frame, tabs, theme);
        self.view().draw(frame, body, theme);
        self.draw_footer(frame, foot, theme);
        if self.shows_help {
            self.draw_help(frame, theme);
        }
    }

    fn key(&mut self, key: Key) -> Flow {
        self.message = None;
        if std::mem::take(&mut self.shows_help) {
            return Flow::Stay;
        }
        let is_shells = matches!(key, Key::Letter('q' | '?' | ' ' | '1'..='7') | Key::Tab | Key::BackTab);
        if is_shells && !self.view().takes_all_keys() {
            return self.shell_key(key);
        }
        let turn = self.view().key(key);
        if self.follow(turn) { Flow::Stay } else { self.shell_key(key) }
    }

    fn mouse(&mut self, mouse: Mouse) -> Flow {
        if matches!(mouse.button, Button::Press) {
            self.message = None;
            if std::mem::take(&mut self.shows_help) {
                return Flow::Stay;
            }
        }
        if mouse.row == 0 && mouse.button == Button::Press {
            let hit = self.tabs.iter().position(|(from, to)| (*from..*to).contains(&mouse.column));
            if let Some(index) = hit {
                self.go(ViewName::ALL[index]);
            }
        } else if self.body.contains((mouse.column, mouse.row).into()) {
            let turn = self.view().mouse(mouse);
            self.follow(turn);
        }
        Flow::Stay
    }

    fn news(&mut self) -> Result<bool, TuiError> {
        let is_paused = self.is_paused;
        self.view().news(is_paused)
    }

    fn wants_mouse(&self) -> bool {
        self.has_mouse
    }

    fn take_copied(&mut self) -> Option<String> {
        self.copied.take()
    }
}

/// The views, in the order of [`ViewName::ALL`].
fn views(options: &AppOptions) -> Vec<Box<dyn View>> {
    let fleet = SharedFleet::new(options.roots());
    vec![
        Box::new(OverviewView::new(&fleet)),
        Box::new(ProcessView::new()),
        Box::new(RanksView::new(&fleet)),
        Box::new(FrameworksView::new(options.roots())),
        Box::new(FindingsView::new(options.roots())),
        Box::new(CrashesView::new(options.roots())),
        Box::new(ActionsView::new(
            options.roots().first().map(PathBuf::as_path),
            options.interpreter.clone(),
        )),
    ]
}

/// What the paths open: a directory of runs the overview, one recording its view.
fn opening(options: &AppOptions) -> (Option<Subject>, ViewName) {
    let start = options.view.unwrap_or(options.config.view);
    match options.paths.as_slice() {
        [only] => match crate::read::kind::kind_of(only) {
            Some(view) => (Some(Subject::path(only.clone())), options.view.unwrap_or(view)),
            None => (None, start),
        },
        _ => (None, start),
    }
}
