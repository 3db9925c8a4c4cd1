//! Parquet: the rows of the CSV, typed. Must hold the same weights.

use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
pub use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use stormlog_model::stacks::{Holding, Holdings};

use crate::{label, outermost_first};

/// Rows a group: a group is held in memory.
const GROUP_ROWS: usize = 32_768;
const COLUMNS: [(&str, bool); 7] = [
    ("thread", true),
    ("bytes", false),
    ("count", false),
    ("function", true),
    ("file", true),
    ("line", false),
    ("stack", true),
];

/// One row a stack and thread: `thread`, `bytes`, `count`, `function`, `file`, `line`, `stack` (the outermost first, `|` between its frames).
pub fn parquet(held: &Holdings) -> Result<Vec<u8>, ParquetError> {
    let mut columns = Vec::new();
    for (name, is_text) in COLUMNS {
        let builder = match is_text {
            true => Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                .with_converted_type(ConvertedType::UTF8),
            false => Type::primitive_type_builder(name, Physical::INT64)
                .with_converted_type(ConvertedType::UINT_64),
        };
        columns.push(Arc::new(builder.with_repetition(Repetition::REQUIRED).build()?));
    }
    let schema = Arc::new(Type::group_type_builder("stacks").with_fields(columns).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_created_by(concat!("stormlog ", env!("CARGO_PKG_VERSION")).to_owned());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build()))?;
    let names: Vec<String> = held.tree.frames.iter().map(|frame| label(frame).replace('|', "/")).collect();
    for rows in held.rows.chunks(GROUP_ROWS) {
        let mut group = writer.next_row_group()?;
        for (name, _) in COLUMNS {
            let Some(mut column) = group.next_column()? else { break };
            match column.untyped() {
                ColumnWriter::Int64ColumnWriter(writer) => {
                    // Parquet keeps unsigned numbers as the same bits with a sign.
                    let cells: Vec<i64> = rows.iter().map(|row| number(held, row, name) as i64).collect();
                    writer.write_batch(&cells, None, None)?;
                }
                ColumnWriter::ByteArrayColumnWriter(writer) => {
                    let cells: Vec<ByteArray> =
                        rows.iter().map(|row| text(held, &names, row, name).as_str().into()).collect();
                    writer.write_batch(&cells, None, None)?;
                }
                _ => {}
            }
            column.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
}

fn number(held: &Holdings, row: &Holding, name: &str) -> u64 {
    match name {
        "bytes" => row.bytes,
        "count" => row.count,
        _ => held.tree.stack(row.node).next().map_or(0, |frame| frame.line.into()),
    }
}

fn text(held: &Holdings, names: &[String], row: &Holding, name: &str) -> String {
    let inner = || held.tree.stack(row.node).next();
    match name {
        "thread" => held.threads.get(row.thread as usize).cloned().unwrap_or_default(),
        "function" => inner().map_or_else(String::new, |frame| frame.function.clone()),
        "file" => inner().map_or_else(String::new, |frame| frame.file.clone()),
        _ => {
            let path = outermost_first(held, row.node);
            path.iter().map(|frame| names[*frame as usize].as_str()).collect::<Vec<_>>().join("|")
        }
    }
}
