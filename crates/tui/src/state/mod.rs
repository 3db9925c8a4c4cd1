//! What the screens know and how keys change it. No colours, no terminal, no files: everything here can be tested by calling it.

pub(crate) mod action_list;
pub(crate) mod actions;
pub(crate) mod axis;
pub(crate) mod crashes;
pub(crate) mod entry;
pub(crate) mod findings;
pub(crate) mod flame;
pub(crate) mod frameworks;
pub(crate) mod key;
pub(crate) mod list;
pub mod live;
pub(crate) mod overview;
pub(crate) mod page;
pub(crate) mod process;
pub(crate) mod ranks;
pub mod reading;
pub(crate) mod series;
pub mod tree;
