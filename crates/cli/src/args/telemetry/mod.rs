//! Arguments of the commands that read telemetry.

pub(crate) mod analyze;
pub(crate) mod files;
pub(crate) mod query;
