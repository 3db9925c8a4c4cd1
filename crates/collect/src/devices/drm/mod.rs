//! GPUs of any kernel driver that shows its memory in sysfs: amdgpu above all, Intel's i915 and xe as far as they tell.
//!
//! No vendor library is needed. NVIDIA's own driver shows nothing here (see [`super::nvml`]); a card without any memory
//! file is not listed, rather than listed with zeros.

mod clients;

use std::fs;
use std::path::{Path, PathBuf};

use stormlog_model::Counter;

use crate::text::{KeptFile, lines, number, read_bounded, read_line, read_number};
use crate::{
    CollectError, Collector, DeviceCapabilities, DeviceIdentity, DeviceSample, Missing, Reading, Roots,
};

pub use clients::{DrmClient, DrmRegion, process_clients};

const NAME: &str = "stormlog.drm";

/// More cards than any machine has.
const CARDS_LIMIT: usize = 256;

/// One card.
#[derive(Debug)]
pub(super) struct DrmDevice {
    identity: DeviceIdentity,
    /// `…/class/drm/card0/device`
    directory: PathBuf,
    total: Option<u64>,
    used: Option<KeptFile>,
    capabilities: DeviceCapabilities,
}

/// All cards that show their memory, in the order of their bus addresses.
pub(super) fn devices(roots: &Roots) -> Vec<DrmDevice> {
    let Ok(entries) = fs::read_dir(roots.sys.join("class/drm")) else { return Vec::new() };
    let mut cards: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            // `card0-DP-1` is a connector.
            let name = entry.file_name();
            name.as_encoded_bytes().strip_prefix(b"card").and_then(number).is_some()
        })
        .map(|entry| entry.path())
        .take(CARDS_LIMIT)
        .collect();
    cards.sort();
    let mut devices: Vec<DrmDevice> = cards.iter().filter_map(|card| DrmDevice::open(card)).collect();
    devices.sort_by(|a, b| a.identity.pci.cmp(&b.identity.pci));
    for (number, device) in (0..).zip(&mut devices) {
        device.identity.device_id = number;
    }
    devices
}

impl DrmDevice {
    fn open(card: &Path) -> Option<Self> {
        let directory = card.join("device");
        let facts = Facts::read(&directory);
        let total = read_number(&directory.join("mem_info_vram_total"))
            .or_else(|| read_number(&card.join("lmem_total_bytes"))) // i915
            .or_else(|| tile_memory(&directory)); // xe
        let used = KeptFile::open(directory.join("mem_info_vram_used")).ok();
        if total.is_none() && used.is_none() {
            return None;
        }
        let backend = if facts.driver.as_deref() == Some("amdgpu") { "rocm" } else { "drm" };
        let identity = DeviceIdentity {
            device_id: 0,
            backend: backend.to_owned(),
            name: read_line(&directory.join("product_name")).or(facts.pci_id),
            uuid: read_line(&directory.join("unique_id")),
            parent_uuid: None,
            pci: facts.slot,
            driver: facts.driver,
            unified: false,
        };
        let counters: &[Counter] = match (used.is_some(), total.is_some()) {
            (true, true) => &[Counter::Used, Counter::Free, Counter::Total],
            (true, false) => &[Counter::Used],
            (false, _) => &[Counter::Total],
        };
        let capabilities = DeviceCapabilities::new(backend, NAME, "sysfs mem_info_vram_*", counters);
        Some(DrmDevice { identity, directory, total, used, capabilities })
    }

    /// What names the device.
    pub(super) fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    /// Which of these processes have the card open, and the bytes of its own memory each holds. Processes of other users
    /// cannot be looked at, and are left out.
    pub(super) fn held_by(&self, roots: &Roots, pids: &[u32]) -> Vec<(u32, Option<u64>)> {
        let on_card = |pid: &u32| {
            let clients = process_clients(roots, *pid).ok()?;
            let mut here = clients.iter().filter(|client| client.pci == self.identity.pci).peekable();
            here.peek()?;
            Some((*pid, here.filter_map(DrmClient::device_bytes).reduce(u64::saturating_add)))
        };
        pids.iter().filter_map(on_card).collect()
    }

    /// How busy the card is, in percent (amdgpu).
    pub(super) fn busy_percent(&self) -> Option<u64> {
        read_number(&self.directory.join("gpu_busy_percent"))
    }
}

impl Collector for DrmDevice {
    fn name(&self) -> &str {
        NAME
    }

    fn is_available(&self) -> bool {
        self.directory.is_dir()
    }

    fn sample(&mut self) -> Result<Reading, CollectError> {
        let mut sample =
            DeviceSample { device_id: self.identity.device_id, total: self.total, ..DeviceSample::default() };
        let mut missing = Vec::new();
        if let Some(kept) = &mut self.used {
            let read = kept.read().map(|text| number(text.trim_ascii()));
            match read {
                Ok(Some(used)) => {
                    sample.used = Some(used);
                    sample.free = self.total.and_then(|total| total.checked_sub(used));
                }
                Ok(None) => {
                    let reason = "mem_info_vram_used is not a number".to_owned();
                    missing.push(Missing { field: "used", reason });
                }
                // The card was unplugged or its driver unloaded: nothing of it is true any more.
                Err(error) => return Err(CollectError::io(kept.path(), error)),
            }
        } else if !self.directory.is_dir() {
            return Err(CollectError::Unavailable {
                what: "the graphics card",
                reason: format!("{} no longer exists", self.directory.display()),
            });
        }
        Ok(Reading { sample, missing })
    }

    fn capabilities(&self) -> &DeviceCapabilities {
        &self.capabilities
    }
}

/// Memory of an Intel xe card: the sum over its tiles.
fn tile_memory(directory: &Path) -> Option<u64> {
    (0..8)
        .map_while(|tile| read_number(&directory.join(format!("tile{tile}/physical_vram_size_bytes"))))
        .reduce(u64::saturating_add)
}

/// What the bus knows of a card.
#[derive(Default)]
struct Facts {
    driver: Option<String>,
    slot: Option<String>,
    pci_id: Option<String>,
}

impl Facts {
    fn read(directory: &Path) -> Self {
        let mut facts = Facts::default();
        let text = read_bounded(&directory.join("uevent"), 4096).unwrap_or_default();
        for line in lines(&text) {
            let line = String::from_utf8_lossy(line);
            match line.split_once('=') {
                Some(("DRIVER", value)) => facts.driver = Some(value.to_owned()),
                Some(("PCI_SLOT_NAME", value)) => facts.slot = Some(value.to_ascii_lowercase()),
                Some(("PCI_ID", value)) => facts.pci_id = Some(format!("PCI {value}")),
                _ => {}
            }
        }
        facts
    }
}
