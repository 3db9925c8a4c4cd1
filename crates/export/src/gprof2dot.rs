//! The JSON gprof2dot reads: functions, and call chains with their costs.

use serde_json::{Value, json};
use stormlog_model::stacks::StackProfile;

use crate::{all_in_frames, outermost_first};

/// The file gprof2dot reads with `-f json`.
#[must_use]
pub fn gprof2dot(held: &StackProfile) -> Value {
    let held = &*all_in_frames(held);
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

    /// gprof2dot itself fails on an empty chain.
    #[test]
    fn weight_without_a_stack_is_exported() {
        let mut held = crate::testing::held();
        held.rows[0].node = 0;
        let file = super::gprof2dot(&held);
        assert_eq!(file["events"][0]["callchain"], serde_json::json!([3]));
        assert_eq!(file["functions"][3]["name"], "(no stack)");
        let about = crate::About { title: "t", start_ms: 0, pid: 1 };
        let samples = &crate::speedscope(&held, &about)["profiles"][0]["samples"];
        assert!(samples.as_array().unwrap().iter().all(|stack| stack != &serde_json::json!([])), "{samples}");
    }
}
