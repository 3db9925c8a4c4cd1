//! The file of `--output`: recorded crash-safely beside it while watching, put in place whole at the end.
//!
//! Whatever kills the command, what was recorded is in `OUTPUT.recording` and any command reads it. Nothing is removed
//! before the file is in place.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use stormlog_model::{SCHEMA_LATEST, SessionSummary};
use stormlog_store::recording::{Recorder, RecorderConfig};
use stormlog_store::{Format, Output, ReadOptions, Source};

/// Room for a few hours at ten samples a second in each file of the recording.
const SEGMENT: u64 = 4 << 20;
/// The recording's last events are in its log too; the ring beside it can be small.
const RING_SLOTS: u64 = 1 << 10;

/// An output to be.
pub(crate) struct OutputDraft {
    output: PathBuf,
    format: Format,
    directory: PathBuf,
}

impl OutputDraft {
    /// Begins to record. Fails now rather than after hours when the file could not be written there.
    pub(crate) fn create(
        output: &Path,
        format: Format,
        session: &SessionSummary,
    ) -> anyhow::Result<(Self, Recorder)> {
        drop(Output::create(output, format, SCHEMA_LATEST)?);
        let directory = free(output);
        let config =
            RecorderConfig { ring_slots: RING_SLOTS, segment_bytes: SEGMENT, ..RecorderConfig::default() };
        let recorder = Recorder::create(&directory, session.clone(), &config)?;
        Ok((OutputDraft { output: output.to_owned(), format, directory }, recorder))
    }

    /// Puts the file in place and removes the recording.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        self.write().with_context(|| {
            let (output, directory) = (self.output.display(), self.directory.display());
            format!(
                "cannot write {output}; everything is in {directory} (`stormlog convert {directory} OUT`)"
            )
        })?;
        // Left behind, it only takes room.
        let _ = std::fs::remove_dir_all(&self.directory);
        Ok(())
    }

    fn write(&self) -> anyhow::Result<()> {
        let mut output = Output::create(&self.output, self.format, SCHEMA_LATEST)?;
        for source in Source::find(&self.directory)? {
            for event in source.events(&ReadOptions::default())? {
                // Schema 4 expresses every event.
                let _ = output.write(&event?)?;
            }
        }
        output.finish()?;
        Ok(())
    }
}

/// `OUTPUT.recording`, or with a number when an earlier one is still there.
fn free(output: &Path) -> PathBuf {
    let named = |suffix: String| {
        let mut name = OsString::from(output.file_name().unwrap_or_default());
        name.push(suffix);
        output.with_file_name(name)
    };
    let mut path = named(".recording".to_owned());
    for number in 2.. {
        if !path.exists() {
            break;
        }
        path = named(format!(".recording-{number}"));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_recording_is_never_written_over() {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("out.csv");
        assert_eq!(free(&output), directory.path().join("out.csv.recording"));
        std::fs::create_dir(directory.path().join("out.csv.recording")).unwrap();
        assert_eq!(free(&output), directory.path().join("out.csv.recording-2"));
    }
}
