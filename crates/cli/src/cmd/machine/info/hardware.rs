//! Graphics adapters on the PCI bus, whether or not any driver can use them.
//!
//! Adapters that exist only in software (of virtual machines and remote consoles) are no GPUs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// One adapter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Adapter {
    /// `0000:3b:00.0`
    pub(crate) address: String,
    pub(crate) vendor: &'static str,
    /// `NVIDIA adapter 10de:2330`
    pub(crate) name: String,
}

impl Adapter {
    pub(crate) fn to_json(&self) -> Value {
        json!({"name": self.name, "vendor": self.vendor, "pci": self.address, "source": "sysfs"})
    }
}

/// Every adapter, in the order of its address.
pub(crate) fn adapters(sys: &Path) -> Vec<Adapter> {
    let Ok(entries) = fs::read_dir(sys.join("bus/pci/devices")) else { return Vec::new() };
    let mut found: Vec<Adapter> = entries.flatten().filter_map(|entry| adapter(&entry.path())).collect();
    found.sort_by(|a, b| a.address.cmp(&b.address));
    found
}

fn adapter(directory: &Path) -> Option<Adapter> {
    let number = |name: &str| {
        let text = fs::read_to_string(directory.join(name)).ok()?;
        u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    // Class 03 is a display controller.
    if number("class")? >> 16 != 0x03 {
        return None;
    }
    let (id, device) = (number("vendor")?, number("device")?);
    let (vendor, shown) = match id {
        0x10de => ("nvidia", "NVIDIA"),
        0x1002 | 0x1022 => ("amd", "AMD"),
        0x8086 => ("intel", "Intel"),
        0x106b => ("apple", "Apple"),
        // Virtio, QXL, Bochs, VMware, Hyper-V, VirtualBox, Cirrus and the consoles of server boards.
        0x1af4 | 0x1b36 | 0x1234 | 0x15ad | 0x1414 | 0x80ee | 0x1013 | 0x1a03 | 0x102b => return None,
        _ => ("unknown", "Unknown"),
    };
    let address = directory.file_name()?.to_string_lossy().into_owned();
    Some(Adapter { address, vendor, name: format!("{shown} adapter {id:04x}:{device:04x}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(root: &Path, address: &str, class: &str, vendor: &str) {
        let directory = root.join("bus/pci/devices").join(address);
        fs::create_dir_all(&directory).unwrap();
        for (name, text) in [("class", class), ("vendor", vendor), ("device", "0x2330")] {
            fs::write(directory.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn real_adapters_are_distinguished_from_software_ones_in_a_simulated_sysfs() {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), "0000:3b:00.0", "0x030200", "0x10de");
        device(root.path(), "0000:00:02.0", "0x030000", "0x1af4");
        device(root.path(), "0000:00:1f.0", "0x060100", "0x8086");
        device(root.path(), "0000:00:03.0", "garbage", "0x10de");
        let found = adapters(root.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].vendor, found[0].name.as_str()), ("nvidia", "NVIDIA adapter 10de:2330"));
        assert_eq!(adapters(&root.path().join("nothing")), []);
    }
}
