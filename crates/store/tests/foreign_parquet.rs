//! Parquet files as other tools write them, in each codec they have by default. `data/parquet/make.py` made them.
#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::{Path, PathBuf};

use common::{golden, read_all, records};
use stormlog_store::{ReadOptions, Source, TableFile};

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
fn row_group_read_in_batches_has_the_cells_of_the_whole_group() {
    let columns = ["timestamp_ns", "session_id", "device_free_bytes", "no_such_column"];
    for name in ["pyarrow-none", "pyarrow-zstd-pages2", "duckdb", "polars", "pandas"] {
        let file = TableFile::open(&data(&format!("{name}.parquet"))).unwrap();
        let whole = file.read_group(0, &columns).unwrap();
        let mut batches = file.batches(0, &columns).unwrap();
        assert_eq!(batches.left(), file.group_rows(0));
        let mut first = 0;
        while batches.left() > 0 {
            let rows = batches.left().min(2);
            let batch = batches.read(rows).unwrap();
            for (own, all) in batch.iter().zip(&whole) {
                for row in 0..rows {
                    assert_eq!(own.float(row), all.float(first + row), "{name}");
                    assert_eq!(own.text(row), all.text(first + row), "{name}");
                }
                assert_eq!(own.float(rows), None, "{name}");
            }
            first += rows;
        }
        assert_eq!(first, file.group_rows(0));
        assert!(whole[0].float(first - 1).is_some(), "{name}");
    }
}

#[test]
fn other_codecs_are_named_with_what_to_do() {
    let source = Source::find(&data("pyarrow-brotli.parquet")).unwrap().remove(0);
    let events = source.events(&ReadOptions::default()).unwrap();
    let error = events.filter_map(Result::err).next().unwrap().to_string();
    assert!(error.contains("brotli") && error.contains("zstd"), "{error}");
}
