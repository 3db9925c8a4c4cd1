//! `stormlog live`: a program while it runs, on a screen or as one look in text or JSON.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use stormlog_model::memory::Memory;
use stormlog_tui::state::reading::{Reading, Wish};
use stormlog_tui::{Left, LiveTarget, RecordingFollower, TuiError};

use crate::exit::{Exit, MissingInput};

/// A program may record faster than it can be read; then what was read by now is shown, and says so.
const PATIENCE: Duration = Duration::from_secs(20);
/// The width of a line where the terminal does not give one.
const COLUMNS: u16 = 100;
/// Lines of one look that is printed.
const LINES: u16 = 40;

pub(crate) struct Options {
    pub(crate) target: LiveTarget,
    pub(crate) once: bool,
    pub(crate) json: bool,
    pub(crate) memory: Option<Memory>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    if options.once || options.json || !stormlog_tui::has_screen() {
        let mut follower = RecordingFollower::open(&options.target).map_err(wrong)?;
        let wish = Wish { waits_for_names: true, memory: options.memory, ..Wish::default() };
        let mut reading = follower.look(wish);
        let began = Instant::now();
        while reading.is_behind() && began.elapsed() < PATIENCE {
            reading = follower.look(wish);
        }
        check_memory(options.memory, &reading)?;
        let mut out = io::stdout().lock();
        if options.json {
            writeln!(out, "{:#}", stormlog_tui::to_json(&reading))?;
        } else {
            write!(out, "{}", stormlog_tui::frame(reading, columns(), LINES)?)?;
        }
        return Ok(Exit::Ok);
    }
    let wish = Wish { memory: options.memory, ..Wish::default() };
    left(stormlog_tui::live(&options.target, wish).map_err(wrong)?)
}

/// One look that shows another memory than the one asked for would be taken for it.
fn check_memory(wanted: Option<Memory>, reading: &Reading) -> anyhow::Result<()> {
    let heap = reading.chosen.as_ref().and_then(|process| process.heap.as_ref());
    match (wanted, heap) {
        (Some(wanted), Some(heap)) if heap.memory != wanted => {
            let known: Vec<String> = heap.memories.iter().map(|row| row.memory.to_string()).collect();
            Err(MissingInput(format!(
                "memory {wanted} is not in this recording; it has {}",
                known.join(", ")
            ))
            .into())
        }
        _ => Ok(()),
    }
}

/// What a screen that was left means for the command.
pub(crate) fn left(left: Left) -> anyhow::Result<Exit> {
    match left {
        Left::Quit => Ok(Exit::Ok),
        Left::Interrupted => Ok(Exit::Interrupted),
        Left::Signal(signal) => {
            // The terminal is back as it was; the sender of the signal sees that it was obeyed.
            signal_hook::low_level::emulate_default_handler(signal)?;
            Ok(Exit::Error)
        }
    }
}

fn wrong(error: TuiError) -> anyhow::Error {
    match error {
        TuiError::NotARecording(_) | TuiError::NoProcess(_) | TuiError::Heap(_) => {
            MissingInput(error.to_string()).into()
        }
        other => other.into(),
    }
}

pub(crate) fn columns() -> u16 {
    let from_environment = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let of_terminal = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col);
    of_terminal.or(from_environment).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}
