//! The table of a reading: one row a line of code, for a page that sorts and filters.

use serde_json::{Value, json};
use stormlog_render::table::{self, Column, Kind, Table};

use crate::reading::Reading;
use crate::rows::Row;

/// The page of these rows.
#[must_use]
pub fn table_page(reading: &Reading, rows: &[Row], owners: &[(String, String)]) -> String {
    let columns = [
        ("Own", Kind::Bytes),
        ("Total", Kind::Bytes),
        ("Allocations", Kind::Count),
        ("Function", Kind::Text),
        ("Place", Kind::Text),
        ("Thread", Kind::Text),
        ("Allocator", Kind::Text),
    ];
    table::page(&Table {
        title: format!("{}: memory {}", reading.program(), reading.words()),
        subtitle: reading.header(),
        notes: reading.notes(),
        empty: reading.empty(),
        columns: columns.map(|(name, kind)| Column { name, kind }).into(),
        sort_column: 0,
        rows: rows.iter().zip(owners).map(|(row, owners)| cells(row, owners)).collect(),
    })
}

fn cells(row: &Row, (threads, allocators): &(String, String)) -> Vec<Value> {
    let place = row.stack.first();
    let function = place.map_or("(no stack)", |place| &place.function);
    let line =
        place.filter(|place| place.line > 0).map_or_else(String::new, |place| format!(":{}", place.line));
    let file = place.map_or("", |place| &place.file);
    vec![
        json!(row.own_bytes),
        json!(row.total_bytes),
        json!(row.count),
        json!(function),
        json!(format!("{file}{line}")),
        json!(threads),
        json!(allocators),
    ]
}
