//! The JSON gprof2dot reads: functions, and call chains with their costs.

use serde_json::{Value, json};
use stormlog_event::stacks::Holdings;

use crate::outermost_first;

/// The file gprof2dot reads with `-f json`.
#[must_use]
pub fn gprof2dot(held: &Holdings) -> Value {
    let functions: Vec<Value> = held
        .tree
        .frames
        .iter()
        .map(|frame| json!({"name": frame.function, "module": frame.place()}))
        .collect();
    let events: Vec<Value> = held
        .rows
        .iter()
        .map(|row| {
            let mut chain = outermost_first(held, row.node);
            chain.reverse();
            json!({"callchain": chain, "cost": [row.bytes, row.count]})
        })
        .collect();
    json!({
        "version": 0,
        "costs": [
            {"description": "Memory", "unit": "bytes"},
            {"description": "Allocations", "unit": "units"},
        ],
        "functions": functions,
        "events": events,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn chains_start_innermost() {
        let file = super::gprof2dot(&crate::testing::held());
        assert_eq!(file["events"][2]["callchain"], serde_json::json!([2, 1, 0]));
        assert_eq!(file["events"][2]["cost"], serde_json::json!([30, 3]));
    }
}
