//! What a JAX program left of itself in a run: its devices, the pool that JAX took at the start, its compiled programs, and profiles by line.
//!
//! The file comes from the program: nothing in it is trusted beyond its shape, and what is missing costs its line. Must never write or follow a link.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_model::format_bytes;
use stormlog_model::layout::{JAX_END_PROFILE, JAX_FILE, JAX_PEAK_PROFILE, SessionName};
use stormlog_store::json::read_value;

/// The memory profile by line of one moment: of an out-of-memory error in its bundle, of a request in its snapshot.
pub const JAX_PROFILE: &str = "jax-memory.pb.gz";
/// Entries of a run that are looked at.
const MOST_ENTRIES: usize = 10_000;
/// Devices and programs of one record that are kept.
const MOST_ROWS: usize = 256;

/// The JAX program of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JaxRecord {
    /// The process.
    pub pid: u32,
    /// Its devices with counters; the CPU has none.
    pub devices: Vec<JaxDevice>,
    /// Its compiled programs, the one that needs most first.
    pub programs: Vec<JaxProgram>,
    /// Live arrays by line at the highest use; the last profile where there is no other.
    pub profile: Option<PathBuf>,
}

/// A device and its pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JaxDevice {
    /// Its number in the process.
    pub number: u64,
    /// Whether JAX took the pool at the start.
    pub is_preallocated: bool,
    /// What JAX has from the driver.
    pub pool_bytes: Option<u64>,
    /// The most that arrays and temporaries used of it.
    pub peak_bytes: Option<u64>,
    /// The most that the pool may hand out.
    pub limit_bytes: Option<u64>,
}

/// A compiled program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JaxProgram {
    /// Its name, e.g. `jit_train_step`.
    pub name: String,
    /// The line that had it compiled.
    pub place: Option<String>,
    /// Arguments, outputs, temporaries and code that are alive at once.
    pub peak_bytes: u64,
    /// Temporaries.
    pub temp_bytes: u64,
}

impl JaxDevice {
    /// `pool 104.9 GiB, taken at the start (XLA_PYTHON_CLIENT_PREALLOCATE) · in use at most 12.30 GiB`. The pool is a reserve, not use.
    #[must_use]
    pub fn words(&self) -> String {
        let mut parts = Vec::new();
        if self.pool_bytes == Some(0) {
            parts.push("pool not taken yet".to_owned());
        } else if let Some(pool) = self.pool_bytes {
            let when = if self.is_preallocated {
                ", taken at the start (XLA_PYTHON_CLIENT_PREALLOCATE)"
            } else {
                ""
            };
            parts.push(format!("pool {}{when}", format_bytes(pool)));
        }
        parts.extend(self.peak_bytes.map(|peak| format!("in use at most {}", format_bytes(peak))));
        parts.join(" · ")
    }
}

/// The JAX programs of a run, by process.
#[must_use]
pub fn jax_records(run: &Path) -> Vec<JaxRecord> {
    let entries = fs::read_dir(run).into_iter().flatten().flatten().take(MOST_ENTRIES);
    let mut found: Vec<JaxRecord> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| {
            let name = SessionName::parse(&entry.file_name().to_string_lossy())?;
            JaxRecord::read(name.pid, &entry.path())
        })
        .collect();
    found.sort_by_key(|record| record.pid);
    found
}

impl JaxRecord {
    fn read(pid: u32, folder: &Path) -> Option<Self> {
        let path = folder.join(JAX_FILE);
        let page = is_file(&path).then(|| read_value(&path).ok())??;
        let rows = |key: &str| page.get(key).and_then(Value::as_array).into_iter().flatten().take(MOST_ROWS);
        let profiles = [JAX_PEAK_PROFILE, JAX_END_PROFILE].map(|name| folder.join(name));
        Some(JaxRecord {
            pid,
            devices: rows("devices").map(JaxDevice::of).collect(),
            programs: rows("programs").map(JaxProgram::of).collect(),
            profile: profiles.into_iter().find(|path| is_file(path)),
        })
    }
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

impl JaxDevice {
    fn of(row: &Value) -> Self {
        let number = |key: &str| row.get(key).and_then(Value::as_u64);
        JaxDevice {
            number: number("number").unwrap_or(0),
            is_preallocated: row.get("preallocated").and_then(Value::as_bool).unwrap_or(false),
            pool_bytes: number("pool_bytes"),
            peak_bytes: number("peak_bytes"),
            limit_bytes: number("limit_bytes"),
        }
    }
}

impl JaxProgram {
    fn of(row: &Value) -> Self {
        let text = |key: &str| row.get(key).and_then(Value::as_str).map(stormlog_model::text::short_name);
        let number = |key: &str| row.get(key).and_then(Value::as_u64).unwrap_or(0);
        JaxProgram {
            name: text("name").unwrap_or_default(),
            place: text("place"),
            peak_bytes: number("peak_bytes"),
            temp_bytes: number("temp_bytes"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_pool_the_peak_and_the_profile_of_its_jax_program() {
        let run = tempfile::tempdir().unwrap();
        let folder = run.path().join("rank0-pid7-cuda0");
        fs::create_dir(&folder).unwrap();
        let page = r#"{"devices": [{"number": 0, "preallocated": true, "pool_bytes": 112583507968, "peak_bytes": 83886336, "limit_bytes": 112583507968}],
            "programs": [{"name": "jit_step", "place": "train.py:3 main", "peak_bytes": 42, "temp_bytes": 7}, 5]}"#;
        fs::write(folder.join(JAX_FILE), page).unwrap();
        fs::write(folder.join(JAX_END_PROFILE), "x").unwrap();
        fs::create_dir(run.path().join("rank0-pid8")).unwrap();
        let [found] = jax_records(run.path()).try_into().unwrap();
        assert_eq!((found.pid, found.profile), (7, Some(folder.join(JAX_END_PROFILE))));
        assert_eq!(
            found.devices[0].words(),
            "pool 104.9 GiB, taken at the start (XLA_PYTHON_CLIENT_PREALLOCATE) · in use at most 80.00 MiB"
        );
        assert_eq!((found.programs[0].name.as_str(), found.programs.len()), ("jit_step", 2));
        let untouched = JaxDevice { is_preallocated: true, pool_bytes: Some(0), ..JaxDevice::default() };
        assert_eq!(untouched.words(), "pool not taken yet");
        fs::write(folder.join(JAX_FILE), "[]").unwrap();
        assert_eq!(jax_records(run.path())[0].devices, []);
    }

    #[test]
    fn links_in_a_run_are_not_followed() {
        let (run, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in [JAX_FILE, JAX_PEAK_PROFILE] {
            fs::write(elsewhere.path().join(name), "{}").unwrap();
        }
        std::os::unix::fs::symlink(elsewhere.path(), run.path().join("rank0-pid7-cuda0")).unwrap();
        assert_eq!(jax_records(run.path()), []);
        let folder = run.path().join("rank0-pid8-cuda0");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(JAX_FILE), "{}").unwrap();
        let profile = folder.join(JAX_PEAK_PROFILE);
        std::os::unix::fs::symlink(elsewhere.path().join(JAX_PEAK_PROFILE), profile).unwrap();
        let [found] = jax_records(run.path()).try_into().unwrap();
        assert_eq!((found.pid, found.profile), (8, None));
    }
}
