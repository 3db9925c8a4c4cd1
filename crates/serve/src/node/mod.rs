//! The reader of a node's runs: looks at run directories again and again and turns what is there into metrics.
//!
//! It reads what grew since the last look: the record of a run that has ended once, the logs of living runs from where they were left. A look ends at
//! its deadline; what was not read by then has no series in that answer, and is read next time. What it holds is bounded, whatever the directories
//! hold. Must never touch a program, follow a link below a directory of runs, or let a counter of deaths fall.

mod device_now;
mod forecast;
mod holders;
mod ledger;
mod living;
mod look;
mod objects;
mod rank;
mod series;
mod session;
mod slots;
mod state;
mod window;

pub use look::{Node, NodeOptions};
pub use series::Exposure;
pub use state::{StateError, StateFile};
