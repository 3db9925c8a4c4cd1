//! Parquet files as other tools write them, in each codec they have by default. `data/parquet/make.py` made them.
#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::{Path, PathBuf};

use common::{golden, read_all, records};
use stormlog_store::{ReadOptions, Source};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parquet").join(name)
}

#[test]
fn files_of_other_tools_hold_the_same_events_in_every_codec() {
    let expected = records(&read_all(&golden().join("peer-0.4.3/cuda_tracker.json")));
    assert!(expected.len() > 3);
    let names = ["none", "lz4", "snappy", "gzip", "zstd", "snappy-pages2", "gzip-pages2", "zstd-pages2"];
    let names = names.map(|codec| format!("pyarrow-{codec}"));
    for name in names.iter().map(String::as_str).chain(["duckdb", "polars"]) {
        let found = records(&read_all(&data(&format!("{name}.parquet"))));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn integers_with_gaps_that_pandas_made_floats_of_are_integers() {
    let found = records(&read_all(&data("pandas.parquet")));
    let mut expected = records(&read_all(&golden().join("peer-0.4.3/cuda_tracker.json")));
    for record in expected.iter_mut().step_by(2) {
        record.insert("device_free_bytes".into(), serde_json::Value::Null);
    }
    assert_eq!(found, expected);
}

#[test]
fn other_codecs_are_named_with_what_to_do() {
    let source = Source::find(&data("pyarrow-brotli.parquet")).unwrap().remove(0);
    let events = source.events(&ReadOptions::default()).unwrap();
    let error = events.filter_map(Result::err).next().unwrap().to_string();
    assert!(error.contains("brotli") && error.contains("zstd"), "{error}");
}
