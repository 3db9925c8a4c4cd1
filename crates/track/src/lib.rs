//! The tracker: a thread that samples memory at steady intervals and turns the samples into events, alerts and
//! statistics, kept in memory and, if asked, in a sink and in files that survive the program.
//!
//! It must never fail or hold up the program it watches: a failing source pauses and recovers, a failing disk is given
//! up, callbacks are called with no lock held, and a forked child never waits for a lock of its parent's threads.
#![forbid(unsafe_code)]

mod compat_text;
mod config;
mod evidence;
mod forecast;
mod gpu_samples;
mod gpu_source;
mod group;
mod heads;
mod health;
mod history;
mod limit_watch;
mod limits;
mod outlets;
mod process_facts;
mod process_session;
mod session_events;
mod source;
mod state;
#[cfg(test)]
mod state_tests;
mod statistics;
mod timeline;
mod tracker;
mod tree_source;

pub use config::{Config, Wording};
pub use evidence::evidence_now;
pub use forecast::{Forecasts, LimitReading};
pub use gpu_samples::{GpuSample, GpuSamples};
pub use gpu_source::{GpuFacts, GpuHoldings, GpuSource, gpus, host_metadata};
pub use group::Group;
pub(crate) use heads::Heads;
pub use health::{Health, HealthStatus};
pub use limit_watch::LimitWatch;
pub use limits::{LimitOptions, MemoryLimits, host_sample};
pub use outlets::Outlets;
pub use process_session::{MemorySeen, ProcessSession};
pub use session_events::SessionEvents;
pub use source::{HOST_DEVICE, HostSource, Sampled, Source};
pub use state::NewEvent;
pub use statistics::Statistics;
pub use stormlog_collect::DeviceSample;
pub use timeline::TooManyPoints;
pub use tracker::{Listener, StartError, Tracker};
pub use tree_source::{TreePids, TreeSource};
