//! Names that others chose, as labels: whatever they are, every line of an answer reads back as the series that was meant. The same bytes as the record of a
//! run in a directory that is served.
#![no_main]

use std::fs;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use stormlog_fuzz::directory;
use stormlog_metrics::{Exposition, Format, Labels, families};
use stormlog_node::{Node, NodeOptions};
use stormlog_serve::{Exposure, exposition};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split('\0');
    let mut next = || parts.next().unwrap_or_default();
    let labels = Labels::new()
        .with("job_id", next())
        .with("rank", next())
        .with("run_id", next())
        .with("host", next())
        .with("command", next());
    let mut all = Exposition::new();
    assert!(all.add(&families::RUN_INFO, labels.clone(), 1));
    assert!(!all.add(&families::RUN_INFO, labels.clone(), 2), "a series is there once");
    for format in [Format::Text, Format::OpenMetrics] {
        let rendered = all.render(format);
        let series = series_of(&rendered);
        assert_eq!(series.len(), 1);
        let (name, found) = &series[0];
        let meant: Vec<(String, String)> =
            labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!((name.as_str(), found), ("stormlog_run_info", &meant));
    }

    let root = directory().join("served");
    let run = root.join("run");
    fs::create_dir_all(&run).expect("a place for the run");
    fs::write(run.join("run.json"), data).expect("room for the run");
    let options =
        NodeOptions { roots: vec![root], budget: Some(Duration::from_secs(5)), ..NodeOptions::default() };
    let mut node = Node::new(options).expect("no state to read");
    node.look();
    for exposure in [Exposure::Everyone, Exposure::Owner] {
        for format in [Format::Text, Format::OpenMetrics] {
            assert!(!series_of(&exposition(&mut node, exposure).render(format)).is_empty());
        }
    }
    let _ = fs::remove_dir_all(run);
});

/// Every series of an answer with its labels; panics at a line that is none.
fn series_of(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let is_series = |line: &&str| !line.starts_with('#');
    text.lines().filter(is_series).map(|line| series(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn series(line: &str) -> Option<(String, Vec<(String, String)>)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(braced) = rest.strip_prefix('{') {
        rest = braced;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, length) = quoted(after)?;
            labels.push((label.to_owned(), value));
            rest = &after[length..];
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?.split(' ').next()?;
    value.parse::<f64>().ok()?;
    Some((name.to_owned(), labels))
}

/// The text up to the quote that ends it, and the bytes it takes with that.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, at + 1)),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}
