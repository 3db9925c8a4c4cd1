//! How a process ended, in words, from the source that saw it.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde_json::Value;
use stormlog_model::SessionStatus;

/// From the wait status.
pub(super) fn of_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => of_code(code.into()),
        (None, Some(signal)) => of_signal(signal.into()),
        (None, None) => "cause unknown".to_owned(),
    }
}

/// From what a run or a capture wrote down: `verdict`, `exit_code`, `signal`.
pub(super) fn of_record(record: &Value) -> Option<String> {
    let number = |key: &str| record.get(key).and_then(Value::as_i64);
    let how = number("signal").map(of_signal).or_else(|| number("exit_code").map(of_code))?;
    // A cause that only repeats the signal or the exit says nothing more.
    let is_more = |cause: &&str| *cause != "signal" && !how.to_lowercase().contains(cause);
    let cause = record.get("cause").and_then(Value::as_str).filter(is_more);
    Some(cause.map_or(how.clone(), |cause| format!("{how}: {}", cause.replace('_', " "))))
}

/// From the state of its session.
pub(super) fn of_session(status: SessionStatus) -> Option<String> {
    match status {
        SessionStatus::Running => None,
        SessionStatus::Completed => Some("it finished".to_owned()),
        SessionStatus::Interrupted => Some("it was killed or crashed".to_owned()),
        _ => Some("cause unknown".to_owned()),
    }
}

fn of_code(code: i64) -> String {
    match code {
        0 => "it finished".to_owned(),
        code => format!("exit code {code}"),
    }
}

fn of_signal(signal: i64) -> String {
    let name = i32::try_from(signal).ok().and_then(signal_hook::low_level::signal_name);
    match name {
        Some(name) => format!("killed by {name}"),
        None => format!("killed by signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_exit_status_has_a_text() {
        assert_eq!(of_status(ExitStatus::from_raw(0)), "it finished");
        assert_eq!(of_status(ExitStatus::from_raw(3 << 8)), "exit code 3");
        assert_eq!(of_status(ExitStatus::from_raw(9)), "killed by SIGKILL");
        let record = json!({"exit_code": null, "signal": 9, "cause": "kernel_oom_kill"});
        assert_eq!(of_record(&record).as_deref(), Some("killed by SIGKILL: kernel oom kill"));
        let plain = json!({"signal": 9, "cause": "sigkill"});
        assert_eq!(of_record(&plain).as_deref(), Some("killed by SIGKILL"));
        assert_eq!(of_record(&json!({"signal": 99})).as_deref(), Some("killed by signal 99"));
        assert_eq!(of_record(&json!({"exit_code": null})), None);
        assert_eq!(of_session(SessionStatus::Running), None);
    }
}
