//! Parquet: the rows of the CSV, typed. Must hold the same weights.

use stormlog_model::stacks::StackProfile;
pub use stormlog_parquet::ParquetError;
use stormlog_parquet::{Column, Kind, TableWriter};

use crate::{label, outermost_first};

const COLUMNS: [Column; 7] = [
    column("thread", Kind::Text),
    column("bytes", Kind::Unsigned),
    column("count", Kind::Unsigned),
    column("function", Kind::Text),
    column("file", Kind::Text),
    column("line", Kind::Unsigned),
    column("stack", Kind::Text),
];

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, is_optional: false }
}

/// One row a stack and thread: `thread`, `bytes`, `count`, `function`, `file`, `line`, `stack` (the outermost first, `|` between its frames).
pub fn parquet(held: &StackProfile) -> Result<Vec<u8>, ParquetError> {
    let mut table = TableWriter::new(Vec::new(), "stacks", &COLUMNS)?;
    let names: Vec<String> = held.tree.frames.iter().map(|frame| label(frame).replace('|', "/")).collect();
    for row in &held.rows {
        let inner = held.tree.stack(row.node).next();
        let path = outermost_first(held, row.node);
        let stack = path.iter().map(|frame| names[*frame as usize].as_str()).collect::<Vec<_>>().join("|");
        table.text(0, held.threads.get(row.thread as usize).map(String::as_str));
        table.number(1, Some(row.bytes as i64));
        table.number(2, Some(row.count as i64));
        table.text(3, inner.map(|frame| frame.function.as_str()));
        table.text(4, inner.map(|frame| frame.file.as_str()));
        table.number(5, inner.map(|frame| frame.line.into()));
        table.text(6, Some(&stack));
        table.end_row()?;
    }
    table.finish()
}
