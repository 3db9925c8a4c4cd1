//! A line on a terminal while a long capture is read; nothing in a pipe or for a short one.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_millis(800);
const INTERVAL: Duration = Duration::from_millis(250);

/// Shown until it is dropped.
pub(crate) struct Waiting(Option<(Sender<()>, JoinHandle<()>)>);

impl Waiting {
    pub(crate) fn for_file(path: &Path) -> Self {
        if !io::stderr().is_terminal() {
            return Waiting(None);
        }
        let size = std::fs::metadata(path).map_or(0, |data| data.len());
        let name = stormlog_model::text::short_name(&path.display().to_string());
        let what = format!("reading {name} ({})", stormlog_model::format_bytes(size));
        let (over, is_over) = mpsc::channel();
        let shown = std::thread::spawn(move || {
            let begun = Instant::now();
            let mut pause = PATIENCE;
            while is_over.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let _ = write!(io::stderr(), "\r\x1b[K{what}, {:.0} s", begun.elapsed().as_secs_f32());
                pause = INTERVAL;
            }
            if pause == INTERVAL {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        Waiting(Some((over, shown)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((over, shown)) = self.0.take() {
            drop(over);
            // It cannot fail: it only writes, and does not care whether that works.
            let _ = shown.join();
        }
    }
}
