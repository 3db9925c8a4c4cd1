//! How far the shipment of a run is, in a small file of the run: for the summary of `stormlog run`, and for the next process that continues it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stormlog_files::Directory;
use stormlog_model::layout::SHIPPING_FILE;

use crate::block::hex;
use crate::destination::Destination;

/// A status file is a few lines.
const MOST_BYTES: u64 = 64 << 10;

/// Whether it continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// A process is at it, or was killed.
    #[default]
    Shipping,
    /// All of an ended run is at the target.
    Complete,
    /// Its time is over, and something is left.
    Stopped,
}

/// How far a shipment is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShippingStatus {
    /// Where to, without what may be secret.
    pub to: String,
    /// Tells destinations apart whose secrets are not shown.
    target: String,
    /// The run's name there.
    pub name: String,
    /// Whether it continues.
    pub state: State,
    /// Bytes that were sent, by all processes that shipped it.
    pub bytes_sent: u64,
    /// Bytes that are known to be left.
    pub bytes_left: u64,
    /// Passes that failed.
    pub failures: u64,
    /// Why the last of them did; empty after one that did not.
    pub error: String,
    /// When this was written, nanoseconds since 1970.
    pub updated_at_ns: u64,
}

impl ShippingStatus {
    /// Of a run; `None` where it is not shipped.
    #[must_use]
    pub fn read(run: &Path) -> Option<Self> {
        let mut text = String::new();
        let file = Directory::open(run).and_then(|run| run.open_to_read(SHIPPING_FILE)).ok()?;
        std::io::Read::read_to_string(&mut std::io::Read::take(file, MOST_BYTES), &mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn begin(run: &Path, to: &Destination) -> Self {
        let (shown, target) = (to.shown(), identity(to));
        let before = Self::read(run).filter(|before| before.target == target).unwrap_or_default();
        ShippingStatus { to: shown, target, state: State::Shipping, ..before }
    }

    /// Whether it is about this destination.
    pub(crate) fn is_to(&self, to: &Destination) -> bool {
        self.target == identity(to)
    }

    /// A disk that is full costs this file and nothing else.
    pub(crate) fn write(&mut self, run: &Path) {
        self.updated_at_ns = now_ns();
        if let Ok(mut text) = serde_json::to_vec_pretty(self) {
            text.push(b'\n');
            let _ = Directory::open(run).and_then(|run| run.replace(SHIPPING_FILE, &text));
        }
    }
}

fn identity(to: &Destination) -> String {
    let text = match to {
        Destination::Directory(path) => path.display().to_string(),
        Destination::Http { base } => base.clone(),
        Destination::S3 { base, prefix, .. } => format!("{base}/{prefix}"),
    };
    hex(&Sha256::digest(text.as_bytes())[..16])
}

pub(crate) fn now_ns() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0)
}
