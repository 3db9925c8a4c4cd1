//! Commands that record: start a program, attach to one, watch one.

pub(crate) mod attach;
pub(crate) mod flight;
pub(crate) mod framework;
pub(crate) mod live;
pub(crate) mod notify;
pub(crate) mod retention;
pub(crate) mod run;
pub(crate) mod run_finish;
mod run_heap;
mod run_jax;
mod run_live;
pub(crate) mod run_start;
pub(crate) mod run_story;
pub(crate) mod ship;
pub(crate) mod top;
pub(crate) mod track;
pub(crate) mod track_export;
pub(crate) mod trigger;
pub(crate) mod watch;
