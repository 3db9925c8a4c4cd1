//! The shell with views that only note what they got.

use std::cell::RefCell;
use std::rc::Rc;

use ratatui::layout::Rect;
use ratatui::widgets::Paragraph;
use ratatui::{Frame, Terminal, backend::TestBackend};

use super::{App, KeyOutcome, Subject, View, ViewName};
use crate::error::TuiError;
use crate::show::Show;
use crate::state::entry::Entry;
use crate::state::key::{Button, Flow, Key, Mouse};
use crate::view::theme::Theme;

type Notes = Rc<RefCell<Vec<String>>>;

struct Noting {
    name: ViewName,
    notes: Notes,
    entry: Entry,
}

impl Noting {
    fn note(&self, text: impl std::fmt::Display) {
        self.notes.borrow_mut().push(format!("{} {text}", self.name.word()));
    }
}

impl View for Noting {
    fn key(&mut self, key: Key) -> KeyOutcome {
        if self.entry.is_open {
            self.entry.key(key);
            return KeyOutcome::Used;
        }
        match key {
            Key::Letter('/') => self.entry.open(),
            Key::Enter => return KeyOutcome::Open(ViewName::Process, Subject::pid(7)),
            Key::Letter('x') => return KeyOutcome::Say("a sentence".to_owned()),
            Key::Letter('y') => return KeyOutcome::Copy("stormlog run".to_owned()),
            _ => return KeyOutcome::Unused,
        }
        KeyOutcome::Used
    }

    fn mouse(&mut self, mouse: Mouse) -> KeyOutcome {
        self.note(format!("{:?} {} {}", mouse.button, mouse.column, mouse.row));
        KeyOutcome::Used
    }

    fn news(&mut self, is_paused: bool) -> Result<bool, TuiError> {
        Ok(!is_paused)
    }

    fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, _theme: &Theme) {
        frame.render_widget(Paragraph::new(format!("body of {}", self.name.word())), area);
    }

    fn keys(&self) -> Vec<(&'static str, &'static str)> {
        vec![("Enter", "open"), ("/", "filter")]
    }

    fn entry(&self) -> Option<&Entry> {
        Some(&self.entry)
    }

    fn set_shown(&mut self, is_shown: bool) {
        self.note(if is_shown { "shown" } else { "hidden" });
    }

    fn open(&mut self, subject: &Subject) {
        self.note(format!("{:?}", subject.pid));
    }
}

fn noting() -> (App, Notes) {
    let notes = Notes::default();
    let view = |name| -> Box<dyn View> {
        Box::new(Noting { name, notes: Rc::clone(&notes), entry: Entry::default() })
    };
    (App::of(ViewName::ALL.into_iter().map(view).collect(), true), notes)
}

fn drawn(app: &mut App, columns: u16, rows: u16) -> Vec<String> {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let Ok(_) = terminal.draw(|frame| app.draw(frame, &Theme::PLAIN));
    let buffer = terminal.backend().buffer();
    let row =
        |row: &[ratatui::buffer::Cell]| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
    let rows = buffer.content.chunks(usize::from(columns)).map(row);
    rows.map(|row| row.trim_end().to_owned()).collect()
}

#[test]
fn tabs_and_footer_are_around_every_view() {
    let (mut app, _) = noting();
    let wide = drawn(&mut app, 100, 10);
    assert_eq!(wide[0], " 1 Overview  2 Process  3 Ranks  4 Frameworks  5 Findings  6 Crashes  7 Actions");
    assert_eq!(wide[1], "body of Overview");
    assert_eq!(wide[9], "Enter open  / filter  1-7 views  ? help  q leave");
    let narrow = drawn(&mut app, 50, 10);
    assert_eq!(narrow[0], " 1 Overview  2  3  4  5  6  7");
    assert!(drawn(&mut app, 30, 5)[0].contains("enlarge"));
}

#[test]
fn digits_tab_and_clicks_change_the_view_and_escape_goes_back() {
    let (mut app, notes) = noting();
    assert_eq!(app.key(Key::Letter('3')), Flow::Stay);
    assert_eq!(drawn(&mut app, 100, 10)[1], "body of Ranks");
    app.key(Key::BackTab);
    assert_eq!(drawn(&mut app, 100, 10)[1], "body of Process");
    app.mouse(Mouse { button: Button::Press, column: 64, row: 0, has_control: false });
    assert_eq!(drawn(&mut app, 100, 10)[1], "body of Crashes");
    assert_eq!(app.key(Key::Escape), Flow::Stay);
    assert_eq!(drawn(&mut app, 100, 10)[1], "body of Process");
    assert_eq!(notes.borrow().last().map(String::as_str), Some("Process shown"));
    app.key(Key::Escape);
    app.key(Key::Escape);
    assert_eq!(app.key(Key::Escape), Flow::Leave, "from the first view");
}

#[test]
fn an_open_text_takes_the_keys_of_the_shell() {
    let (mut app, _) = noting();
    app.key(Key::Letter('/'));
    for letter in "q1?".chars() {
        assert_eq!(app.key(Key::Letter(letter)), Flow::Stay);
    }
    let rows = drawn(&mut app, 60, 10);
    assert_eq!((rows[1].as_str(), rows[9].as_str()), ("body of Overview", "/q1?▏"));
    app.key(Key::Escape);
    assert_eq!(app.key(Key::Letter('q')), Flow::Leave);
}

#[test]
fn opening_hands_the_subject_to_every_view() {
    let (mut app, notes) = noting();
    app.key(Key::Enter);
    let got = notes.borrow().iter().filter(|note| note.ends_with("Some(7)")).count();
    assert_eq!(got, ViewName::ALL.len());
    assert_eq!(drawn(&mut app, 100, 10)[1], "body of Process");
}

#[test]
fn pause_message_copy_and_help_are_the_shells() -> Result<(), TuiError> {
    let (mut app, _) = noting();
    assert!(app.news()?);
    app.key(Key::Letter(' '));
    assert!(!app.news()?);
    assert!(drawn(&mut app, 100, 10)[0].ends_with("PAUSED"));
    app.key(Key::Letter('x'));
    assert_eq!(drawn(&mut app, 100, 10)[9], "a sentence");
    app.key(Key::Letter('y'));
    assert_eq!(drawn(&mut app, 100, 10)[9], "copied: stormlog run");
    assert_eq!(app.take_copied().as_deref(), Some("stormlog run"));
    app.key(Key::Letter('?'));
    let help = drawn(&mut app, 100, 20).join("\n");
    assert!(
        help.contains("keys of Overview") && help.contains("filter") && help.contains("Ctrl-C"),
        "{help}"
    );
    app.key(Key::Letter('3'));
    assert_eq!(drawn(&mut app, 100, 10)[1], "body of Overview", "the key closed the help only");
    Ok(())
}
