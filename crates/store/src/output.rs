//! Files we write: JSON, JSONL, CSV or Parquet, whole or not at all.
//!
//! How a file gets its name is for `stormlog-files`; this module knows what is in it.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use stormlog_files::Existing;
use stormlog_model::{Event, Problem, Schema};

use crate::StoreError;
use crate::csv::CsvWriter;
use crate::json::event_text::{EventText, Layout};
#[cfg(feature = "parquet")]
use crate::parquet::ParquetWriter;

/// A format events can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An indented array, as `export_events` writes.
    Json,
    /// One record a line with sorted keys, as a sink segment.
    Jsonl,
    /// One row a record, metadata as JSON.
    Csv,
    /// Typed columns.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Format {
    /// The format of a name such as `csv` or of a file's extension.
    pub fn of_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "json" => Some(Format::Json),
            "jsonl" | "ndjson" => Some(Format::Jsonl),
            "csv" => Some(Format::Csv),
            #[cfg(feature = "parquet")]
            "parquet" => Some(Format::Parquet),
            _ => None,
        }
    }

    /// The format a path's extension asks for.
    pub fn of_path(path: &Path) -> Option<Self> {
        Format::of_name(path.extension()?.to_str()?)
    }
}

/// Where bytes go.
type Bytes = BufWriter<Box<dyn Write + Send>>;

enum Encoder {
    Json {
        text: EventText,
        line: Vec<u8>,
        out: Bytes,
        array: bool,
        first: bool,
    },
    Csv(Box<CsvWriter<Bytes>>),
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetWriter<Bytes>>),
}

/// An open output.
pub struct Output {
    encoder: Encoder,
    target: PathBuf,
    /// The file under its temporary name; `None` for a stream.
    pending: Option<stormlog_files::Output>,
}

impl Output {
    /// Starts writing the file that will be at `path`.
    pub fn create(path: &Path, format: Format, schema: Schema) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io(path, error);
        let pending = stormlog_files::Output::create(path, Existing::Replace).map_err(failed)?;
        let file = pending.writer().map_err(failed)?;
        let encoder = encoder(Box::new(file), format, schema).map_err(failed)?;
        Ok(Output { encoder, target: path.to_owned(), pending: Some(pending) })
    }

    /// Starts writing to a stream, such as standard output.
    pub fn stream(out: Box<dyn Write + Send>, format: Format, schema: Schema) -> Result<Self, StoreError> {
        let target = PathBuf::from("-");
        let encoder = encoder(out, format, schema).map_err(|error| StoreError::io(&target, error))?;
        Ok(Output { encoder, target, pending: None })
    }

    /// Marks texts that a spreadsheet would take for a formula; only CSV has them.
    pub fn guard_formulas(&mut self) {
        if let Encoder::Csv(writer) = &mut self.encoder {
            writer.guard_formulas();
        }
    }

    /// Writes one event. The inner problem is an event the schema cannot express; it is left out.
    pub fn write(&mut self, event: &Event) -> Result<Result<(), Problem>, StoreError> {
        let written = match &mut self.encoder {
            Encoder::Json { text, line, out, array, first } => {
                line.clear();
                if let Err(problem) = text.append(line, event) {
                    return Ok(Err(problem));
                }
                let before: &[u8] = match (*array, *first) {
                    (false, _) => b"",
                    (true, true) => b"\n  ",
                    (true, false) => b",\n  ",
                };
                *first = false;
                let after: &[u8] = if *array { b"" } else { b"\n" };
                out.write_all(before)
                    .and_then(|()| out.write_all(line))
                    .and_then(|()| out.write_all(after))
                    .map(Ok)
            }
            Encoder::Csv(writer) => writer.write(event),
            #[cfg(feature = "parquet")]
            Encoder::Parquet(writer) => writer.write(event).map_err(io::Error::other),
        };
        written.map_err(|error| StoreError::io(&self.target, error))
    }

    /// Completes the file and puts it in place.
    pub fn finish(self) -> Result<(), StoreError> {
        let Output { encoder, target, pending } = self;
        let finished = match encoder {
            Encoder::Json { mut out, array, first, .. } => {
                let end: &[u8] = match (array, first) {
                    (false, _) => b"",
                    (true, true) => b"]",
                    (true, false) => b"\n]",
                };
                out.write_all(end).and_then(|()| out.flush())
            }
            Encoder::Csv(writer) => writer.finish(),
            #[cfg(feature = "parquet")]
            Encoder::Parquet(writer) => writer.finish().map_err(io::Error::other),
        };
        finished.map_err(|error| StoreError::io(&target, error))?;
        match pending {
            Some(pending) => pending.finish().map_err(|error| StoreError::io(&target, error)),
            None => Ok(()),
        }
    }
}

fn encoder(out: Box<dyn Write + Send>, format: Format, schema: Schema) -> io::Result<Encoder> {
    let mut out = BufWriter::with_capacity(1 << 18, out);
    Ok(match format {
        Format::Json => {
            out.write_all(b"[")?;
            let text = EventText::new(Layout::Indented, schema);
            Encoder::Json { text, line: Vec::new(), out, array: true, first: true }
        }
        Format::Jsonl => {
            let text = EventText::new(Layout::SortedLine, schema);
            Encoder::Json { text, line: Vec::new(), out, array: false, first: true }
        }
        Format::Csv => Encoder::Csv(Box::new(CsvWriter::new(out, schema)?)),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            Encoder::Parquet(Box::new(ParquetWriter::new(out, schema).map_err(io::Error::other)?))
        }
    })
}
