//! The memories of a program by name: the host's, and each device's as its allocator or the driver reports it. Must name a device as PyTorch does.

use std::fmt;
use std::str::FromStr;

/// Device types as PyTorch numbers and names them (`c10::DeviceType`).
const TYPES: [&str; 21] = [
    "cpu",
    "cuda",
    "mkldnn",
    "opengl",
    "opencl",
    "ideep",
    "hip",
    "fpga",
    "maia",
    "xla",
    "vulkan",
    "metal",
    "xpu",
    "mps",
    "meta",
    "hpu",
    "ve",
    "lazy",
    "ipu",
    "mtia",
    "privateuseone",
];

/// What a device type without a name is called, before its number.
const UNNAMED: &str = "device";
/// What follows the device where its driver reports.
const DRIVER: &str = "/driver";
const HOST: &str = "host";
const ALL: &str = "all";

/// One memory of a program: `host`, `cuda:0`, `cuda:0/driver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Memory {
    /// Main memory.
    #[default]
    Host,
    /// The memory of a device.
    Device(Device),
}

/// A device, and where its figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// Its type as PyTorch numbers them (1: CUDA).
    pub kind: u8,
    /// Its number among those of the type.
    pub index: u8,
    /// What reports its memory.
    pub source: Source,
}

/// What reports the memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The framework's caching allocator.
    Allocator,
    /// The driver: allocations beside the framework's.
    Driver,
}

/// Which memories a view shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// Every one, each as a root.
    All,
    /// One.
    One(Memory),
}

/// A text that names no memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown memory {text:?}: write host, a device such as cuda:0, what its driver reports such as cuda:0/driver, or all"
)]
pub struct UnknownMemory {
    /// The text.
    pub text: String,
}

impl Memory {
    /// Whether it is a device's.
    #[must_use]
    pub fn is_device(self) -> bool {
        self != Memory::Host
    }

    /// As a heading has it: `Host`, `GPU cuda:0`, `GPU cuda:0/driver`.
    #[must_use]
    pub fn title(self) -> String {
        match self {
            Memory::Host => "Host".to_owned(),
            Memory::Device(device) => format!("GPU {device}"),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Host => out.write_str(HOST),
            Memory::Device(device) => device.fmt(out),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TYPES.get(usize::from(self.kind)) {
            Some(name) => out.write_str(name)?,
            None => write!(out, "{UNNAMED}{}", self.kind)?,
        }
        write!(out, ":{}", self.index)?;
        out.write_str(if self.source == Source::Driver { DRIVER } else { "" })
    }
}

impl FromStr for Memory {
    type Err = UnknownMemory;

    /// `cuda` alone is `cuda:0`.
    fn from_str(text: &str) -> Result<Self, UnknownMemory> {
        if text == HOST {
            return Ok(Memory::Host);
        }
        let (name, source) = match text.strip_suffix(DRIVER) {
            Some(name) => (name, Source::Driver),
            None => (text, Source::Allocator),
        };
        let (name, index) = name.split_once(':').unwrap_or((name, "0"));
        let kind = match TYPES.iter().position(|known| *known == name) {
            Some(kind) => u8::try_from(kind).ok(),
            None => name.strip_prefix(UNNAMED).and_then(|number| number.parse().ok()),
        };
        match (kind, index.parse()) {
            (Some(kind), Ok(index)) => Ok(Memory::Device(Device { kind, index, source })),
            _ => Err(UnknownMemory { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selection::All => out.write_str(ALL),
            Selection::One(memory) => memory.fmt(out),
        }
    }
}

impl FromStr for Selection {
    type Err = UnknownMemory;

    fn from_str(text: &str) -> Result<Self, UnknownMemory> {
        if text == ALL { Ok(Selection::All) } else { text.parse().map(Selection::One) }
    }
}

impl serde::Serialize for Memory {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for text in ["host", "cuda:0", "cuda:7/driver", "xpu:1", "hip:0", "privateuseone:0", "device99:3"] {
            assert_eq!(text.parse::<Memory>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse::<Memory>().unwrap().to_string(), "cuda:0");
        assert_eq!("all".parse::<Selection>().unwrap(), Selection::All);
        for text in ["", "gpu", "cuda:", "cuda:300", "cuda:0/", "device:0", "all:0", "host:0"] {
            assert!(text.parse::<Selection>().is_err(), "{text}");
        }
    }
}
