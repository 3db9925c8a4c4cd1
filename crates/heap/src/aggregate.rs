//! What a compactor folds records into when a capture is bounded: the heap itself.

use rustc_hash::FxHashMap;
use stormlog_capture::live::Header;
use stormlog_capture::source::{Piece, Source};
use stormlog_capture::{CaptureError, Fold};

use crate::checkpoint;
use crate::merge;
use crate::read_options::HeapReadOptions;
use crate::state::State;
use crate::stream::Stream;

/// The heap so far. Hand it to [`Compactor`](stormlog_capture::Compactor) as its `fold`.
#[derive(Debug)]
pub struct Aggregate {
    pub(crate) state: State,
    pub(crate) streams: Vec<Stream>,
    sample_bytes: u64,
}

fn options() -> HeapReadOptions {
    HeapReadOptions { keeps_history: true, ..HeapReadOptions::default() }
}

impl Default for Aggregate {
    fn default() -> Self {
        Aggregate { state: State::new(options(), 0), streams: Vec::new(), sample_bytes: 0 }
    }
}

impl Fold for Aggregate {
    fn begin(&mut self, header: &Header) {
        self.sample_bytes = header.sample_bytes;
        self.state = State::new(options(), header.sample_bytes);
        self.streams.clear();
    }

    fn restore(&mut self, bytes: &[u8]) -> bool {
        match checkpoint::load(bytes, options(), self.sample_bytes) {
            Some((state, streams)) => {
                (self.state, self.streams) = (state, streams);
                true
            }
            None => false,
        }
    }

    fn fold(&mut self, source: &Source, pieces: &[Piece], until_us: u64) -> Result<(), CaptureError> {
        merge::run(&mut self.state, &mut self.streams, source, pieces, until_us)
    }

    fn next_sequences(&self) -> FxHashMap<u32, u64> {
        self.streams.iter().map(|stream| (stream.id, stream.sequence)).collect()
    }

    fn state(&self) -> Vec<u8> {
        checkpoint::save(&self.state, &self.streams)
    }
}
