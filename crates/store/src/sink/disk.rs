//! A sink's state and its files: which segment is written, how it is opened, what is removed, the manifest.
//!
//! The other half of [`State`]. Whatever fails here fails before anything was given up, so that it can be tried again.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::paths::segment_name;
use super::state::{Origin, State, Tracked};
use super::{SinkError, SinkSegment, segment};

/// Names tried for a new segment. More taken ones in a row are not another process's segments but an attack.
const MAX_TAKEN_NAMES: usize = 1000;

impl State {
    /// The segment being appended to: the last one, while it is open, ours, and of the active session.
    pub(super) fn current(&self) -> Option<usize> {
        let at = self.segments.len().checked_sub(1)?;
        let Tracked { segment, origin } = &self.segments[at];
        let of_session = self.active.is_none() || segment.session_id == self.active;
        (!segment.closed && *origin != Origin::Foreign && of_session).then_some(at)
    }

    pub(super) fn plan_segment(&mut self) -> usize {
        let segment = SinkSegment {
            filename: self.next_name(),
            event_count: 0,
            size_bytes: 0,
            closed: false,
            session_id: self.active.clone(),
        };
        self.segments.push(Tracked { segment, origin: Origin::Planned });
        self.segments.len() - 1
    }

    fn next_name(&mut self) -> String {
        let index = self.next_index;
        self.next_index = index.saturating_add(1);
        segment_name(index)
    }

    pub(super) fn write_buffer(&mut self, at: usize) -> Result<(), SinkError> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open_segment(at)?,
        };
        match segment::append(&mut file, &self.buffer) {
            Ok(()) => self.file = Some(file),
            Err(failure) => {
                match failure.cut_to {
                    // Cut back: the file is kept, so a failing disk costs no reopening and no reading.
                    None => self.file = Some(file),
                    Some(size) => self.pending_cut = Some((self.segments[at].segment.filename.clone(), size)),
                }
                return Err(SinkError::io(failure.error));
            }
        }
        Ok(())
    }

    fn open_segment(&mut self, at: usize) -> Result<File, SinkError> {
        let was_cut = self.finish_cut(at)?;
        if self.segments[at].origin == Origin::Planned {
            return self.create_segment(at);
        }
        let path = self.path_of(at);
        if !was_cut {
            let (size, records) = segment::repair_tail(&path)?;
            let segment = &mut self.segments[at].segment;
            (segment.size_bytes, segment.event_count) = (size, records);
        }
        segment::reopen(&path)
    }

    /// A file of our own: a name another process took since is passed over, so no two ever write one segment.
    fn create_segment(&mut self, at: usize) -> Result<File, SinkError> {
        for _ in 0..MAX_TAKEN_NAMES {
            if let Some(file) = segment::create(&self.path_of(at))? {
                self.segments[at].origin = Origin::Existing;
                // Best effort: the records are synced, this makes their file's name survive a power cut as well.
                let _ = File::open(&self.config.root_dir).and_then(|directory| directory.sync_all());
                return Ok(file);
            }
            self.segments[at].segment.filename = self.next_name();
        }
        Err(SinkError::at(self.path_of(at), io::Error::from(ErrorKind::AlreadyExists)))
    }

    /// Cuts a segment back where a failed write could not. True when that was the current one, whose counts then
    /// still hold. On an error the cut stays pending.
    fn finish_cut(&mut self, at: usize) -> Result<bool, SinkError> {
        let Some((filename, size)) = &self.pending_cut else { return Ok(false) };
        let cut = segment::cut_back(&self.config.root_dir.join(filename), *size)?;
        let is_current = *filename == self.segments[at].segment.filename;
        self.pending_cut = None;
        Ok(cut && is_current)
    }

    /// Removes the oldest closed segments while there are too many, or too much in them.
    pub(super) fn prune(&mut self) -> Result<(), SinkError> {
        while self.segments.len() as u64 > self.config.retention_max_files
            || self.retained_bytes() > self.config.retention_max_total_bytes
        {
            let Some(at) = self.segments.iter().position(|tracked| tracked.segment.closed) else { break };
            match fs::remove_file(self.path_of(at)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    // Kept, and tried again with the next flush.
                    return self.failed(SinkError::at(self.path_of(at), error));
                }
                _ => {}
            }
            let removed = self.segments.remove(at);
            self.pruned_segments += 1;
            self.pruned_bytes = self.pruned_bytes.saturating_add(removed.segment.size_bytes);
        }
        Ok(())
    }

    pub(super) fn write_manifest(&mut self, durable: bool) -> Result<(), SinkError> {
        match self.manifest().write(&self.config.root_dir, durable) {
            Ok(()) => Ok(()),
            Err(error) => self.failed(error),
        }
    }

    /// Counts a failure; bounded mode continues, else it is the caller's.
    pub(super) fn failed(&mut self, error: SinkError) -> Result<(), SinkError> {
        self.failures.record(&error, &self.config);
        if self.config.is_bounded() { Ok(()) } else { Err(error) }
    }

    pub(super) fn retained_bytes(&self) -> u64 {
        self.segments.iter().fold(0, |sum, tracked| sum.saturating_add(tracked.segment.size_bytes))
    }

    fn path_of(&self, at: usize) -> PathBuf {
        self.config.root_dir.join(&self.segments[at].segment.filename)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{SinkConfig, open};
    use super::*;

    #[test]
    fn a_cut_that_failed_is_made_before_the_next_write() {
        let root = tempfile::tempdir().unwrap();
        let config = SinkConfig { flush_every_events: 1, ..SinkConfig::new(root.path()) };
        let mut state = open::open(Arc::new(config), "h".into()).unwrap();
        state.append("{}", None).unwrap();
        // As a write leaves it that failed in the middle and could not be cut back either.
        let path = root.path().join("segment-000001.jsonl");
        fs::write(&path, "{}\n{\"whole, but failed\": 1}\n{\"to").unwrap();
        state.file = None;
        state.pending_cut = Some(("segment-000001.jsonl".into(), 3));
        state.append("[]", None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n[]\n");
        assert_eq!(state.segments[0].segment.event_count, 2);
        assert_eq!(state.pending_cut, None);
        // While the cut fails nothing is written, and it stays pending.
        state.file = None;
        state.pending_cut = Some(("segment-000001.jsonl".into(), 3));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(state.append("{}", None).is_err());
        assert!(state.pending_cut.is_some());
    }
}
