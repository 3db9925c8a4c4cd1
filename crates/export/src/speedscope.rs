//! speedscope's own JSON: shared frames, one weighted profile for each thread.

use serde_json::{Value, json};
use stormlog_model::stacks::StackProfile;

use crate::{About, all_in_frames, outermost_first};

/// The file speedscope opens.
#[must_use]
pub fn speedscope(held: &StackProfile, about: &About<'_>) -> Value {
    let held = &*all_in_frames(held);
    let frames: Vec<Value> = held
        .tree
        .frames
        .iter()
        .map(|frame| json!({"name": frame.function, "file": frame.file, "line": frame.line}))
        .collect();
    let threads = held.rows.iter().map(|row| row.thread + 1).max().unwrap_or(0).max(1);
    let profiles: Vec<Value> = (0..threads)
        .map(|thread| {
            let rows = || held.rows.iter().filter(move |row| row.thread == thread);
            let whole = rows().fold(0u64, |sum, row| sum.saturating_add(row.bytes));
            let name = held.threads.get(thread as usize).map_or("thread", String::as_str);
            json!({
                "type": "sampled",
                "name": name,
                "unit": "bytes",
                "startValue": 0,
                "endValue": whole,
                "samples": rows().map(|row| outermost_first(held, row.node)).collect::<Vec<_>>(),
                "weights": rows().map(|row| row.bytes).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": about.title,
        "exporter": "stormlog",
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    })
}

#[cfg(test)]
mod tests {
    use crate::About;

    #[test]
    fn weights_add_up() {
        let file = super::speedscope(&crate::testing::held(), &About { title: "t", start_ms: 0, pid: 1 });
        assert_eq!(file["profiles"][0]["endValue"], 45);
        assert_eq!(file["profiles"][0]["samples"][2], serde_json::json!([0, 1, 2]));
        assert_eq!(file["shared"]["frames"][1]["line"], 8);
    }
}
