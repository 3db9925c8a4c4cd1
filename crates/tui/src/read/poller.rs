//! A thread that reads for a view: looks again after a rest, at once when something else is requested, and not at all while the view is hidden.
//!
//! Only the newest look is kept, so a view that does not ask (paused, hidden) holds one look and no more.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::TuiError;

/// Looking may take a fortieth of the time: after a slow look the pause is this many times as long.
const REST: u32 = 39;
/// The first looks read everything there is; after those a tenth of the time is enough.
const FIRST_LOOKS: u32 = 3;
const FIRST_REST: u32 = 9;
/// The longest rest.
const LONGEST: Duration = Duration::from_secs(10);

enum Word<Ask> {
    Ask(Ask),
    Shown(bool),
}

/// The thread, from outside. It ends by itself when this is dropped.
#[derive(Debug)]
pub(crate) struct Poller<Ask, Look> {
    words: Sender<Word<Ask>>,
    newest: Arc<Mutex<Option<Look>>>,
    /// Held by the thread while it lives.
    alive: std::sync::Weak<()>,
    asked: Ask,
}

impl<Ask, Look> Poller<Ask, Look>
where
    Ask: Clone + PartialEq + Send + 'static,
    Look: Send + 'static,
{
    /// Begins to look every `every`; hidden until [`Poller::set_shown`]. `look` gives the look and whether there is more to read at once.
    pub(crate) fn start(
        name: &str,
        every: Duration,
        ask: Ask,
        mut look: impl FnMut(&Ask) -> (Look, bool) + Send + 'static,
    ) -> Result<Self, TuiError> {
        let (words, heard) = channel();
        let newest = Arc::new(Mutex::new(None));
        let life = Arc::new(());
        let alive = Arc::downgrade(&life);
        let shared = Arc::clone(&newest);
        let mut asked = ask.clone();
        let work = move || {
            let _life = life;
            let mut is_shown = false;
            let mut looks = 0_u32;
            loop {
                if is_shown {
                    let began = Instant::now();
                    let (found, is_behind) = look(&asked);
                    *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                    let took = began.elapsed();
                    looks = looks.saturating_add(1);
                    let times = if looks <= FIRST_LOOKS { FIRST_REST } else { REST };
                    let rest = every.saturating_sub(took).max(took.saturating_mul(times).min(LONGEST));
                    let rest = if is_behind { Duration::ZERO } else { rest };
                    if !wait(&heard, Some(rest), &mut asked, &mut is_shown) {
                        return;
                    }
                } else if !wait(&heard, None, &mut asked, &mut is_shown) {
                    return;
                }
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Poller { words, newest, alive, asked: ask })
    }

    /// Asks for something else; the answer comes without waiting for the next look.
    pub(crate) fn ask(&mut self, ask: Ask) {
        if ask != self.asked {
            self.asked = ask.clone();
            // A thread that is gone is found out by `news`.
            let _ = self.words.send(Word::Ask(ask));
        }
    }

    /// Looks from now on, or rests.
    pub(crate) fn set_shown(&mut self, is_shown: bool) {
        let _ = self.words.send(Word::Shown(is_shown));
    }

    /// The newest look that was not taken yet.
    pub(crate) fn news(&self) -> Result<Option<Look>, TuiError> {
        let found = self.newest.lock().unwrap_or_else(PoisonError::into_inner).take();
        if found.is_none() && self.alive.strong_count() == 0 {
            return Err(TuiError::ReaderGone);
        }
        Ok(found)
    }
}

/// Waits for the end of the rest or for a word; false when the other side is gone. Only the last word of each kind counts.
fn wait<Ask>(
    heard: &Receiver<Word<Ask>>,
    rest: Option<Duration>,
    asked: &mut Ask,
    is_shown: &mut bool,
) -> bool {
    let first = match rest {
        Some(rest) => heard.recv_timeout(rest),
        None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
    };
    match first {
        Ok(word) => {
            for word in std::iter::once(word).chain(heard.try_iter()) {
                match word {
                    Word::Ask(new) => *asked = new,
                    Word::Shown(shown) => *is_shown = shown,
                }
            }
            true
        }
        Err(RecvTimeoutError::Timeout) => true,
        Err(RecvTimeoutError::Disconnected) => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    fn next<L: Send + 'static>(poller: &Poller<u32, L>) -> L {
        loop {
            if let Some(found) = poller.news().unwrap() {
                return found;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn poller_answers_what_was_asked_last_and_rests_while_hidden() {
        let hour = Duration::from_secs(3600);
        let mut poller = Poller::start("test", hour, 1, |ask: &u32| (*ask, false)).unwrap();
        poller.ask(2);
        assert_eq!(poller.news().unwrap(), None, "hidden");
        poller.set_shown(true);
        assert_eq!(next(&poller), 2);
        poller.ask(3);
        assert_eq!(next(&poller), 3);
    }

    #[test]
    fn a_reader_that_panics_is_an_error_of_the_view() {
        let mut poller =
            Poller::start("test", Duration::ZERO, 0, |_: &u32| -> (u32, bool) { panic!("meant") }).unwrap();
        poller.set_shown(true);
        let error = loop {
            match poller.news() {
                Err(error) => break error,
                Ok(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        assert!(matches!(error, TuiError::ReaderGone));
    }
}
