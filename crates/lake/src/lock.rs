//! Locks of a lake: publishers share it, what rewrites it (`compact`, `expire`) has it alone; and one claim for each run that is being published.
//!
//! They are kernel locks: they end with the process that holds them, however it ends.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use stormlog_liveness::lock::Claim;

use crate::LakeError;
use crate::directories;
use crate::layout::{OWN_DIRECTORY, escaped_job};
use crate::schema::SCHEMA_VERSION;

/// States that a directory is a lake, and is what its users lock.
pub(crate) const LAKE_FILE: &str = "lake.json";
const CLAIMS_DIRECTORY: &str = "claims";

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct LakeLock {
    _file: File,
}

/// Makes a directory a lake, where it is not one yet. The directory is the user's to name: it is made where it is missing.
pub fn create_lake(path: &Path) -> Result<(), LakeError> {
    let wrong = |error| LakeError::Io { path: path.to_owned(), source: error };
    let own = std::fs::create_dir_all(path).and_then(|()| directories::own(path)).map_err(wrong)?;
    if own.has(LAKE_FILE) {
        return check_version(path);
    }
    let text = format!("{{\"format\": \"stormlog-lake\", \"schema_version\": {SCHEMA_VERSION}}}\n");
    let placed = own.draft(LAKE_FILE).and_then(|mut draft| {
        io::Write::write_all(draft.file(), text.as_bytes())?;
        // Another publisher may have been first.
        draft.place_new().map(drop)
    });
    placed.map_err(wrong)
}

/// Refuses a directory that is not a lake, and a lake of a later version.
pub fn check_version(path: &Path) -> Result<(), LakeError> {
    let file = path.join(OWN_DIRECTORY).join(LAKE_FILE);
    let Ok(value) = stormlog_store::json::read_value(&file) else {
        return Err(LakeError::NotALake { path: path.to_owned() });
    };
    match value.get("schema_version").and_then(serde_json::Value::as_u64) {
        Some(version) if version <= u64::from(SCHEMA_VERSION) => Ok(()),
        Some(version) => Err(LakeError::Version { path: path.to_owned(), version }),
        None => Err(LakeError::NotALake { path: path.to_owned() }),
    }
}

impl LakeLock {
    /// As one publisher among others; waits while the lake is rewritten.
    pub fn shared(lake: &Path) -> Result<Self, LakeError> {
        let file = open(lake)?;
        match flock(&file, FlockOperation::LockShared) {
            Ok(()) => Ok(LakeLock { _file: file }),
            Err(error) => Err(LakeError::Io { path: lake.to_owned(), source: error.into() }),
        }
    }

    /// Alone; an error where a publisher is active.
    pub fn alone(lake: &Path) -> Result<Self, LakeError> {
        let file = open(lake)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(LakeLock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(LakeError::Busy { path: lake.to_owned() }),
            Err(error) => Err(LakeError::Io { path: lake.to_owned(), source: error.into() }),
        }
    }
}

fn open(lake: &Path) -> Result<File, LakeError> {
    let own = lake.join(OWN_DIRECTORY);
    stormlog_files::open_regular(&own.join(LAKE_FILE))
        .map_err(|error| LakeError::Io { path: own, source: error })
}

/// The right to publish one run.
#[derive(Debug)]
pub(crate) struct RunClaim {
    _claim: Claim,
}

impl RunClaim {
    /// `None` where another process has it.
    pub(crate) fn take(lake: &Path, run_key: &str) -> io::Result<Option<Self>> {
        let claims = directories::own(lake)?.directory(CLAIMS_DIRECTORY)?;
        // With a prefix: a key may be `.` or `..`.
        let name = format!("run-{}", escaped_job(run_key));
        Ok(Claim::take(claims, &name)?.map(|claim| RunClaim { _claim: claim }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn run_of_any_key_is_claimed_once() {
        let place = tempfile::tempdir().unwrap();
        create_lake(place.path()).unwrap();
        for key in [".", "..", "", "a/b", "../..", "s1"] {
            let claim = RunClaim::take(place.path(), key).unwrap();
            assert!(claim.is_some(), "{key:?}");
            assert!(RunClaim::take(place.path(), key).unwrap().is_none(), "{key:?}");
        }
        let claims = std::fs::read_dir(place.path().join(OWN_DIRECTORY).join(CLAIMS_DIRECTORY)).unwrap();
        assert_eq!(claims.count(), 0, "they are removed with their holder");
    }
}
