//! Run directories on their way elsewhere: to a shared directory, an HTTP receiver or an S3-compatible store, and back from the latter two.
//!
//! A file travels by blocks. What is at the target is known from a manifest there, so that shipping again sends what changed and nothing else, whatever was
//! killed meanwhile. Nothing is spooled: the run directory itself is what is left to send. A copy is marked by its manifest, and no reader judges its
//! processes by this machine's.
//!
//! Must never hold up the recorded program (it is a process of its own), never follow a link at the source or at a target, never log a token.
#![forbid(unsafe_code)]

mod block;
mod credentials;
mod destination;
mod directory;
mod error;
mod fetch;
mod listing;
mod manifest;
mod name;
mod objects;
mod order;
mod pass;
mod settings;
mod shipper;
mod sign;
mod source;
mod status;
mod target;
mod throttle;

pub use error::ShipError;
pub use fetch::{FetchedRun, fetch};
pub use settings::{DEFAULT_RATE, DEFAULT_WAIT, Settings};
pub use shipper::{ShippedRun, ship_run, ship_stored};
pub use status::{ShippingStatus, State};
