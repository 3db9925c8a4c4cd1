//! Source lines for the frames that are shown, from the disk. Must read source files only (a recording may name any file), and not many.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use rustc_hash::FxHashMap;
use stormlog_model::stacks::{FrameKind, StackProfile};

/// Frames whose line is shown, the largest first.
const MOST_FRAMES: usize = 4000;
/// Files opened.
const MOST_FILES: usize = 500;
/// Bytes read of one file.
const MOST_BYTES: u64 = 4 << 20;
/// Characters of a line.
const MOST_CHARACTERS: usize = 160;
const ENDINGS: [&str; 10] = ["py", "pyx", "pxd", "pyi", "c", "cc", "cpp", "h", "hpp", "rs"];

/// Lines by (file, line).
pub(crate) fn lines(held: &StackProfile) -> FxHashMap<(String, u32), String> {
    let mut found = FxHashMap::default();
    for (file, mut wanted) in wanted(held).into_iter().take(MOST_FILES) {
        wanted.sort_unstable();
        wanted.dedup();
        read(file, &wanted, |line, text| {
            found.insert((file.to_owned(), line), text);
        });
    }
    found
}

/// Lines by file; the files of the largest frames first.
fn wanted(held: &StackProfile) -> Vec<(&str, Vec<u32>)> {
    let (_, total) = held.own_and_total();
    let mut by_frame = vec![0u64; held.tree.frames.len()];
    for (frame, total) in held.tree.frame.iter().zip(&total).skip(1) {
        let bytes = &mut by_frame[*frame as usize];
        *bytes = total.bytes.max(*bytes);
    }
    let mut order: Vec<usize> = (0..by_frame.len()).collect();
    order.sort_by_key(|frame| (std::cmp::Reverse(by_frame[*frame]), *frame));
    let mut places: FxHashMap<&str, usize> = FxHashMap::default();
    let mut files: Vec<(&str, Vec<u32>)> = Vec::new();
    for frame in order.into_iter().take(MOST_FRAMES) {
        let frame = &held.tree.frames[frame];
        if frame.line == 0 || frame.kind == FrameKind::Remark || !is_source(&frame.file) {
            continue;
        }
        let place = *places.entry(&frame.file).or_insert(files.len());
        if place == files.len() {
            files.push((&frame.file, Vec::new()));
        }
        files[place].1.push(frame.line);
    }
    files
}

fn is_source(file: &str) -> bool {
    Path::new(file)
        .extension()
        .and_then(|ending| ending.to_str())
        .is_some_and(|ending| ENDINGS.contains(&ending))
}

fn read(file: &str, wanted: &[u32], mut found: impl FnMut(u32, String)) {
    let Ok(file) = stormlog_files::open_regular(Path::new(file)) else { return };
    let mut reader = BufReader::new(file.take(MOST_BYTES));
    let mut bytes = Vec::new();
    let mut number = 0u32;
    for line in wanted {
        while number < *line {
            bytes.clear();
            if !reader.read_until(b'\n', &mut bytes).is_ok_and(|length| length > 0) {
                return;
            }
            number += 1;
        }
        let text = String::from_utf8_lossy(&bytes);
        let text: String = text.trim().chars().take(MOST_CHARACTERS).collect();
        if !text.is_empty() {
            found(*line, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_model::stacks::{Frame, Holding, StackTree};

    #[test]
    fn lines_of_source_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("a.py");
        let secret = folder.path().join("shadow");
        std::fs::write(&source, "first\n  second()\nthird\n").unwrap();
        std::fs::write(&secret, "root:secret\n").unwrap();
        let mut tree = StackTree::new();
        for (file, line) in [(&source, 2), (&source, 99), (&secret, 1)] {
            let file = file.to_str().unwrap().to_owned();
            tree.frames.push(Frame { function: "f".into(), file, line, kind: FrameKind::Python });
            let node = tree.len() as u32;
            tree.push(0, node - 1);
        }
        let rows = (1..4).map(|node| Holding { node, thread: 0, bytes: 5, count: 1 }).collect();
        let found = lines(&StackProfile { tree, rows, threads: vec![] });
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[&(source.to_str().unwrap().to_owned(), 2)], "second()");
    }
}
