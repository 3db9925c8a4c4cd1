//! Pressure stall information: the share of time in which tasks waited for memory.
//!
//! `some`: at least one task waited; `full`: all of them did. Kernels without it, or booted without it, give `None`.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use serde::Serialize;

use crate::text::{self, KeptFile, lines, number, words};
use crate::{CollectError, Roots};

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Stall {
    /// Percent of the last 10 seconds.
    pub avg10: Option<f64>,
    /// Percent of the last minute.
    pub avg60: Option<f64>,
    /// Percent of the last five minutes.
    pub avg300: Option<f64>,
    /// Microseconds since boot (or since the cgroup was made).
    pub total_us: Option<u64>,
}

/// What a pressure file says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Option<Stall>,
    /// All tasks waited.
    pub full: Option<Stall>,
}

/// The host's memory pressure; `Ok(None)` where the kernel does not measure it.
pub fn host_memory_pressure(roots: &Roots) -> Result<Option<Pressure>, CollectError> {
    read_pressure(&roots.proc.join("pressure/memory"))
}

/// Any pressure file, e.g. a cgroup's `memory.pressure`.
pub fn read_pressure(path: &Path) -> Result<Option<Pressure>, CollectError> {
    match text::read_bounded(path, 4096) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(CollectError::io(path, error)),
    }
}

/// Repeated readings of one pressure file: one system call each.
#[derive(Debug)]
pub struct PressureReader {
    file: KeptFile,
}

impl PressureReader {
    /// Opens the host's memory pressure.
    pub fn host(roots: &Roots) -> Result<Self, CollectError> {
        Self::open(&roots.proc.join("pressure/memory"))
    }

    /// Opens any pressure file, e.g. a cgroup's `memory.pressure`.
    pub fn open(path: &Path) -> Result<Self, CollectError> {
        match KeptFile::open(path.to_path_buf()) {
            Ok(file) => Ok(PressureReader { file }),
            Err(error) => Err(CollectError::io(path, error)),
        }
    }

    /// The pressure as of now; `Ok(None)` where the kernel does not measure it.
    pub fn pressure(&mut self) -> Result<Option<Pressure>, CollectError> {
        match self.file.read() {
            Ok(text) => Ok(parse(text)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(CollectError::io(self.file.path(), error)),
        }
    }
}

/// Booted with psi=0 the file is there and says "not supported".
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error())
}

fn parse(text: &[u8]) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    for line in lines(text) {
        let mut fields = words(line);
        let slot = match fields.next() {
            Some(b"some") => &mut pressure.some,
            Some(b"full") => &mut pressure.full,
            _ => continue,
        };
        let mut stall = Stall::default();
        for field in fields {
            let Some(equals) = field.iter().position(|byte| *byte == b'=') else { continue };
            let value = &field[equals + 1..];
            match &field[..equals] {
                b"avg10" => stall.avg10 = percent(value),
                b"avg60" => stall.avg60 = percent(value),
                b"avg300" => stall.avg300 = percent(value),
                b"total" => stall.total_us = number(value),
                _ => {}
            }
        }
        *slot = Some(stall);
    }
    (pressure != Pressure::default()).then_some(pressure)
}

fn percent(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read_and_nonsense_is_unknown() {
        let text = b"some avg10=1.25 avg60=0.50 avg300=0.00 total=123456\nfull avg10=NaN avg60=-1 total=x\n";
        let pressure = parse(text).unwrap();
        let some = pressure.some.unwrap();
        assert_eq!((some.avg10, some.total_us), (Some(1.25), Some(123_456)));
        assert_eq!(pressure.full, Some(Stall::default()));
        assert_eq!(parse(b"garbage"), None);
    }

    #[test]
    fn a_kernel_without_it_is_not_an_error() {
        let empty = tempfile::tempdir().unwrap();
        let roots = Roots { proc: empty.path().into(), sys: empty.path().into() };
        assert_eq!(host_memory_pressure(&roots).unwrap(), None);
        let once = host_memory_pressure(&Roots::default()).unwrap();
        if once.is_some() {
            assert!(PressureReader::host(&Roots::default()).unwrap().pressure().unwrap().is_some());
        }
    }
}
