//! The extension module `stormlog._native`: the Rust rules and readers, callable from Python.
//!
//! Glue only. Rules live in `stormlog-model`, formats in `stormlog-store`; this crate turns Python objects into
//! their values and back. It must never keep state between calls outside the objects it hands out (`Sink`, `Recorder`,
//! `Tracker`, …, each safe across threads and `fork`), hold the interpreter while it waits for a file, or print. What
//! each function takes is written in the stubs, one for each submodule: `python/stormlog/_native/*.pyi`.

use pyo3::prelude::*;

mod allocation_failure;
mod analysis;
mod analysis_buffer;
mod attachments;
mod capture;
mod catalog;
mod cli;
mod code;
mod cuda_driver;
mod cuda_oom;
mod derived;
mod device_blocks;
mod diagnose;
mod error;
mod event_search;
mod events;
mod files;
mod gpus;
mod heap;
mod heap_error;
mod issues;
mod oom;
mod phase_replay;
mod phases;
mod plot;
mod process;
mod rank_diagnostics;
mod record;
mod recording;
mod report;
mod requests;
mod run_catalog;
mod runs;
mod sample;
mod session;
mod sink;
mod telemetry;
mod text;
mod torch_snapshot;
mod tracker;
mod tracker_settings;
mod tracking_event;

/// Adds a file's classes and functions to a module.
type Register = fn(&Bound<'_, PyModule>) -> PyResult<()>;

/// The submodules: name, docstring, and the files whose items each has. Each has a stub in `python/stormlog/_native/`.
const SUBMODULES: &[(&str, &str, &[Register])] = &[
    (
        "telemetry",
        "Telemetry records, events, sessions and their files.",
        &[
            telemetry::register,
            events::register,
            event_search::register,
            session::register,
            derived::register,
            recording::register,
        ],
    ),
    ("sink", "The append-only sink of telemetry and its rollups.", &[sink::register]),
    (
        "tracking",
        "Trackers, phases, and the memory of this process.",
        &[
            tracker::register,
            tracker_settings::register,
            sample::register,
            phases::register,
            process::register,
        ],
    ),
    (
        "heap",
        "Heap recordings of this process, and captures.",
        &[heap::register, device_blocks::register, capture::register, heap_error::register],
    ),
    ("code", "The owner of a frame's code, and the responsible frame of a stack.", &[code::register]),
    ("torch", "Snapshots of PyTorch's CUDA allocator.", &[torch_snapshot::register]),
    ("cuda", "GPUs and the driver's allocations.", &[gpus::register, cuda_driver::register]),
    (
        "analysis",
        "Analysis rules for events, ranks and profiled calls.",
        &[analysis::register, analysis_buffer::register, phase_replay::register, rank_diagnostics::register],
    ),
    (
        "oom",
        "Out-of-memory exceptions and their bundles.",
        &[oom::register, cuda_oom::register, allocation_failure::register],
    ),
    (
        "catalog",
        "Recordings at a path, and queries over them.",
        &[
            catalog::register,
            runs::register,
            run_catalog::register,
            attachments::register,
            report::register,
            diagnose::register,
            rank_diagnostics::register_artifacts,
        ],
    ),
    ("issues", "Classification of events, and fingerprints of issues.", &[issues::register]),
    ("files", "Private files, and texts without secrets.", &[files::register]),
    ("requests", "Requests to this process, and snapshots of its memory.", &[requests::register]),
    ("plot", "Figures.", &[plot::register]),
    ("text", "Text for people, as the commands write it.", &[text::register]),
    ("command", "The command line inside the interpreter.", &[cli::register]),
];

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    let loaded = module.py().import("sys")?.getattr("modules")?;
    for (name, doc, files) in SUBMODULES {
        let full_name = format!("stormlog._native.{name}");
        let submodule = PyModule::new(module.py(), &full_name)?;
        submodule.setattr("__doc__", *doc)?;
        for register in *files {
            register(&submodule)?;
        }
        module.add(*name, &submodule)?;
        // `from stormlog._native.heap import …` looks here: the import system cannot find a module inside a module.
        loaded.set_item(full_name, &submodule)?;
    }
    Ok(())
}
