//! One file a command, a folder a domain (the groups of `stormlog --help`): options in, text out.

mod atomic_write;
pub(crate) mod crash;
pub(crate) mod fleet;
pub(crate) mod heap;
#[cfg(feature = "parquet")]
pub(crate) mod lake;
pub(crate) mod machine;
pub(crate) mod monitoring;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod screen;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod telemetry;
