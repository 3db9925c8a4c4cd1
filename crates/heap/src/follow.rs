//! A capture read while it grows: each look reads only what is new.
//!
//! Must never ask the recorded process for anything, nor hold back its compactor.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stormlog_capture::live::Live;
use stormlog_capture::source::Source;

use crate::checkpoint;
use crate::error::HeapError;
use crate::heap::{Capture, Heap};
use crate::merge;
use crate::read_options::HeapReadOptions;
use crate::state::State;
use crate::stream::Stream;

/// A capture and what it says so far.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    source: Source,
    /// Which files `source` has open; a compactor may put another in their place.
    files: [Option<(u64, u64)>; 2],
    streams: Vec<Stream>,
    heap: Heap,
}

impl Follow {
    /// Opens a capture of ours, live or finished, and takes nothing in yet.
    pub fn open(path: &Path) -> Result<Follow, HeapError> {
        let path = Capture::open(path)?.path().to_owned();
        let files = files(&path);
        let source = Source::open(&path)?;
        let header = source.header()?;
        let heap = Heap {
            state: State::new(HeapReadOptions::default(), header.sample_bytes),
            header,
            samples: Vec::new(),
            ending: None,
            cut: None,
            lost_events: 0,
            complete: false,
            selected: None,
            imported: None,
        };
        let mut follow = Follow { path, source, files, streams: Vec::new(), heap };
        follow.restart()?;
        follow.read_samples()?;
        Ok(follow)
    }

    /// Takes in what was recorded since the last look, up to `now_us` (microseconds since the recording began): records of this very moment
    /// may still be on their way in other threads. When the process has ended, `u64::MAX` reads the rest.
    pub fn look(&mut self, now_us: u64) -> Result<(), HeapError> {
        let files = files(&self.path);
        if files != self.files && files != [None, None] {
            (self.source, self.files) = (Source::open(&self.path)?, files);
            if self.source.has_checkpoint() {
                // Records that were not seen here may have been folded into it.
                self.restart()?;
            }
            self.read_samples()?;
        }
        let pieces = self.source.pieces(true)?;
        merge::run(&mut self.heap.state, &mut self.streams, &self.source, &pieces, now_us)?;
        self.heap.header = self.source.header()?;
        if let Some(finished) = &self.source.finished {
            self.heap.ending = finished.ending()?;
        }
        Ok(())
    }

    /// What it says so far. Asked for what lives ([`Mode::Leaks`](crate::Mode::Leaks)) or ever was
    /// ([`Mode::Total`](crate::Mode::Total)); the makeup of the peak is known only at the end.
    #[must_use]
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// The same, to [select](Heap::select) the memory that is asked.
    pub fn heap_mut(&mut self) -> &mut Heap {
        &mut self.heap
    }

    /// The capture.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The process's memory as far as it was written down when the files were opened; a live view reads the process directly instead.
    fn read_samples(&mut self) -> Result<(), HeapError> {
        if let Some(finished) = &mut self.source.finished {
            finished.scan()?;
            self.heap.samples = finished.samples()?;
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), HeapError> {
        let sample_bytes = self.heap.header.sample_bytes;
        let base = self.source.finished.as_ref().map(|finished| finished.checkpoint()).transpose()?.flatten();
        let from = base.and_then(|bytes| checkpoint::load(&bytes, HeapReadOptions::default(), sample_bytes));
        (self.heap.state, self.streams) =
            from.unwrap_or_else(|| (State::new(HeapReadOptions::default(), sample_bytes), Vec::new()));
        Ok(())
    }
}

/// The live and the finished file by what the system knows them by.
fn files(path: &Path) -> [Option<(u64, u64)>; 2] {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    [identity(&Live::path_of(path)), identity(path)]
}
