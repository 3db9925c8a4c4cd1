//! The quick path and the strict path must agree on every record: same events, same refusals.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::io::Write;

use common::cuda_record;
use proptest::prelude::*;
use serde_json::{Value, json};
use stormlog_model::{Defaults, FIELDS, Interner, Record, event_from_record};
use stormlog_store::json::EventReader;
use stormlog_store::{ReadOptions, StoreError};

fn arbitrary_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-3i64..5).prop_map(Value::from),
        any::<f64>().prop_map(|float| json!(float)),
        "[ -~]{0,6}".prop_map(Value::from),
        "\\PC{0,4}".prop_map(Value::from),
        Just(json!({})),
        Just(json!([1])),
        Just(json!({"memory_capabilities": {}})),
    ]
}

prop_compose! {
    fn mutated()(
        schema in 1u8..6,
        changes in prop::collection::vec((0usize..24, arbitrary_value(), any::<bool>()), 0..3),
        shuffle in any::<u64>(),
        no_capabilities in any::<bool>(),
    ) -> Record {
        let mut record = cuda_record();
        record.insert("schema_version".into(), schema.into());
        if schema == 2 {
            record.shift_remove("session_id");
        }
        if no_capabilities {
            record.insert("metadata".into(), json!({"a": [1, {"b": null}]}));
        }
        for (index, value, remove) in changes {
            let name = FIELDS.get(index).map_or("surprise", |(_, name)| name);
            if remove {
                record.shift_remove(name);
            } else {
                record.insert(name.into(), value);
            }
        }
        let mut entries: Vec<(String, Value)> = record.into_iter().collect();
        let length = entries.len().max(1);
        entries.rotate_left(shuffle as usize % length);
        entries.into_iter().collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn both_paths_agree(records in prop::collection::vec(mutated(), 1..4), pretty: bool) {
        // Each record twice in a row: the second time the quick path works from memory.
        let records: Vec<&Record> = records.iter().flat_map(|record| [record, record]).collect();
        let array = Value::Array(records.iter().map(|record| Value::Object((*record).clone())).collect());
        let text = if pretty { serde_json::to_string_pretty(&array) } else { serde_json::to_string(&array) }.unwrap();
        let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let options = ReadOptions { session_id: Some("default".into()), ..ReadOptions::default() };
        let read: Vec<_> = EventReader::open(file.path(), &options).unwrap().collect();
        prop_assert_eq!(read.len(), records.len());
        for (read, record) in read.into_iter().zip(records) {
            let defaults = Defaults { session_id: Some("default"), ..Defaults::default() };
            let strict = event_from_record(record, &defaults, &mut Interner::default());
            match (read, strict) {
                (Ok(event), strict) => prop_assert_eq!(Ok(event), strict),
                (Err(StoreError::Record { problems, .. }), Err(problem)) => prop_assert_eq!(&problems[0], &problem),
                (Err(error), strict) => prop_assert!(false, "{} against {:?}", error, strict),
            }
        }
    }
}
