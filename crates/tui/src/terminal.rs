//! The terminal while it is ours: raw, on its alternate screen, without a cursor; and given back as it was, whatever happens.
//!
//! It is put back when [`Screen`] is dropped, by a panic of any thread, and before the process is stopped or ended by a signal.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use signal_hook::consts::SIGTSTP;

use crate::error::TuiError;
use crate::signals::{Keys, Signals};

/// The terminal is ours now. Process-wide, as the terminal is.
static IS_OURS: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// A screen that goes to a slow line in one piece.
type Output = BufWriter<Stdout>;
/// Room for a whole screen's letters and colours.
const OUTPUT: usize = 64 << 10;

/// Whether standard output is a terminal that can place letters: `TERM=dumb` says that it cannot.
#[must_use]
pub fn has_screen() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

/// The terminal, taken.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Output>>,
    signals: Signals,
    keys: Keys,
    has_mouse: bool,
}

impl Screen {
    pub(crate) fn take(keys: Keys, has_mouse: bool) -> Result<Screen, TuiError> {
        if !has_screen() {
            return Err(TuiError::NoTerminal);
        }
        PANIC_HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        let signals = Signals::watch(keys)?;
        seize(keys, has_mouse)?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(OUTPUT, io::stdout()));
        let terminal = Terminal::new(backend).inspect_err(|_| give_back())?;
        Ok(Screen { terminal, signals, keys, has_mouse })
    }

    /// Draws what differs from the last time.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(render)?;
        queue!(self.terminal.backend_mut(), EndSynchronizedUpdate)?;
        io::Write::flush(self.terminal.backend_mut())
    }

    /// Gives a text to the clipboard of the terminal (OSC 52). A terminal that has none, or does not allow it, ignores it.
    pub(crate) fn copy(&mut self, text: &str) -> io::Result<()> {
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        let out = self.terminal.backend_mut();
        write!(out, "\x1b]52;c;{encoded}\x07")?;
        io::Write::flush(out)
    }

    /// Everything is redrawn the next time.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        // `clear` would ask the terminal where its cursor is, and wait for an answer that may never come.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Whether a panic in another thread gave the terminal back.
    pub(crate) fn is_lost(&self) -> bool {
        !IS_OURS.load(Ordering::SeqCst)
    }

    /// The signal that asks the process to end.
    pub(crate) fn end_signal(&self) -> Option<i32> {
        self.signals.end()
    }

    /// Does what other processes' signals ask for; true when everything has to be redrawn.
    pub(crate) fn obey(&mut self) -> io::Result<bool> {
        if self.signals.take_stop() {
            self.suspend()?;
            return Ok(true);
        }
        if self.signals.take_go_on() {
            // Stopped without a word (SIGSTOP): the shell has had the terminal since.
            give_back();
            self.resume()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Stops the process as Ctrl-Z does, and continues after `fg`.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        self.signals.take_go_on();
        self.resume()
    }

    fn resume(&mut self) -> io::Result<()> {
        seize(self.keys, self.has_mouse)?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn seize(keys: Keys, has_mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    IS_OURS.store(true, Ordering::SeqCst);
    if keys == Keys::Shared {
        let_signals_through().inspect_err(|_| give_back())?;
    }
    execute!(io::stdout(), EnterAlternateScreen).inspect_err(|_| give_back())?;
    if has_mouse {
        execute!(io::stdout(), EnableMouseCapture).inspect_err(|_| give_back())?;
    }
    Ok(())
}

/// May be called at any time and by any thread. Nothing can be done about a terminal that is gone.
fn give_back() {
    if IS_OURS.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        // Cleared, since tmux pushes the letters of a screen that grew meanwhile into what was there before.
        // Mouse reports are ended whether or not they were requested: a shell that gets them prints letters at every click.
        let _ = execute!(
            out,
            DisableMouseCapture,
            EndSynchronizedUpdate,
            Clear(ClearType::All),
            LeaveAlternateScreen,
            Show
        );
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
}

/// Ctrl-C, Ctrl-\ and Ctrl-Z are signals to the whole foreground again, as before the terminal was taken.
fn let_signals_through() -> io::Result<()> {
    let input = io::stdin();
    let (tty, fallback);
    let keys: &dyn std::os::fd::AsFd = if input.is_terminal() {
        tty = input;
        &tty
    } else {
        fallback = File::options().read(true).write(true).open("/dev/tty")?;
        &fallback
    };
    let mut modes = tcgetattr(keys.as_fd())?;
    modes.local_modes.insert(LocalModes::ISIG);
    Ok(tcsetattr(keys.as_fd(), OptionalActions::Now, &modes)?)
}
