//! What the program was doing when it failed, in its own words: the context of the bundle that its tracker or its trainer's callback left of the
//! same exception (`epoch 1, step 5`). The supervisor's bundle, which is about the end, does not know it. Must never take an exception that the
//! process survived for the one that ended it.

use serde_json::Value;
use stormlog_model::Record;
use stormlog_postmortem::bundle::Bundle;

use crate::evidence::raised;

/// Bundles of one process that are read for it, the newest.
const MOST: usize = 8;

/// The context of the exception that `end` is about, out of the other bundles of its process.
pub(crate) fn during(bundles: &[std::path::PathBuf], end: &Bundle) -> Option<String> {
    let others = bundles.iter().rev().filter(|path| **path != end.path).take(MOST);
    others
        .filter_map(|path| Bundle::read(path).ok())
        .find_map(|other| of_same(&other.metadata, &end.metadata))
}

fn of_same(inside: &Record, end: &Record) -> Option<String> {
    let is_same = raised(inside).is_some_and(|one| raised(end) == Some(one));
    let context = inside.get("context").and_then(Value::as_str)?.lines().next()?.trim();
    (is_same && !context.is_empty()).then(|| stormlog_model::text::short_name(context))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(line: u64, context: &str) -> Record {
        let frame = json!({"file": "/w/train.py", "line": line, "function": "forward"});
        let page = json!({
            "exception_type": "MemoryError", "context": context, "custom_metadata": {"traceback": [frame]},
        });
        page.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn context_is_that_of_the_same_exception() {
        let end = metadata(7, "train.py (pid 7) raised MemoryError after 2.0 s.");
        assert_eq!(of_same(&metadata(7, "epoch 1, step 5"), &end).as_deref(), Some("epoch 1, step 5"));
        assert_eq!(of_same(&metadata(9, "epoch 0, step 2"), &end), None, "an error that was caught");
        assert_eq!(of_same(&metadata(7, ""), &end), None);
        assert_eq!(of_same(&Record::default(), &Record::default()), None);
    }
}
