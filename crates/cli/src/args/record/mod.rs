//! Arguments of the commands that record a program.

pub(crate) mod attach;
pub(crate) mod heap;
pub(crate) mod keep;
pub(crate) mod live;
pub(crate) mod notify;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod ship;
pub(crate) mod top;
pub(crate) mod trigger;
pub(crate) mod watch;
