//! What one process holds on graphics cards, from the fdinfo of its open `/dev/dri` files.
//!
//! A client may be open through several descriptors (and shared by fork): its id keeps it from being counted twice.
//! Reads only descriptors that lead to a graphics device, and only this many.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

use crate::text::{key_size, lines, number, read_bounded};
use crate::{CollectError, Roots};

const DESCRIPTORS_LIMIT: usize = 1 << 16;
const CLIENTS_LIMIT: usize = 1024;
const REGIONS_LIMIT: usize = 32;

/// What a client holds in one kind of memory (`vram`, `gtt`, `system0`, …).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DrmRegion {
    /// Bytes it asked for.
    pub total: Option<u64>,
    /// Bytes there now.
    pub resident: Option<u64>,
    /// Bytes others share.
    pub shared: Option<u64>,
    /// Bytes the card is working on.
    pub active: Option<u64>,
    /// Bytes it offered to give up.
    pub purgeable: Option<u64>,
}

/// One connection of a process to a card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DrmClient {
    /// The kernel driver.
    pub driver: Option<String>,
    /// The card's bus address.
    pub pci: Option<String>,
    /// The driver's number of the connection.
    pub client_id: Option<u64>,
    /// What it holds, by kind of memory.
    pub regions: BTreeMap<String, DrmRegion>,
}

impl DrmClient {
    /// Bytes in the card's own memory: `vram` and its numbered kin, `local0` on i915.
    pub fn device_bytes(&self) -> Option<u64> {
        self.regions
            .iter()
            .filter(|(name, _)| name.starts_with("vram") || name.starts_with("local"))
            .filter_map(|(_, region)| region.resident.or(region.total))
            .reduce(u64::saturating_add)
    }
}

/// The connections of a process to graphics cards; empty when it has none. Another user's process cannot be looked at.
pub fn process_clients(roots: &Roots, pid: u32) -> Result<Vec<DrmClient>, CollectError> {
    let directory = roots.of_process(pid);
    let descriptors = directory.join("fd");
    let entries =
        fs::read_dir(&descriptors).map_err(|error| CollectError::of_process(pid, &descriptors, error))?;
    let mut clients: Vec<DrmClient> = Vec::new();
    for entry in entries.flatten().take(DESCRIPTORS_LIMIT) {
        let leads_to_card = fs::read_link(entry.path())
            .is_ok_and(|target| target.starts_with("/dev/dri") || target.starts_with("/dev/accel"));
        if !leads_to_card || clients.len() >= CLIENTS_LIMIT {
            continue;
        }
        // The descriptor may be closed meanwhile.
        let Ok(text) = read_bounded(&directory.join("fdinfo").join(entry.file_name()), 64 << 10) else {
            continue;
        };
        if let Some(client) = parse(&text)
            && !is_known(&clients, &client)
        {
            clients.push(client);
        }
    }
    Ok(clients)
}

fn is_known(clients: &[DrmClient], client: &DrmClient) -> bool {
    client.client_id.is_some()
        && clients.iter().any(|known| known.client_id == client.client_id && known.pci == client.pci)
}

fn parse(text: &[u8]) -> Option<DrmClient> {
    let mut client = DrmClient::default();
    for line in lines(text) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let value = line[colon + 1..].trim_ascii();
        let key = &line[..colon];
        match key {
            b"drm-driver" => client.driver = Some(String::from_utf8_lossy(value).into_owned()),
            b"drm-pdev" | b"pdev" => client.pci = Some(String::from_utf8_lossy(value).to_ascii_lowercase()),
            b"drm-client-id" => client.client_id = number(value),
            _ => {
                if let Some((_, bytes)) = key_size(line) {
                    client.region(&String::from_utf8_lossy(key), bytes);
                }
            }
        }
    }
    (client.driver.is_some() || !client.regions.is_empty()).then_some(client)
}

impl DrmClient {
    fn region(&mut self, key: &str, bytes: u64) {
        // amdgpu before Linux 5.19 wrote `vram mem:` and `gtt mem:`.
        let old = key.strip_suffix(" mem").filter(|name| matches!(*name, "vram" | "gtt" | "cpu"));
        let named = key.strip_prefix("drm-").and_then(|rest| rest.split_once('-'));
        let (kind, name) = match (old, named) {
            (Some(name), _) => ("memory", name),
            (None, Some(named)) => named,
            _ => return,
        };
        if !matches!(kind, "total" | "resident" | "memory" | "shared" | "active" | "purgeable") {
            return;
        }
        if !self.regions.contains_key(name) && self.regions.len() >= REGIONS_LIMIT {
            return;
        }
        let region = self.regions.entry(name.to_owned()).or_default();
        match kind {
            "total" => region.total = Some(bytes),
            "resident" => region.resident = Some(bytes),
            // The older word for resident.
            "memory" => region.resident = region.resident.or(Some(bytes)),
            "shared" => region.shared = Some(bytes),
            "active" => region.active = Some(bytes),
            _ => region.purgeable = Some(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_new_amdgpu_client_is_read() {
        let client = parse(
            b"pos:\t0\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t31\ndrm-pdev:\t0000:03:00.0\n\
              drm-total-vram:\t2048 KiB\ndrm-shared-vram:\t0\ndrm-resident-vram:\t1024 KiB\ndrm-memory-vram:\t512 KiB\n\
              drm-memory-gtt: \t16 KiB\ndrm-engine-gfx:\t123 ns\namd-evicted-vram:\t0 KiB\n",
        )
        .unwrap();
        assert_eq!((client.client_id, client.pci.as_deref()), (Some(31), Some("0000:03:00.0")));
        let vram = client.regions["vram"];
        assert_eq!((vram.total, vram.resident, vram.shared), (Some(2 << 20), Some(1 << 20), Some(0)));
        assert_eq!(client.regions["gtt"].resident, Some(16 << 10));
        assert_eq!(client.device_bytes(), Some(1 << 20));
        assert_eq!(client.regions.len(), 2);
    }

    #[test]
    fn old_and_other_drivers_are_read() {
        let old = parse(b"pdev:\t0000:0A:00.0\npasid:\t32\nvram mem:\t77 kB\ngtt mem:\t0 kB\n").unwrap();
        assert_eq!((old.device_bytes(), old.pci.as_deref()), (Some(77 << 10), Some("0000:0a:00.0")));
        let i915 =
            parse(b"drm-driver:\ti915\ndrm-total-local0:\t3 MiB\ndrm-total-system0:\t1 MiB\n").unwrap();
        assert_eq!(i915.device_bytes(), Some(3 << 20));
        assert_eq!(parse(b"pos:\t0\nflags:\t0100000\nmnt_id:\t5\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in proptest::collection::vec(any::<u8>(), 0..300), key in "(drm-)?[a-z -]{0,20}") {
            let _ = parse(&text);
            let _ = parse(format!("{key}:\t5 KiB").as_bytes());
        }
    }
}
