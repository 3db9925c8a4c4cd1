//! What memory allocators write into a log when they fail, read into values: what was requested, what was free, what held the rest, and whether
//! the request was too large or the pool too fragmented.
//!
//! ```text
//! text ─► line::Line ─► one reader a format (bfc, cuda_async, tensorflow, xla) ─► failure_list::FailureList ─► Vec<Failure> ─► judge ─► page
//! ```
//!
//! A format is a file with a reader that is handed every line; [`Readers`] lists them. The text is hostile: it is read line by line, no value is
//! trusted, what is kept is bounded, and nothing panics. This crate must never open a file or print.
#![forbid(unsafe_code)]

mod bfc;
mod cuda_async;
mod failure;
mod failure_list;
mod judge;
mod line;
mod page;
mod tensorflow;
mod xla;

use std::io::{self, BufRead};

pub use failure::{Bin, Chunk, Failure, Framework, Holder, Pool, Program, SizeCount, Stats, Tensor, Totals};
pub use judge::{Free, Verdict};
pub use page::{advice, decisive, page, summary};

use failure_list::FailureList;
use line::{Line, LineReader};

/// The allocation failures that a text reports, in its order.
#[must_use]
pub fn read(text: &str) -> Vec<Failure> {
    // Reading from memory does not fail.
    read_from(text.as_bytes()).unwrap_or_default()
}

/// The same from a stream of any length, in bounded memory. Bytes that are not UTF-8 are replaced.
pub fn read_from(input: impl BufRead) -> io::Result<Vec<Failure>> {
    let mut readers = Readers::default();
    let mut failures = FailureList::default();
    let mut lines = LineReader::new(input);
    while let Some((number, text)) = lines.next_line()? {
        readers.line(&Line::of(number, &text), &mut failures);
    }
    Ok(failures.finish())
}

/// One reader of each format; the first that recognises a line keeps it.
#[derive(Default)]
struct Readers {
    bfc: bfc::Reader,
    cuda_async: cuda_async::Reader,
    tensorflow: tensorflow::Reader,
    xla: xla::Reader,
}

impl Readers {
    fn line(&mut self, line: &Line<'_>, failures: &mut FailureList) {
        let _ = self.bfc.line(line, failures)
            || self.cuda_async.line(line, failures)
            || self.tensorflow.line(line, failures)
            || self.xla.line(line, failures);
    }
}
