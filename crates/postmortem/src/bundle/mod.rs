//! OOM bundles: the directory that says why a program died, written whole or not at all, and read whatever its origin.
//!
//! The four files of 0.4.3 keep its names, keys, order and indentation; what we know beyond it is in `evidence.json`
//! beside them. Must never leave half a bundle under a final name, hold more than a buffer of events, or delete anything
//! that is not a bundle.

mod draft;
mod error;
mod event_evidence;
mod event_text;
mod evidence;
mod list;
mod name;
mod read;
mod retention;
mod write;

pub use draft::Draft;
pub use error::BundleError;
pub use evidence::{DeviceSample, Evidence, HeldBy, MapRow};
pub use list::{BundleRow, Listing, list};
pub use name::BundleName;
pub use read::Bundle;
pub use retention::{Removal, Retention, sweep_unfinished};
pub use write::{BundleContent, BundleWriter, Environment, ExceptionText, Written};

/// The files of 0.4.3, in the order its manifest lists them.
pub(crate) const FILES: [&str; 4] = ["manifest.json", "events.json", "metadata.json", "environment.json"];
/// Our own file.
pub(crate) const EVIDENCE_FILE: &str = "evidence.json";
