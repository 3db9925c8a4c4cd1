//! Retention: oldest first, never the newest, never anything that is not a bundle.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stormlog_postmortem::bundle::Retention;

/// A directory like a bundle, this many hours old and this many bytes large.
fn bundle(root: &Path, name: &str, hours: u64, bytes: usize) -> PathBuf {
    let path = root.join(name);
    fs::create_dir(&path).unwrap();
    fs::write(path.join("events.json"), vec![b' '; bytes]).unwrap();
    let then = SystemTime::now() - Duration::from_secs(hours * 3600);
    File::open(&path).unwrap().set_modified(then).unwrap();
    path
}

fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn by_count_the_oldest_go() {
    let root = tempfile::tempdir().unwrap();
    bundle(root.path(), "oom_dump_c", 1, 10);
    bundle(root.path(), "oom_dump_a", 3, 10);
    bundle(root.path(), "oom_dump_b", 2, 10);
    let new = bundle(root.path(), "oom_dump_new", 0, 10);
    let removal = Retention { max_bundles: 2, max_total_bytes: 0 }.enforce(root.path(), &new);
    assert_eq!((removal.removed.len(), removal.failed.len()), (2, 0));
    assert_eq!(removal.removed[0].file_name().unwrap(), "oom_dump_a");
    assert_eq!(names(root.path()), ["oom_dump_c", "oom_dump_new"]);
}

#[test]
fn by_size_the_oldest_go_but_never_the_one_just_written() {
    let root = tempfile::tempdir().unwrap();
    bundle(root.path(), "oom_dump_a", 3, 600);
    bundle(root.path(), "oom_dump_b", 2, 300);
    // Older than the others by its clock, and alone beyond the limit: it stays all the same.
    let new = bundle(root.path(), "oom_dump_new", 100, 5000);
    Retention { max_bundles: 1, max_total_bytes: 1000 }.enforce(root.path(), &new);
    assert_eq!(names(root.path()), ["oom_dump_new"]);
    bundle(root.path(), "oom_dump_c", 3, 600);
    bundle(root.path(), "oom_dump_d", 2, 300);
    Retention { max_bundles: 0, max_total_bytes: 5400 }.enforce(root.path(), &new);
    assert_eq!(names(root.path()), ["oom_dump_d", "oom_dump_new"]);
}

#[test]
fn no_limit_removes_nothing() {
    let root = tempfile::tempdir().unwrap();
    for index in 0..20 {
        bundle(root.path(), &format!("oom_dump_{index}"), index, 1000);
    }
    let removal = Retention { max_bundles: 0, max_total_bytes: 0 }.enforce(root.path(), Path::new("x"));
    assert!(removal.removed.is_empty());
    assert_eq!(names(root.path()).len(), 20);
}

#[test]
fn only_bundles_are_touched() {
    let root = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let precious = bundle(elsewhere.path(), "precious", 100, 10_000);
    std::os::unix::fs::symlink(&precious, root.path().join("oom_dump_link")).unwrap();
    fs::write(root.path().join("oom_dump_file"), vec![0; 10_000]).unwrap();
    bundle(root.path(), "oom_cuda_20260303_152030_001", 50, 10_000);
    bundle(root.path(), "results", 50, 10_000);
    let old = bundle(root.path(), "oom_dump_old", 1, 10);
    std::os::unix::fs::symlink(&precious, old.join("inside")).unwrap();
    let new = bundle(root.path(), "oom_dump_new", 0, 10);
    Retention { max_bundles: 1, max_total_bytes: 1 }.enforce(root.path(), &new);
    assert_eq!(
        names(root.path()),
        ["oom_cuda_20260303_152030_001", "oom_dump_file", "oom_dump_link", "oom_dump_new", "results"]
    );
    assert!(precious.join("events.json").exists());
}

#[test]
fn missing_root_is_reported_as_a_failure() {
    let removal =
        Retention::default().enforce(Path::new("/no/such/place"), Path::new("/no/such/place/oom_dump_x"));
    assert_eq!((removal.removed.len(), removal.failed.len()), (0, 1));
}

#[test]
fn processes_that_prune_at_the_same_time_do_not_hurt_each_other() {
    let root = tempfile::tempdir().unwrap();
    for index in 0..200 {
        bundle(root.path(), &format!("oom_dump_{index:03}"), index + 1, 100);
    }
    let new = bundle(root.path(), "oom_dump_new", 0, 10);
    let removed: usize = std::thread::scope(|scope| {
        let prune = || {
            let removal = Retention { max_bundles: 5, max_total_bytes: 0 }.enforce(root.path(), &new);
            assert!(removal.failed.is_empty(), "{:?}", removal.failed);
            removal.removed.len()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(prune)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(removed, 196, "each was removed once");
    assert_eq!(names(root.path()).len(), 5);
    assert!(new.exists());
}
