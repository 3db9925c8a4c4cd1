//! Commands on recorded telemetry: judge, compare, ask, convert.

pub(crate) mod analyze;
mod analyze_plots;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod framework_analyze;
pub(crate) mod gpumemprof_analyze;
pub(crate) mod query;
pub(crate) mod recordings;
pub(crate) mod sessions;
pub(crate) mod sql;
mod trace;
pub(crate) mod validate;
