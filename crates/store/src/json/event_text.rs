//! Events as JSON text, without building a tree for each: metadata that repeats is spelt once.

use std::io::{self, Write};
use std::sync::Arc;

use serde_json::Value;
use stormlog_model::{Event, FIELDS, Field, FieldValue, Metadata, Problem, Schema};

use super::write;

/// How the records of a file are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One line a record, keys sorted: what a sink segment holds.
    SortedLine,
    /// Indented by two, one level deep: an item of an exported array.
    Indented,
}

/// Writes events as text.
#[derive(Debug)]
pub struct EventText {
    layout: Layout,
    schema: Schema,
    order: Vec<Field>,
    last: Option<(Arc<Metadata>, Vec<u8>)>,
}

impl EventText {
    /// A writer of that layout and schema.
    pub fn new(layout: Layout, schema: Schema) -> Self {
        let mut order: Vec<Field> =
            FIELDS.iter().map(|(field, _)| *field).filter(|field| field.is_known_in(schema)).collect();
        if layout == Layout::SortedLine {
            order.sort_by_key(|field| field.name());
        }
        EventText { layout, schema, order, last: None }
    }

    /// Appends the text of one event to `out`, without a line end. An event the schema cannot express is a problem,
    /// and nothing is written.
    pub fn append(&mut self, out: &mut Vec<u8>, event: &Event) -> Result<(), Problem> {
        event.expressible_in(self.schema)?;
        out.push(b'{');
        for index in 0..self.order.len() {
            let field = self.order[index];
            match (self.layout, index) {
                (Layout::Indented, 0) => out.extend_from_slice(b"\n    "),
                (Layout::Indented, _) => out.extend_from_slice(b",\n    "),
                (_, 0) => {}
                _ => out.extend_from_slice(b", "),
            }
            out.push(b'"');
            out.extend_from_slice(field.name().as_bytes());
            out.extend_from_slice(b"\": ");
            // Writing to memory cannot fail.
            let _ = self.value(out, event, field);
        }
        out.extend_from_slice(if self.layout == Layout::Indented { b"\n  }" } else { b"}" });
        Ok(())
    }

    fn value(&mut self, out: &mut Vec<u8>, event: &Event, field: Field) -> io::Result<()> {
        match event.field(field, self.schema) {
            FieldValue::Null => out.write_all(b"null"),
            FieldValue::Unsigned(number) => write!(out, "{number}"),
            FieldValue::Signed(number) => write!(out, "{number}"),
            FieldValue::Text(text) => write::write_compact(out, &text),
            FieldValue::Metadata(_) => self.metadata(out, event),
        }
    }

    fn metadata(&mut self, out: &mut Vec<u8>, event: &Event) -> io::Result<()> {
        let known = self.last.as_ref().is_some_and(|(metadata, _)| Arc::ptr_eq(metadata, &event.metadata));
        if !known {
            let mut value = Value::Object(event.metadata.to_map(self.schema));
            let mut spelt = Vec::new();
            match self.layout {
                Layout::SortedLine => {
                    write::sort_keys(&mut value);
                    write::write_compact(&mut spelt, &value)?;
                }
                Layout::Indented => write::write_indented(&mut spelt, &value, 2)?,
            }
            self.last = Some((Arc::clone(&event.metadata), spelt));
        }
        match &self.last {
            Some((_, spelt)) => out.write_all(spelt),
            None => Ok(()),
        }
    }
}

/// Metadata on one line, for tables: spelt once while it repeats.
#[derive(Debug, Default)]
pub(crate) struct MetadataText {
    last: Option<(Arc<Metadata>, String)>,
}

impl MetadataText {
    pub(crate) fn spell(&mut self, event: &Event, schema: Schema) -> &str {
        let known = self.last.as_ref().is_some_and(|(metadata, _)| Arc::ptr_eq(metadata, &event.metadata));
        if !known {
            let spelt = write::dumps(&event.metadata.to_map(schema));
            self.last = Some((Arc::clone(&event.metadata), spelt));
        }
        self.last.as_ref().map_or("", |(_, spelt)| spelt)
    }
}
