//! One file a command, a folder a domain (the groups of `stormlog --help`): options in, text out.

pub(crate) mod crash;
pub(crate) mod heap;
pub(crate) mod machine;
pub(crate) mod monitoring;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod screen;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod telemetry;
mod whole_file;
