//! Which files belong to a sink. Names come from directories and manifests, both of which may be hostile: only plain
//! names are accepted, so no name leads out of the sink.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::manifest::read_manifest_file;
use super::{MANIFEST_FILENAME, SEGMENT_PREFIX, SEGMENT_SUFFIX};

/// The manifest of the sink that a directory, a manifest or a segment belongs to, if it has one.
pub fn manifest_path(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        if path.file_name()? == MANIFEST_FILENAME {
            return Some(path.to_owned());
        }
        return is_segment_file(path)
            .then(|| path.with_file_name(MANIFEST_FILENAME))
            .filter(|it| it.exists());
    }
    path.is_dir().then(|| path.join(MANIFEST_FILENAME)).filter(|candidate| candidate.exists())
}

/// The segments of a sink in order: those its manifest lists and those found beside it. A lone JSONL file is its own
/// only segment; anything else has none.
pub fn segment_paths(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        if is_segment_file(path) {
            return vec![path.to_owned()];
        }
        if path.file_name().is_none_or(|name| name != MANIFEST_FILENAME) {
            return Vec::new();
        }
        return in_directory(path.parent().unwrap_or(Path::new("")));
    }
    if path.is_dir() { in_directory(path) } else { Vec::new() }
}

fn in_directory(root: &Path) -> Vec<PathBuf> {
    let manifest = read_manifest_file(&root.join(MANIFEST_FILENAME));
    let listed = manifest.into_iter().flat_map(|manifest| manifest.segments).map(|segment| segment.filename);
    let listed = listed.filter(|name| root.join(name).is_file());
    let names: BTreeMap<String, ()> =
        listed.chain(discover(root).into_keys()).map(|name| (name, ())).collect();
    names.into_keys().map(|name| root.join(name)).collect()
}

/// The segment files of a directory by name. Only regular files: a FIFO would be waited on forever.
pub(super) fn discover(root: &Path) -> BTreeMap<String, PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return BTreeMap::new() };
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let path = root.join(&name);
        (is_segment_name(&name) && path.is_file()).then_some((name, path))
    });
    named.collect()
}

/// Whether a file of this name in a sink's directory is one of its segments.
pub fn is_segment_name(name: &str) -> bool {
    name.strip_prefix(SEGMENT_PREFIX).is_some_and(|rest| rest.ends_with(SEGMENT_SUFFIX))
}

/// Whether a name stays in the directory it is joined to.
pub(super) fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

/// The name of a segment.
pub(super) fn segment_name(index: u64) -> String {
    format!("{SEGMENT_PREFIX}{index:06}{SEGMENT_SUFFIX}")
}

/// The number in a segment's name.
pub(super) fn segment_index(name: &str) -> Option<u64> {
    let digits = Path::new(name).file_stem()?.to_str()?.strip_prefix(SEGMENT_PREFIX)?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

fn is_segment_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == &SEGMENT_SUFFIX[1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_rejected() {
        for name in ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", "a\0b"] {
            assert!(!is_plain_name(name), "{name:?}");
        }
        assert!(is_plain_name("segment-000001.jsonl"));
    }

    #[test]
    fn numbers_are_read_from_names() {
        assert_eq!(segment_index(&segment_name(7)), Some(7));
        assert_eq!(segment_index("segment-1234567.jsonl"), Some(1_234_567));
        for name in
            ["segment-.jsonl", "segment-x.jsonl", "other-1.jsonl", "segment-99999999999999999999.jsonl"]
        {
            assert_eq!(segment_index(name), None, "{name}");
        }
    }
}
