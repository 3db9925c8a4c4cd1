//! Reads on a thread of its own, so that keys are answered at once however much there is to read.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::TuiError;
use crate::read::watcher::Watcher;
use crate::state::reading::{Reading, Wish};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A look that took long is followed by a rest so many times as long: never more than a tenth of one core.
const REST: u32 = 9;
/// The longest rest.
const LONGEST: Duration = Duration::from_secs(20);

/// The thread, from outside. It ends by itself when this is dropped.
#[derive(Debug)]
pub(crate) struct Background {
    wishes: Sender<Wish>,
    readings: Receiver<Reading>,
    asked: Wish,
}

impl Background {
    pub(crate) fn start(mut watcher: Watcher) -> Result<Background, TuiError> {
        let (wishes, asked) = channel();
        let (answer, readings) = channel();
        let work = move || {
            let mut wish = Wish::default();
            loop {
                let began = Instant::now();
                let reading = watcher.look(wish);
                let is_behind = reading.is_behind();
                if answer.send(reading).is_err() {
                    return;
                }
                let took = began.elapsed();
                let rest = EVERY.saturating_sub(took).max(took.saturating_mul(REST).min(LONGEST));
                let rest = if is_behind { Duration::ZERO } else { rest };
                match asked.recv_timeout(rest) {
                    // Only the last wish counts.
                    Ok(new) => wish = asked.try_iter().last().unwrap_or(new),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        thread::Builder::new().name("stormlog-live".into()).spawn(work)?;
        Ok(Background { wishes, readings, asked: Wish::default() })
    }

    /// Asks for something else; the answer comes without waiting for the next second.
    pub(crate) fn ask(&mut self, wish: Wish) {
        if wish != self.asked {
            self.asked = wish;
            // A thread that is gone is found out by `news`.
            let _ = self.wishes.send(wish);
        }
    }

    /// The newest look that nobody has seen.
    pub(crate) fn news(&self) -> Result<Option<Reading>, TuiError> {
        let mut newest = None;
        loop {
            match self.readings.try_recv() {
                Ok(reading) => newest = Some(reading),
                Err(TryRecvError::Empty) => return Ok(newest),
                Err(TryRecvError::Disconnected) => return Err(TuiError::ReaderGone),
            }
        }
    }
}
