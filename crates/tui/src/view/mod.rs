//! What the screens look like. State in, letters and colours out; nothing here decides anything.

pub(crate) mod actions;
pub(crate) mod crashes;
pub(crate) mod findings;
mod flame;
pub(crate) mod frame;
mod framework_tables;
pub(crate) mod frameworks;
pub(crate) mod help;
mod lanes;
pub(crate) mod listing;
pub(crate) mod live;
pub(crate) mod local_time;
pub(crate) mod overview;
pub(crate) mod page;
mod plot;
pub(crate) mod process;
pub(crate) mod ranks;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod theme;
pub(crate) mod tree;

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod list_tests;
#[cfg(test)]
mod process_tests;
#[cfg(test)]
mod tests;
