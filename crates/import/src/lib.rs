//! Memory profiles that other tools wrote, read into the terms of a heap: stacks, blocks, what is held.
//!
//! ```text
//! recognise(path) ─► Format ─► read(path, &mut impl Sink)
//! ```
//!
//! A format is recognised by its content, never by its name. A reader trusts nothing: it never panics, holds no more than a bounded part of its
//! input, and runs nothing that a file names.
#![forbid(unsafe_code)]

mod address_text;
mod error;
mod frame;
mod heaptrack;
mod input;
mod kineto;
mod kineto_json;
mod maps;
mod massif;
mod nsight;
mod perfetto;
mod perfetto_tables;
mod pprof;
mod recognise;
mod sanitizer;
mod sanitizer_xml;
mod sink;
mod sqlite;
mod sqlite_record;
mod sqlite_schema;
mod wire;

use std::path::Path;

pub use error::ImportError;
pub use frame::name_start;
pub use recognise::{Format, recognise};
pub use sink::{About, Held, Module, Node, ROOT, Sink, Site, Step};

/// Reads the file as what it was recognised to be.
pub fn read(path: &Path, format: Format, sink: &mut dyn Sink) -> Result<(), ImportError> {
    let file = input::File { path, format };
    match format {
        Format::Pprof => pprof::read(&file, sink),
        Format::Heaptrack => heaptrack::read(&file, sink),
        Format::Massif => massif::read(&file, sink),
        Format::Jemalloc | Format::Gperftools => address_text::read(&file, sink),
        Format::Kineto => kineto::read(&file, sink),
        Format::Perfetto => perfetto::read(&file, sink),
        Format::NsightSystems => nsight::read(&file, sink),
        Format::Sqlite => Err(nsight::other_database(&file)),
        Format::SanitizerText => sanitizer::read(&file, sink),
        Format::SanitizerXml => sanitizer_xml::read(&file, sink),
    }
}
