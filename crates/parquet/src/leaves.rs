//! Tables with groups, lists and maps, leaf by leaf: the caller gives the levels. For the files of other tools' formats; one row group.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// The cells of a leaf of the schema.
#[derive(Debug)]
pub struct Leaf {
    /// Those that are known.
    pub values: LeafValues,
    /// The definition level of every cell.
    pub levels: Vec<i16>,
    /// The repetition level of every cell, of a list or a map.
    pub repeats: Option<Vec<i16>>,
}

/// Cells of one type.
#[derive(Debug)]
pub enum LeafValues {
    /// Text.
    Texts(Vec<String>),
    /// 64 bits.
    Integers(Vec<i64>),
    /// 32 bits.
    Shorts(Vec<i32>),
    /// True or false.
    Booleans(Vec<bool>),
}

/// Writes a file of this schema, in Parquet's own notation, whose leaves are given in its order.
pub fn write_leaves<W: Write + Send>(
    out: W,
    schema: &str,
    leaves: Vec<Leaf>,
    metadata: &[(&str, String)],
) -> Result<W, ParquetError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_created_by(concat!("stormlog ", env!("CARGO_PKG_VERSION")).to_owned());
    let schema = Arc::new(parse_message_type(schema)?);
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    for leaf in leaves {
        let wrong = || ParquetError::General("a leaf is not in the schema".to_owned());
        let mut column = group.next_column()?.ok_or_else(wrong)?;
        let (levels, repeats) = (Some(leaf.levels.as_slice()), leaf.repeats.as_deref());
        match (column.untyped(), leaf.values) {
            (ColumnWriter::ByteArrayColumnWriter(writer), LeafValues::Texts(texts)) => {
                let texts: Vec<ByteArray> = texts.into_iter().map(|text| text.into_bytes().into()).collect();
                writer.write_batch(&texts, levels, repeats)?;
            }
            (ColumnWriter::Int64ColumnWriter(writer), LeafValues::Integers(values)) => {
                writer.write_batch(&values, levels, repeats)?;
            }
            (ColumnWriter::Int32ColumnWriter(writer), LeafValues::Shorts(values)) => {
                writer.write_batch(&values, levels, repeats)?;
            }
            (ColumnWriter::BoolColumnWriter(writer), LeafValues::Booleans(values)) => {
                writer.write_batch(&values, levels, repeats)?;
            }
            _ => return Err(wrong()),
        }
        column.close()?;
    }
    group.close()?;
    for (key, value) in metadata {
        writer.append_key_value_metadata(KeyValue::new((*key).to_owned(), value.clone()));
    }
    writer.into_inner()
}
