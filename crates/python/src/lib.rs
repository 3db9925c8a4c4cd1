//! The extension module `stormlog._native`: the Rust rules and readers, callable from Python.
//!
//! Glue only. Rules live in `stormlog-model`, formats in `stormlog-store`; this crate turns Python objects into
//! their values and back. It must never keep state between calls outside the objects it hands out (`Sink`, `Recorder`,
//! `Tracker`, …, each safe across threads and `fork`), hold the interpreter while it waits for a file, or print. What
//! each function takes is written in `python/stormlog/_native.pyi`.

use pyo3::prelude::*;

mod analysis;
mod analysis_buffer;
mod catalog;
mod cli;
mod cuda_driver;
mod derived;
mod error;
mod event_search;
mod events;
mod files;
mod gpus;
mod heap;
mod oom;
mod phases;
mod plot;
mod process;
mod record;
mod recording;
mod session;
mod sink;
mod telemetry;
mod text;
mod torch_snapshot;
mod tracker;
mod tracker_settings;
mod tracking_event;

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    telemetry::register(module)?;
    events::register(module)?;
    files::register(module)?;
    event_search::register(module)?;
    heap::register(module)?;
    session::register(module)?;
    derived::register(module)?;
    analysis::register(module)?;
    analysis_buffer::register(module)?;
    sink::register(module)?;
    catalog::register(module)?;
    recording::register(module)?;
    phases::register(module)?;
    plot::register(module)?;
    process::register(module)?;
    gpus::register(module)?;
    cuda_driver::register(module)?;
    oom::register(module)?;
    torch_snapshot::register(module)?;
    tracker::register(module)?;
    text::register(module)?;
    cli::register(module)
}
