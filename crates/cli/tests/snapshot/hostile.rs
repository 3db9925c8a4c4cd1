//! Files that are wrong, cut short or mean harm: exit 5, one sentence, nothing run.

use std::path::Path;

use super::{recording, stormlog};

fn refused(directory: &Path, name: &str, bytes: &[u8], because: &str) {
    let path = directory.join(name);
    std::fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap();
    let page = directory.join("page.html");
    let page = page.to_str().unwrap();
    for arguments in [
        &["snapshot", path][..],
        &["snapshot", path, "--oom", "--json"],
        &["replay", path, "--search"],
        &["timeline", path, "-o", page],
    ] {
        let (code, out, err) = stormlog(arguments);
        assert_eq!((code, out.as_str()), (5, ""), "{arguments:?}");
        assert!(err.contains(name) && err.contains(because), "{arguments:?}: {err}");
        assert_eq!(err.trim_end().lines().count(), 1, "one sentence: {err}");
    }
    assert!(!Path::new(page).exists(), "no half a page is left");
}

#[test]
fn each_is_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    refused(directory, "evil.pickle", b"\x80\x04cos\nsystem\n\x8c\x04true\x85R.", "would run code (GLOBAL)");
    refused(
        directory,
        "stack.pickle",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        "would run code (STACK_GLOBAL)",
    );
    refused(directory, "old.pickle", b"\x80\x01}.", "pickle protocol 1");
    refused(directory, "empty.pickle", b"", "is truncated");
    refused(directory, "other.pickle", b"\x80\x04K\x05.", "no allocator snapshot in it");
    refused(directory, "text.txt", b"hello", "not a pickle, JSON, gzip or zstd file");
    refused(directory, "long.pickle", b"\x80\x04X\xff\xff\xff\xff", "more than the");
    refused(directory, "memo.pickle", b"\x80\x04j\xff\xff\xff\x7f.", "never filled");
    refused(directory, "cycle.pickle", b"\x80\x04]\x94h\x00a.", "holds itself");
    let deep = [b"\x80\x04".to_vec(), b"(".repeat(100_000)].concat();
    refused(directory, "deep.pickle", &deep, "nested deeper");
    refused(directory, "half.json", br#"{"segments": [{"#, "JSON");
    let whole = std::fs::read(recording("gpt-oom")).unwrap();
    refused(directory, "half.pickle.gz", &whole[..whole.len() / 2], "is truncated");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 64].fill(0x55);
    refused(directory, "damaged.pickle.gz", &damaged, "damaged.pickle.gz");
}

#[test]
fn missing_input_is_reported() {
    for command in ["snapshot", "replay"] {
        let (code, _, err) = stormlog(&[command, "/nonexistent.pickle"]);
        assert_eq!(code, 5);
        assert!(err.contains("/nonexistent.pickle"), "{err}");
    }
    let (code, _, err) = stormlog(&["snapshot", "/"]);
    assert_eq!(code, 5, "{err}");
}
