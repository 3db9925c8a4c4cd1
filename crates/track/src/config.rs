//! The settings of a tracker: whose memory, how often, and in which words.

use std::time::Duration;

use stormlog_alert::alerts::Thresholds;
use stormlog_model::{Identity, Record, SessionSummary};

/// Whose sentences events carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wording {
    /// `CPUMemoryTracker`: RSS; a sample's change is 0.
    Cpu,
    /// `MemoryTracker`: allocator and device; a sample carries its change.
    Device,
}

/// The settings of a tracker.
#[derive(Debug, Clone)]
pub struct Config {
    /// The session its events belong to.
    pub session: SessionSummary,
    /// Who it is in a distributed job.
    pub identity: Identity,
    /// The name events carry as their collector.
    pub collector: String,
    /// Time between two samples.
    pub interval: Duration,
    /// Events kept in memory.
    pub max_events: usize,
    /// Events kept for an OOM bundle, their memory taken at the start; 0 for none.
    pub flight_events: usize,
    /// What every event's metadata ends with: `memory_capabilities`, and what else the collector says of itself.
    pub metadata: Record,
    /// Whose sentences to use.
    pub wording: Wording,
    /// Whether events say how the collector is.
    pub says_health: bool,
    /// Whether there are alerts.
    pub alerts: bool,
    /// When they begin.
    pub thresholds: Thresholds,
    /// The device's size where samples do not tell it.
    pub total_bytes: Option<u64>,
}
