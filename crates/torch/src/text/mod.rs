//! Reports as text for people. Paths and names are written as they are: a screen makes them harmless.

mod replay_page;
mod snapshot_page;

pub use replay_page::{settings_name, write_replay_page};
pub use snapshot_page::{write_oom, write_snapshot_page};
