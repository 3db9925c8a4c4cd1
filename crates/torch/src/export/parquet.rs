//! Parquet: a row for each block, with its stack as one text.

use std::io::{self, Write};

use stormlog_parquet::{Column, Kind, TableWriter};

use super::{BlockLifetimes, Row, frames};
use crate::recording::Recording;

type Number = fn(&Row) -> Option<i64>;

/// Numbers, null where unknown; addresses and sizes are below the sign.
const NUMBERS: [(&str, Number); 13] = [
    ("device", |row| Some(row.device as i64)),
    ("addr", |row| Some(row.addr as i64)),
    ("size", |row| Some(row.size as i64)),
    ("requested", |row| Some(row.requested as i64)),
    ("born_event", |row| row.born_event.map(i64::from)),
    ("born_us", |row| row.born_us),
    ("released_event", |row| row.released_event.map(i64::from)),
    ("freed_event", |row| row.freed_event.map(i64::from)),
    ("freed_us", |row| row.freed_us),
    ("pool_owner", |row| row.pool.map(|pool| pool.0.into())),
    ("pool_number", |row| row.pool.map(|pool| pool.1.into())),
    ("small", |row| row.small.map(i64::from)),
    ("stream", |row| row.stream.map(|stream| stream as i64)),
];
const TEXTS: [&str; 2] = ["category", "stack"];

pub(super) fn write(recordings: &[Recording<'_>], out: &mut dyn Write) -> io::Result<()> {
    let numbers = NUMBERS.map(|(name, _)| Column { name, kind: Kind::Signed, is_optional: true });
    let texts = TEXTS.map(|name| Column { name, kind: Kind::Text, is_optional: false });
    let columns: Vec<Column> = numbers.into_iter().chain(texts).collect();
    // A column writer wants a sink it may send between threads.
    let mut table = TableWriter::new(Vec::new(), "blocks", &columns)?;
    for recording in recordings {
        let stacks = recording.snapshot.tables.stack_count() as u32;
        let texts: Vec<String> =
            (0..stacks).map(|stack| frames(recording, stack).collect::<Vec<_>>().join("|")).collect();
        let lifetimes = BlockLifetimes::of(recording);
        for row in lifetimes.rows() {
            for (column, (_, number)) in NUMBERS.iter().enumerate() {
                table.number(column, number(&row));
            }
            table.text(NUMBERS.len(), Some(row.category));
            table.text(NUMBERS.len() + 1, texts.get(row.stack as usize).map(String::as_str));
            table.end_row()?;
        }
    }
    out.write_all(&table.finish()?)
}
