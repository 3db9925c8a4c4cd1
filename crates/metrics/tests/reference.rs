//! docs/reference/metrics.md lists every family that is served, as `families.rs` has it.
//!
//! `STORMLOG_BLESS=1 cargo test -p stormlog-metrics --test reference` rewrites the page.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use stormlog_metrics::families::ALL;
use stormlog_metrics::{Family, Kind};

const HEAD: &str = "\
<!-- Generated from crates/metrics/src/families.rs by crates/metrics/tests/reference.rs; do not edit. -->

# Metrics

Every series of `stormlog serve`, of its text files and of OTLP. [serve](../serve.md) describes how they are read, which need a token, and what
`job_id`, `rank` and `slot` are; [alerts](../alerts.md) has rules and a dashboard over them.

A label that is empty is left out. A value that is unknown has no series: none is served as 0.

| series | type | labels | meaning |
|---|---|---|---|
";

fn row(family: &Family) -> String {
    let kind = match family.kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Info => "info, always 1",
    };
    let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
    let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
    format!("| `{}` | {kind} | {labels} | {} |\n", family.name, family.help)
}

#[test]
fn reference_of_metrics_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let mut page = HEAD.to_owned();
    for family in ALL {
        let _ = write!(page, "{}", row(family));
    }
    if std::env::var_os("STORMLOG_BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "stale; run: STORMLOG_BLESS=1 cargo test -p stormlog-metrics --test reference");
}
