//! Parquet: a row for each block, with its stack as one text.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::{Lives, Row, frames};
use crate::recording::Recording;

/// Rows a group: a group is held in memory.
const GROUP_ROWS: usize = 32_768;

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
    let mut columns = Vec::new();
    for (name, _) in NUMBERS {
        let builder =
            Type::primitive_type_builder(name, Physical::INT64).with_repetition(Repetition::OPTIONAL);
        columns.push(Arc::new(builder.build()?));
    }
    for name in TEXTS {
        let builder =
            Type::primitive_type_builder(name, Physical::BYTE_ARRAY).with_converted_type(ConvertedType::UTF8);
        columns.push(Arc::new(builder.with_repetition(Repetition::REQUIRED).build()?));
    }
    let schema = Arc::new(Type::group_type_builder("blocks").with_fields(columns).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_created_by(concat!("stormlog ", env!("CARGO_PKG_VERSION")).to_owned());
    // A column writer wants a sink it may send between threads; a group is small.
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, schema, Arc::new(properties.build()))?;
    for recording in recordings {
        let stacks = recording.snapshot.tables.stack_count() as u32;
        let texts: Vec<String> =
            (0..stacks).map(|stack| frames(recording, stack).collect::<Vec<_>>().join("|")).collect();
        let lives = Lives::of(recording);
        let mut rows = lives.rows().peekable();
        while rows.peek().is_some() {
            let group_rows: Vec<Row> = rows.by_ref().take(GROUP_ROWS).collect();
            let mut group = writer.next_row_group()?;
            let mut column = 0;
            while let Some(mut next) = group.next_column()? {
                match next.untyped() {
                    ColumnWriter::Int64ColumnWriter(numbers) => {
                        let Some((_, number)) = NUMBERS.get(column) else { break };
                        let cells: Vec<Option<i64>> = group_rows.iter().map(number).collect();
                        let known: Vec<i64> = cells.iter().copied().flatten().collect();
                        let levels: Vec<i16> = cells.iter().map(|cell| cell.is_some().into()).collect();
                        numbers.write_batch(&known, Some(&levels), None)?;
                    }
                    ColumnWriter::ByteArrayColumnWriter(words) => {
                        let is_category = column == NUMBERS.len();
                        let stack = |row: &Row| texts.get(row.stack as usize).map_or("", String::as_str);
                        let cells = group_rows.iter().map(|row| match is_category {
                            true => ByteArray::from(row.category),
                            false => stack(row).into(),
                        });
                        let cells: Vec<ByteArray> = cells.collect();
                        words.write_batch(&cells, None, None)?;
                    }
                    _ => {}
                }
                next.close()?;
                column += 1;
            }
            group.close()?;
        }
    }
    writer.close()?;
    out.write_all(&file)
}
