//! The end of a capture: how its process ended is written, the rest is moved, and a small capture repacked.
//!
//! Each of the three leaves a capture that every reader takes: what is left undone costs room only. Must never remove the live file before its
//! records are in the finished one.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::CaptureError;
use crate::compact::Compactor;
use crate::file::Finished;
use crate::live::Live;
use crate::repack::seal;

impl Compactor {
    /// Takes all that is left of a process that has ended, says how, and removes the live file. `cause` is a JSON object
    /// with what the caller knows, such as `exit_code`, `signal` and `cause`.
    pub fn finish(mut self, cause: Value) -> Result<(), CaptureError> {
        self.end(cause)?;
        self.complete()
    }

    /// Writes how the process ended, whose records may all still be in the live file. Once: a later cause is ignored.
    pub fn end(&mut self, cause: Value) -> Result<(), CaptureError> {
        self.is_over = true;
        self.refresh()?;
        if self.has_ending() {
            return Ok(());
        }
        let mut ending = json!({
            "state": self.header.state,
            "end_monotonic_ns": self.header.end_monotonic_ns,
            "lost_events": self.header.lost_events,
        });
        if let (Value::Object(ending), Value::Object(cause)) = (&mut ending, cause) {
            ending.extend(cause);
        }
        self.wake()?;
        // Only this process has them: another one may complete the capture. An aggregate writes all of them each time.
        let has_samples = self.source.finished.as_ref().is_some_and(Finished::has_samples);
        if !(self.is_aggregate() && has_samples) {
            self.write_samples(1)?;
        }
        if let Some(finished) = &mut self.source.finished {
            finished.append_ending(&ending)?;
        }
        self.rest();
        Ok(())
    }

    /// Takes the rest of a process that has [ended](Self::end), repacks a small capture, and removes the live file.
    pub fn complete(mut self) -> Result<(), CaptureError> {
        self.is_over = true;
        self.wake_live()?;
        self.wake()?;
        if self.is_aggregate() {
            self.fold_step()?;
        } else {
            let slots = self.slots()?;
            self.take(slots)?;
            self.write_samples(1)?;
            self.shrink(self.options.max_size)?;
            self.seal();
        }
        if let Some(finished) = &mut self.source.finished {
            finished.end_with_ending()?;
        }
        if self.source.live.take().is_some() {
            let live = Live::path_of(&self.path);
            std::fs::remove_file(&live).map_err(CaptureError::io(&live))?;
        }
        Ok(())
    }

    /// Replaces the finished file by one that says the same in less room. What cannot be done is left: the file is whole as it is.
    fn seal(&mut self) {
        let temporary = self.temporary();
        let sealed = seal(&mut self.source, &self.header, &temporary, self.options.aids).and_then(|new| {
            let Some(mut new) = new else { return Ok(()) };
            std::fs::rename(&temporary, &self.path).map_err(CaptureError::io(&self.path))?;
            new.renamed(&self.path);
            self.source.finished = Some(new);
            Ok(())
        });
        if sealed.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".tmp");
        PathBuf::from(name)
    }
}
