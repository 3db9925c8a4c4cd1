//! Rows as a table, as JSON the way Python dumps it, or as CSV.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::Value;
use stormlog_model::Record;
use stormlog_store::json::write::{dumps, sort_keys, write_indented};

use super::Mode;

/// Writes rows that are made as they are written; `rows` is asked more than once.
pub(crate) fn emit<I: Iterator<Item = Record>>(
    out: &mut impl Write,
    rows: &dyn Fn() -> I,
    mode: Mode,
    preferred: &[&str],
) -> io::Result<()> {
    match mode {
        Mode::Json => json(out, rows()),
        Mode::Csv => csv(out, &columns(rows(), preferred), rows()),
        Mode::Table => table(out, &columns(rows(), preferred), rows),
    }
}

/// The columns people look at first, then the others by name.
fn columns(rows: impl Iterator<Item = Record>, preferred: &[&str]) -> Vec<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    for row in rows {
        for key in row.keys() {
            if !found.contains(key) {
                found.insert(key.clone());
            }
        }
    }
    let mut columns: Vec<String> =
        preferred.iter().filter(|name| found.remove(**name)).map(|name| (*name).to_owned()).collect();
    columns.extend(found);
    if columns.is_empty() { preferred.iter().map(|name| (*name).to_owned()).collect() } else { columns }
}

fn json(out: &mut impl Write, rows: impl Iterator<Item = Record>) -> io::Result<()> {
    let mut is_first = true;
    for row in rows {
        out.write_all(if is_first { b"[\n  " } else { b",\n  " })?;
        let mut value = Value::Object(row);
        sort_keys(&mut value);
        write_indented(&mut *out, &value, 1)?;
        is_first = false;
    }
    out.write_all(if is_first { b"[]\n" } else { b"\n]\n" })
}

fn csv(out: &mut impl Write, columns: &[String], rows: impl Iterator<Item = Record>) -> io::Result<()> {
    write!(out, "{}\r\n", columns.join(","))?;
    for row in rows {
        let cells: Vec<String> = columns.iter().map(|column| quoted(&cell(row.get(column), ""))).collect();
        write!(out, "{}\r\n", cells.join(","))?;
    }
    Ok(())
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

fn table<I: Iterator<Item = Record>>(
    out: &mut impl Write,
    columns: &[String],
    rows: &dyn Fn() -> I,
) -> io::Result<()> {
    let labels: Vec<String> = columns.iter().map(|column| label(column)).collect();
    let mut widths: Vec<usize> = labels.iter().map(|label| label.chars().count()).collect();
    let mut is_empty = true;
    for row in rows() {
        is_empty = false;
        for (column, width) in columns.iter().zip(&mut widths) {
            *width = (*width).max(cell(row.get(column), "-").chars().count());
        }
    }
    if is_empty {
        return writeln!(out, "No rows.");
    }
    let line = |cells: Vec<String>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    writeln!(out, "{}", line(labels))?;
    writeln!(out, "{}", line(widths.iter().map(|width| "-".repeat(*width)).collect()))?;
    for row in rows() {
        writeln!(out, "{}", line(columns.iter().map(|column| cell(row.get(column), "-")).collect()))?;
    }
    Ok(())
}

fn cell(value: Option<&Value>, nothing: &str) -> String {
    match value {
        None | Some(Value::Null) => nothing.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => if *flag { "True" } else { "False" }.to_owned(),
        Some(value @ (Value::Array(_) | Value::Object(_))) => {
            let mut sorted = value.clone();
            sort_keys(&mut sorted);
            dumps(&sorted)
        }
        Some(number) => dumps(number),
    }
}

/// `source_path` → `Source Path`.
fn label(column: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    column.split('_').map(word).collect::<Vec<String>>().join(" ")
}
