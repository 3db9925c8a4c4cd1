//! The terminal while it is ours: raw, on its alternate screen, without a cursor; and given back as it was, whatever happens.
//!
//! It is put back when [`Screen`] is dropped, by a panic of any thread, and before the process is stopped or ended by a signal.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use signal_hook::SigId;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

use crate::error::TuiError;

/// The terminal is ours now. Process-wide, as the terminal is.
static IS_OURS: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// A screen that goes to a slow line in one piece.
type Output = BufWriter<Stdout>;
/// Room for a whole screen's letters and colours.
const OUTPUT: usize = 64 << 10;

/// The terminal, taken.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Output>>,
    signals: Signals,
}

impl Screen {
    pub(crate) fn take() -> Result<Screen, TuiError> {
        if !io::stdout().is_terminal() {
            return Err(TuiError::NoTerminal);
        }
        PANIC_HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        let signals = Signals::watch()?;
        seize()?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(OUTPUT, io::stdout()));
        let terminal = Terminal::new(backend).inspect_err(|_| give_back())?;
        Ok(Screen { terminal, signals })
    }

    /// Draws what differs from the last time.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(render)?;
        queue!(self.terminal.backend_mut(), EndSynchronizedUpdate)?;
        io::Write::flush(self.terminal.backend_mut())
    }

    /// Everything is drawn anew the next time.
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
    pub(crate) fn asked_to_end(&self) -> Option<i32> {
        i32::try_from(self.signals.end.load(Ordering::SeqCst)).ok().filter(|signal| *signal != 0)
    }

    /// Does what other processes' signals ask for; true when everything has to be drawn anew.
    pub(crate) fn obey(&mut self) -> io::Result<bool> {
        if self.signals.stop.swap(false, Ordering::SeqCst) {
            self.suspend()?;
            return Ok(true);
        }
        if self.signals.go_on.swap(false, Ordering::SeqCst) {
            // Stopped without a word (SIGSTOP): the shell has had the terminal since.
            give_back();
            self.resume()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Stops the process as Ctrl-Z does, and goes on after `fg`.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        self.signals.go_on.store(false, Ordering::SeqCst);
        self.resume()
    }

    fn resume(&mut self) -> io::Result<()> {
        seize()?;
        self.forget()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn seize() -> io::Result<()> {
    enable_raw_mode()?;
    IS_OURS.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen).inspect_err(|_| give_back())
}

/// May be called at any time and by any thread. Nothing can be done about a terminal that is gone.
fn give_back() {
    if IS_OURS.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout();
        let _ = execute!(out, EndSynchronizedUpdate, LeaveAlternateScreen, Show);
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
}

/// What other processes ask of this one.
struct Signals {
    end: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    go_on: Arc<AtomicBool>,
    registered: Vec<SigId>,
}

impl Signals {
    fn watch() -> io::Result<Signals> {
        let mut signals = Signals {
            end: Arc::default(),
            stop: Arc::default(),
            go_on: Arc::default(),
            registered: Vec::new(),
        };
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            let number = usize::try_from(signal).unwrap_or(0);
            signals.registered.push(signal_hook::flag::register_usize(
                signal,
                Arc::clone(&signals.end),
                number,
            )?);
        }
        signals.registered.push(signal_hook::flag::register(SIGTSTP, Arc::clone(&signals.stop))?);
        signals.registered.push(signal_hook::flag::register(SIGCONT, Arc::clone(&signals.go_on))?);
        Ok(signals)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
