//! Where the screens' values come from: recordings read like any other reader reads them, and `/proc`. Nothing here knows a terminal,
//! and nothing here speaks to the process that is looked at.

pub(crate) mod answer;
pub(crate) mod crashes;
mod ending;
pub(crate) mod findings;
mod fleet;
pub(crate) mod frameworks;
pub(crate) mod kind;
mod names;
mod output;
mod pace;
mod past_heap;
mod plain;
mod poller;
mod process;
mod process_source;
mod recording_follower;
pub(crate) mod source;
mod telemetry;

pub(crate) use fleet::SharedFleet;
pub(crate) use poller::Poller;
pub use process_source::LiveTarget;
pub use recording_follower::RecordingFollower;
