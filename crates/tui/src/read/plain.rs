//! A process that is not recorded: what the kernel and the drivers report of it from the first look on.

use std::cell::OnceCell;

use stormlog_collect::process::ProcessReader;
use stormlog_collect::{Gpu, Roots, bytes_held, discover_gpus};
use stormlog_story::lanes::ProcessLanes;

use crate::state::series::Series;

/// What was seen so far.
#[derive(Default)]
pub(super) struct PlainLook {
    pss: Series,
    gpu: Series,
    /// To find them takes a driver's library.
    gpus: OnceCell<Vec<Gpu>>,
}

impl PlainLook {
    /// Looks once.
    pub(super) fn look(&mut self, reader: &ProcessReader, now_ns: u64) {
        if let Some(pss) = reader.detail().ok().and_then(|detail| detail.pss) {
            self.pss.push(now_ns, pss);
        }
        let gpus = self.gpus.get_or_init(|| discover_gpus(&Roots::default()));
        if let Some(held) = bytes_held(gpus, &[reader.pid()]).filter(|_| !gpus.is_empty()) {
            self.gpu.push(now_ns, held);
        }
    }

    pub(super) fn add_to(&self, lanes: &mut ProcessLanes) {
        lanes.add_curve("host", "PSS", self.pss.points().to_vec());
        lanes.add_curve("all GPUs", "held", self.gpu.points().to_vec());
    }
}
