//! A recording as rows for other tools: every block's life, nothing left out. Must never hold the rows all at once.

mod json;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;

use std::io;

use serde::Serialize;

use stormlog_model::gpu_category::Category;

use crate::analysis::categories::Judge;
use crate::analysis::text;
use crate::intern::StackId;
use crate::lifetimes::BlockLifetime;
use crate::recording::Recording;
use crate::snapshot::PoolId;
use crate::timeline::pool_history::{self, HeldRange};
use crate::timeline::{HomeName, notes};

/// What other tools read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// One object with a list of blocks.
    Json,
    /// A trace for Perfetto and `chrome://tracing`: counters, blocks as spans, the program's own spans.
    Perfetto,
    /// A table with a row for each block.
    #[cfg(feature = "parquet")]
    Parquet,
}

/// Writes every block of the recordings.
pub fn export(recordings: &[Recording<'_>], format: ExportFormat, out: &mut dyn io::Write) -> io::Result<()> {
    match format {
        ExportFormat::Json => json::write(recordings, out),
        ExportFormat::Perfetto => perfetto::write(recordings, out),
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => parquet::write(recordings, out),
    }
}

/// One block.
#[derive(Debug, Clone, Serialize)]
struct Row {
    device: usize,
    addr: u64,
    size: u64,
    requested: u64,
    /// Null when it was there before the recording.
    born_event: Option<u32>,
    born_us: Option<i64>,
    /// When the program gave it back.
    released_event: Option<u32>,
    /// When it really became free; null when it never did.
    freed_event: Option<u32>,
    freed_us: Option<i64>,
    pool: Option<PoolId>,
    small: Option<bool>,
    stream: Option<u64>,
    category: &'static str,
    /// Index into the stacks.
    stack: u32,
}

/// The lifetimes of a recording's blocks, to be turned into rows one by one.
struct BlockLifetimes<'a> {
    recording: &'a Recording<'a>,
    lifetimes: Vec<BlockLifetime>,
    homes: Vec<u16>,
    names: Vec<HomeName>,
}

impl<'a> BlockLifetimes<'a> {
    fn of(recording: &'a Recording<'a>) -> Self {
        let lifetimes = recording.lifetimes();
        let (_, names, homes): (Vec<HeldRange>, _, _) = pool_history::follow(recording, &lifetimes);
        BlockLifetimes { recording, lifetimes, homes, names }
    }

    fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let mut judge = Judge::for_lives(self.recording);
        self.lifetimes.iter().zip(&self.homes).map(move |(life, &home)| {
            let at =
                |event: Option<u32>| self.recording.snapshot.event(self.recording.device, event? as usize);
            let born = at(life.born);
            let home = self.names.get(usize::from(home));
            let category: Category = judge.life(life, born.as_ref(), at(life.released).as_ref());
            Row {
                device: self.recording.device,
                addr: life.addr,
                size: life.size,
                requested: life.requested,
                born_event: life.born,
                born_us: born.and_then(|event| event.time_us),
                released_event: life.released,
                freed_event: life.freed,
                freed_us: at(life.freed).and_then(|event| event.time_us),
                pool: home.map(|home| home.pool),
                small: home.map(|home| home.small),
                stream: home.map(|home| home.stream),
                category: category.name(),
                stack: life.stack.0,
            }
        })
    }
}

/// A stack as its frames, innermost first.
fn frames<'a>(recording: &'a Recording<'_>, stack: u32) -> impl Iterator<Item = String> + 'a {
    let tables = &recording.snapshot.tables;
    tables.stack(StackId(stack)).map(|id| text::frame(tables, id))
}
