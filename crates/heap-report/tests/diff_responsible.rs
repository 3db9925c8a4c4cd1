//! Differences are the program's: two files of another tool whose innermost frames are the same, in the allocator.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::Path;

use stormlog_heap_report::diff::diff;
use stormlog_heap_report::rows::By;
use stormlog_heap_report::{HeapQuery, Reading};
use stormlog_model::stacks::StackProfile;

const REPORT: &str = include_str!("../../import/tests/data/sanitizer.txt");

fn held(folder: &Path, name: &str, text: &str) -> StackProfile {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    Reading::of(&path, None, HeapQuery::Peak).unwrap().stack_profile()
}

#[test]
fn diff_of_reports_that_differ_in_the_users_frame_names_that_frame() {
    let folder = tempfile::tempdir().unwrap();
    let a = held(folder.path(), "a.txt", REPORT);
    let other = REPORT.replace("leaky(unsigned long) in leak.cu:4", "cache(unsigned long) in leak.cu:12");
    let b = held(folder.path(), "b.txt", &other);
    let whole = a.whole().bytes as i64;
    for by in [By::Line, By::Function] {
        let rows = diff(&a, &b).rows(by);
        let mut short: Vec<(&str, i64)> =
            rows.iter().map(|row| (row.stack[0].function.as_str(), row.delta_bytes)).collect();
        short.sort_unstable();
        assert_eq!(short, [("cache(unsigned long)", whole), ("leaky(unsigned long)", -whole)], "{by:?}");
    }
    assert!(diff(&a, &a).rows(By::Line).is_empty());
}
