//! Commands about the machine: what it has, and its memory as it changes.

pub(crate) mod info;
pub(crate) mod monitor;
