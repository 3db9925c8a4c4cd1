//! The name of a run at a target, which many machines share: a thousand ranks that start in one second have directories of the same names.

use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};
use stormlog_model::Record;

use crate::block::hex;
use crate::error::ShipError;
use crate::manifest::Manifest;
use crate::target::Target;

/// Runs of one name on hosts of one name.
const MOST: usize = 64;
const MOST_BYTES: usize = 200;

/// A run by where and when it began.
pub(crate) fn origin(record: &Record) -> String {
    let of = |key: &str| record.get(key).cloned().unwrap_or(Value::Null);
    let text =
        Value::from(vec![of("host"), of("started_at_ns"), of("supervisor"), of("container")]).to_string();
    hex(&Sha256::digest(text.as_bytes())[..16])
}

/// `2026-11-16T10-22-31Z-train-4f2a-node7`, and how it is continued: the manifest that is there, or a new one.
pub(crate) fn find(
    target: &mut dyn Target,
    run: &Path,
    record: &Record,
) -> Result<(String, Manifest), ShipError> {
    let of_run = run.file_name().map(|name| plain(&name.to_string_lossy())).unwrap_or_default();
    let host = record.get("host").and_then(Value::as_str).map(plain).filter(|host| !host.is_empty());
    let mut name = of_run;
    if let Some(host) = host.filter(|host| !name.ends_with(&format!("-{host}"))) {
        name = format!("{name}-{host}");
    }
    name.truncate(MOST_BYTES);
    let origin = origin(record);
    for number in 1..=MOST {
        let name = if number == 1 { name.clone() } else { format!("{name}-{number}") };
        match target.load(&name)? {
            Some(manifest) if manifest.origin == origin => return Ok((name, manifest)),
            Some(_) => {}
            None => {
                let manifest = Manifest::new(origin.clone(), target.block_bytes());
                if target.claim(&name, &manifest)? {
                    return Ok((name, manifest));
                }
            }
        }
    }
    Err(ShipError::NoName { name })
}

/// Letters, digits and `.-_`, beginning with a letter or digit.
pub(crate) fn plain(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    text.trim_start_matches(['.', '-']).chars().map(legal).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;
    use crate::directory::DirectoryTarget;

    fn record(host: &str, started: u64) -> Record {
        let mut record = Record::new();
        record.insert("host".into(), host.into());
        record.insert("started_at_ns".into(), started.into());
        record
    }

    #[test]
    fn runs_of_one_name_get_names_of_their_own_and_keep_them() {
        let place = tempfile::tempdir().unwrap();
        let mut target = DirectoryTarget::open(place.path(), false).unwrap();
        let mut name = |record: &Record| find(&mut target, Path::new("/x/run-1"), record).unwrap().0;
        assert_eq!(name(&record("node/1", 1)), "run-1-node_1");
        assert_eq!(name(&record("node2", 1)), "run-1-node2");
        assert_eq!(name(&record("node2", 2)), "run-1-node2-2");
        assert_eq!(name(&record("node2", 2)), "run-1-node2-2", "it is continued");
        assert_eq!(name(&record("node2", 1)), "run-1-node2");
        // A process that was killed before it could say whose it is.
        std::fs::create_dir(place.path().join("run-1-node3")).unwrap();
        assert_eq!(name(&record("node3", 1)), "run-1-node3-2");
        assert_eq!(plain("../a b"), "_a_b");
    }
}
