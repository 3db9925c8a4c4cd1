//! The reader of a node's runs: looks at run directories again and again, and gives a picture of them.
//!
//! ```text
//! run directories, /proc ─► look (what grew) ─► LivingRun, Ended ─► NodePicture ─► serve (metrics); Fleet ─► tui, top
//! ```
//!
//! It reads what grew since the last look: the record of a run that has ended once, the logs of living runs from where they were left. A look ends at
//! its deadline; what was not read by then is marked in that picture, and is read next time. What it holds is bounded, whatever the directories
//! hold. The rules of a living run exist here once: time to limit, growth, the peak of a minute, slots, roles. Must never touch a program, follow a link
//! below a directory of runs, or let a counter of deaths fall.
#![forbid(unsafe_code)]

mod device_now;
mod ended_ranks;
mod fleet;
mod forecast;
mod gpus;
mod history;
mod holders;
mod jobs;
mod ledger;
mod living;
mod look;
mod objects;
mod overview;
mod picture;
mod rank;
mod session;
mod slots;
mod state;
mod unattached;
mod value;
mod window;

pub use device_now::DeviceNow;
pub use fleet::Fleet;
pub use gpus::{GpuProcess, GpuRow};
pub use history::History;
pub use holders::capture_of;
pub use jobs::{JobRank, JobRow, RankMemory};
pub use living::{HostLimit, Role};
pub use look::{ERROR_REASONS, Node, NodeOptions};
pub use objects::Cgroup;
pub use overview::{Item, Overview, by_urgency};
pub use picture::{DeviceRow, EndedRow, HostRow, NodePicture, RankDevice, RankRow, RoleRow, RunRow};
pub use slots::slot_label;
pub use state::{StateError, StateFile};
pub use unattached::SessionRow;
pub use value::fleet_value;
pub use window::WINDOW_LABEL;
