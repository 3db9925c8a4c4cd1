//! The error file of torchrun: the agent that started a rank reads it when the rank has failed, and prints it in its summary.
//!
//! The format is PyTorch's (`torch.distributed.elastic.multiprocessing.errors`): `{"message": {"message", "extraInfo": {"py_callstack", "timestamp"}}}`. The agent
//! prints `py_callstack` where there is one, so the answer is at its head, and fails on a file that is not whole: it is renamed into place. What the program's own
//! `@record` wrote is kept behind the answer. Must never be written for an end that was intended.

use std::io::{self, Read};
use std::path::Path;

use serde_json::{Map, Value, json};
use stormlog_files::{Existing, open_regular, write_output};

/// The variable that names the file. Empty where the launcher wants none.
pub const ERROR_FILE_VARIABLE: &str = "TORCHELASTIC_ERROR_FILE";
/// A longer file is not one that `@record` wrote.
const MOST: u64 = 4 << 20;

/// Puts the answer into the file of a rank that ended at this moment.
pub fn write_error_file(path: &Path, answer: &[String], ended_at_ns: u64) -> io::Result<()> {
    let mut written = Vec::new();
    if let Ok(file) = open_regular(path) {
        file.take(MOST).read_to_end(&mut written)?;
    }
    write_output(path, &error_file(&written, answer, ended_at_ns), Existing::Replace)
}

/// The content: the answer, then what the program wrote, if that is an error file.
fn error_file(written: &[u8], answer: &[String], ended_at_ns: u64) -> Vec<u8> {
    let mut file: Map<String, Value> = serde_json::from_slice(written).unwrap_or_default();
    let first = answer.first().map(String::as_str).unwrap_or_default();
    // Root cause is the rank that failed first.
    let seconds = ended_at_ns / 1_000_000_000;
    match file.remove("message") {
        Some(Value::String(text)) => {
            file.insert("message".to_owned(), ahead(&answer.join("\n"), &text).into());
            file.entry("timestamp").or_insert_with(|| seconds.into());
        }
        Some(Value::Object(mut message)) => {
            let text = message.get("message").and_then(Value::as_str).unwrap_or_default();
            let text = ahead(first, text);
            message.insert("message".to_owned(), text.into());
            let mut info = match message.remove("extraInfo") {
                Some(Value::Object(info)) => info,
                _ => Map::new(),
            };
            let stack = info.get("py_callstack").and_then(Value::as_str).unwrap_or_default();
            let stack = ahead(&answer.join("\n"), stack);
            info.insert("py_callstack".to_owned(), stack.into());
            let has_time = info.get("timestamp").is_some_and(is_seconds);
            if !has_time {
                info.insert("timestamp".to_owned(), seconds.to_string().into());
            }
            message.insert("extraInfo".to_owned(), info.into());
            file.insert("message".to_owned(), message.into());
        }
        _ => {
            let info = json!({"py_callstack": answer.join("\n"), "timestamp": seconds.to_string()});
            file.insert("message".to_owned(), json!({"message": first, "extraInfo": info}));
        }
    }
    Value::Object(file).to_string().into_bytes()
}

fn ahead(answer: &str, text: &str) -> String {
    if text.is_empty() { answer.to_owned() } else { format!("{answer}\n\n{text}") }
}

/// What the agent can read as a time.
fn is_seconds(value: &Value) -> bool {
    value.is_u64() || value.as_str().is_some_and(|text| text.trim().parse::<u64>().is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    const AT_NS: u64 = 1_700_000_000_900_000_000;

    fn answer() -> Vec<String> {
        vec!["train.py (pid 7) was killed by the OOM killer.".to_owned(), "  held by   9 GiB".to_owned()]
    }

    fn file(written: &str) -> Value {
        serde_json::from_slice(&error_file(written.as_bytes(), &answer(), AT_NS)).unwrap()
    }

    #[test]
    fn file_of_a_rank_that_wrote_none_has_the_answer_and_the_time_of_death() {
        let expected = json!({"message": {
            "message": "train.py (pid 7) was killed by the OOM killer.",
            "extraInfo": {
                "py_callstack": "train.py (pid 7) was killed by the OOM killer.\n  held by   9 GiB",
                "timestamp": "1700000000",
            },
        }});
        for written in ["", "{", "[1]", "{\"message\": 7}", "\u{0}\u{1}"] {
            assert_eq!(file(written), expected, "{written}");
        }
    }

    #[test]
    fn answer_is_ahead_of_what_record_wrote_and_the_rest_is_kept() {
        let written = json!({"errorTraits": 1, "message": {"message": "ValueError: boom", "errorCode": 1,
            "extraInfo": {"py_callstack": "Traceback …\nValueError: boom\n", "timestamp": "1699999999"}}});
        let found = file(&written.to_string());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        assert_eq!(
            text(&found["message"]["message"]),
            format!("{}\n\nValueError: boom", answer()[0]),
            "the answer's first line"
        );
        let stack = text(&found["message"]["extraInfo"]["py_callstack"]);
        assert_eq!(stack, format!("{}\n\nTraceback …\nValueError: boom\n", answer().join("\n")));
        assert_eq!(found["message"]["extraInfo"]["timestamp"], "1699999999", "it failed then");
        assert_eq!((&found["errorTraits"], &found["message"]["errorCode"]), (&json!(1), &json!(1)));
    }

    #[test]
    fn file_whose_message_is_a_text_keeps_that_form() {
        let found = file(r#"{"message": "boom", "timestamp": 5}"#);
        assert_eq!(found, json!({"message": format!("{}\n\nboom", answer().join("\n")), "timestamp": 5}));
    }

    #[test]
    fn time_that_the_agent_could_not_read_is_replaced() {
        let found = file(r#"{"message": {"message": "x", "extraInfo": {"timestamp": "yesterday"}}}"#);
        assert_eq!(found["message"]["extraInfo"]["timestamp"], "1700000000");
        let found = file(r#"{"message": {"message": "x", "extraInfo": [1]}}"#);
        assert_eq!(found["message"]["extraInfo"]["timestamp"], "1700000000");
    }

    #[test]
    fn file_is_replaced_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("error.json");
        write_error_file(&path, &answer(), AT_NS).unwrap();
        let first: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(first, file(""));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "no draft is left");
        assert!(write_error_file(&place.path().join("missing/error.json"), &answer(), AT_NS).is_err());
    }
}
