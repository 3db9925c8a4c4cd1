//! The loop behind every screen: keys and news in, at most ten pictures a second out.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{
    self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::error::TuiError;
use crate::signals::Keys;
use crate::state::key::{Button, Flow, Key, Mouse};
use crate::terminal::Screen;
use crate::view::theme::Theme;

/// Between two pictures; also how long a signal may wait.
const PICTURE: Duration = Duration::from_millis(100);
/// For this long after its start a screen is drawn as soon as there is data: its first content is still being read.
const START: Duration = Duration::from_millis(500);
/// Between two pictures meanwhile.
const START_PICTURE: Duration = Duration::from_millis(10);

/// How a screen was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// By `q`, or because the caller's condition came true.
    Quit,
    /// By Ctrl-C.
    Interrupted,
    /// By a signal that asks the process to end.
    Signal(i32),
}

/// Something that can be shown.
pub(crate) trait Show {
    fn draw(&mut self, frame: &mut Frame<'_>, theme: &Theme);
    fn key(&mut self, key: Key) -> Flow;
    /// Takes in what is new; true when there is something to draw. An error ends the screen.
    fn news(&mut self) -> Result<bool, TuiError>;

    /// Takes a click, a drag or the wheel.
    fn mouse(&mut self, _mouse: Mouse) -> Flow {
        Flow::Stay
    }

    /// Whether clicks and the wheel are for it; else the terminal selects text with them.
    fn wants_mouse(&self) -> bool {
        false
    }

    /// A text for the clipboard of the terminal.
    fn take_copied(&mut self) -> Option<String> {
        None
    }
}

/// Shows it until it is left or `is_over`.
pub(crate) fn show(what: &mut dyn Show, keys: Keys, is_over: &dyn Fn() -> bool) -> Result<Left, TuiError> {
    show_in(what, keys, Theme::from_environment(), is_over)
}

/// As [`show`], in these colours and letters.
pub(crate) fn show_in(
    what: &mut dyn Show,
    keys: Keys,
    theme: Theme,
    is_over: &dyn Fn() -> bool,
) -> Result<Left, TuiError> {
    let mut screen = Screen::take(keys, what.wants_mouse())?;
    let mut is_stale = true;
    let mut drawn: Option<Instant> = None;
    let begun = Instant::now();
    loop {
        let pace = if begun.elapsed() < START { START_PICTURE } else { PICTURE };
        if screen.is_lost() {
            return Err(TuiError::ReaderGone);
        }
        if let Some(signal) = screen.end_signal() {
            return Ok(if signal == signal_hook::consts::SIGINT {
                Left::Interrupted
            } else {
                Left::Signal(signal)
            });
        }
        if is_over() {
            return Ok(Left::Quit);
        }
        is_stale |= screen.obey()? | what.news()?;
        let rest = drawn.map_or(Duration::ZERO, |at| pace.saturating_sub(at.elapsed()));
        if is_stale && rest.is_zero() {
            screen.draw(|frame| {
                what.draw(frame, &theme);
                theme.finish(frame.buffer_mut());
            })?;
            (is_stale, drawn) = (false, Some(Instant::now()));
        }
        // Not by crossterm, which never comes back from a terminal that is gone.
        if !wait(if is_stale { rest } else { pace }) {
            return Ok(Left::Signal(signal_hook::consts::SIGHUP));
        }
        while event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(pressed) if pressed.kind != KeyEventKind::Release => {
                    is_stale = true;
                    let is_control = pressed.modifiers.contains(KeyModifiers::CONTROL);
                    match pressed.code {
                        KeyCode::Char('c') if is_control => return Ok(Left::Interrupted),
                        KeyCode::Char('z') if is_control => screen.suspend()?,
                        KeyCode::Char('l') if is_control => screen.forget()?,
                        _ => {
                            if let Some(key) = key_of(pressed)
                                && what.key(key) == Flow::Leave
                            {
                                return Ok(Left::Quit);
                            }
                        }
                    }
                }
                Event::Resize(..) => is_stale = true,
                Event::Mouse(moved) => {
                    if let Some(mouse) = mouse_of(moved) {
                        is_stale = true;
                        if what.mouse(mouse) == Flow::Leave {
                            return Ok(Left::Quit);
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(text) = what.take_copied() {
            screen.copy(&text)?;
        }
    }
}

fn mouse_of(moved: MouseEvent) -> Option<Mouse> {
    let button = match moved.kind {
        MouseEventKind::Down(MouseButton::Left) => Button::Press,
        MouseEventKind::Drag(MouseButton::Left) => Button::Drag,
        MouseEventKind::Up(MouseButton::Left) => Button::Release,
        MouseEventKind::ScrollUp => Button::WheelUp,
        MouseEventKind::ScrollDown => Button::WheelDown,
        _ => return None,
    };
    let has_control = moved.modifiers.contains(KeyModifiers::CONTROL);
    Some(Mouse { button, column: moved.column, row: moved.row, has_control })
}

/// Waits for a key, a signal or the end of the time; false when the terminal is gone.
fn wait(most: Duration) -> bool {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    let keys = if input.is_terminal() { PollFlags::IN } else { PollFlags::empty() };
    let mut ends = [PollFd::new(&output, PollFlags::empty()), PollFd::new(&input, keys)];
    let ends = if keys.is_empty() { &mut ends[..1] } else { &mut ends[..] };
    let time = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    // A signal in between does not matter: the loop looks for signals next.
    let _ = poll(ends, Some(&time));
    !ends.iter().any(|end| end.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}

fn key_of(pressed: KeyEvent) -> Option<Key> {
    let is_far = pressed.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::SHIFT);
    Some(match pressed.code {
        KeyCode::Char(_) if pressed.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            return None;
        }
        KeyCode::Char(letter) => Key::Letter(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left if is_far => Key::FarLeft,
        KeyCode::Right if is_far => Key::FarRight,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        _ => return None,
    })
}
