//! What a `stormlog.report` of version 1 may contain: keys, kinds of values, and the word that goes with an exit code.
//!
//! The rules and their sentences are 0.4.3's. A report is JSON from a file or an object of the caller, so values are asked through
//! [`ReportValue`] and only as far as a rule looks: what is in `payload` is never visited.

use serde_json::Value;

/// How a report calls itself.
pub const FORMAT: &str = "stormlog.report";
/// The version that is written and read.
pub const SCHEMA_VERSION: i128 = 1;
/// How bad a finding may be.
pub const SEVERITIES: [&str; 3] = ["critical", "info", "warning"];

const REQUIRED: [&str; 7] =
    ["schema_version", "format", "report_kind", "generated_at_utc", "tool", "verdict", "findings"];
const OPTIONAL: [&str; 6] = ["metrics", "artifacts", "recommendations", "session_id", "run_id", "payload"];
const TOOL: [&str; 4] = ["name", "command", "version", "argv"];
const VERDICT: [&str; 3] = ["status", "exit_code", "summary"];
const FINDING: [&str; 7] = ["id", "kind", "severity", "title", "message", "metrics", "evidence"];
const EVIDENCE: [&str; 8] =
    ["kind", "path", "pointer", "session_id", "record_id", "start_ns", "end_ns", "description"];
const ARTIFACT: [&str; 4] = ["kind", "path", "format", "schema_version"];
/// The word for each exit code.
pub const STATUSES: [(i128, &str); 7] = [
    (0, "pass"),
    (1, "error"),
    (2, "usage"),
    (3, "findings"),
    (4, "gate_failed"),
    (5, "invalid_input"),
    (130, "interrupted"),
];

/// The first rule that a report breaks, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidReport(String);

/// A number; a truth value is not one.
#[derive(Debug, Clone, Copy)]
pub enum ReportNumber {
    /// A whole number; where it does not fit, the nearest that does.
    Whole(i128),
    /// Any other.
    Float(f64),
}

/// A value of a report as the rules see it.
pub trait ReportValue: Sized {
    /// Whether it is null.
    fn is_null(&self) -> bool;
    /// The text it is.
    fn text(&self) -> Option<String>;
    /// The number it is.
    fn number(&self) -> Option<ReportNumber>;
    /// The items of the list it is.
    fn items(&self) -> Option<Vec<Self>>;
    /// The entries of the object it is. A key that is not a text comes as the text that shows it, in `Err`.
    fn entries(&self) -> Option<Vec<(Result<String, String>, Self)>>;
    /// The value as a message shows it.
    fn shown(&self) -> String;
    /// The same with the quotes of a text.
    fn quoted(&self) -> String;
}

impl ReportValue for &Value {
    fn is_null(&self) -> bool {
        Value::is_null(self)
    }

    fn text(&self) -> Option<String> {
        self.as_str().map(str::to_owned)
    }

    fn number(&self) -> Option<ReportNumber> {
        let Value::Number(number) = self else { return None };
        let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        whole.map(ReportNumber::Whole).or_else(|| number.as_f64().map(ReportNumber::Float))
    }

    fn items(&self) -> Option<Vec<Self>> {
        self.as_array().map(|items| items.iter().collect())
    }

    fn entries(&self) -> Option<Vec<(Result<String, String>, Self)>> {
        self.as_object().map(|map| map.iter().map(|(key, value)| (Ok(key.clone()), value)).collect())
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn quoted(&self) -> String {
        self.as_str().map_or_else(|| self.to_string(), |text| format!("'{text}'"))
    }
}

type Checked = Result<(), InvalidReport>;

fn wrong(sentence: impl Into<String>) -> Checked {
    Err(InvalidReport(sentence.into()))
}

/// Checks a report against every rule.
pub fn check(report: &impl ReportValue) -> Checked {
    let known: Vec<&str> = REQUIRED.iter().chain(&OPTIONAL).copied().collect();
    let report = Object::of(report, "report", "", &known, &REQUIRED)?;
    if report.get("schema_version").and_then(whole) != Some(SCHEMA_VERSION) {
        return wrong(format!("schema_version must be {SCHEMA_VERSION}"));
    }
    if report.get("format").and_then(ReportValue::text).as_deref() != Some(FORMAT) {
        return wrong(format!("format must be '{FORMAT}'"));
    }
    report.pattern("report_kind", "[a-z][a-z0-9_]*", |byte| matches!(byte, b'0'..=b'9' | b'_'))?;
    report.name("generated_at_utc")?;
    report.get("tool").map_or(Ok(()), check_tool)?;
    report.get("verdict").map_or(Ok(()), check_verdict)?;
    report.each("findings", "findings", false, check_finding)?;
    report.get("metrics").map_or(Ok(()), |metrics| check_metrics(metrics, "metrics"))?;
    report.each("artifacts", "artifacts", false, check_artifact)?;
    let is_name = |item: &_| ReportValue::text(item).is_some_and(|text| !text.is_empty());
    let advice = report.get("recommendations");
    if advice.is_some_and(|advice| !advice.items().is_some_and(|items| items.iter().all(is_name))) {
        return wrong("recommendations must be a list of non-empty strings");
    }
    report.names_or_null(&["session_id", "run_id"])?;
    if report.get("payload").is_some_and(|payload| payload.entries().is_none()) {
        return wrong("payload must be an object");
    }
    Ok(())
}

fn check_tool(tool: &impl ReportValue) -> Checked {
    let tool = Object::of(tool, "tool", "tool.", &TOOL, &[])?;
    tool.name("name")?;
    tool.name("command")?;
    tool.names_or_null(&["version"])?;
    let is_text = |item: &_| ReportValue::text(item).is_some();
    if tool.get("argv").is_some_and(|argv| !argv.items().is_some_and(|words| words.iter().all(is_text))) {
        return wrong("tool.argv must be a list of strings");
    }
    Ok(())
}

fn check_verdict(verdict: &impl ReportValue) -> Checked {
    let verdict = Object::of(verdict, "verdict", "verdict.", &VERDICT, &[])?;
    let null = "None".to_owned();
    let status = verdict.get("status");
    let word = status.and_then(ReportValue::text);
    let Some(word) = word.filter(|word| STATUSES.iter().any(|(_, known)| known == word)) else {
        let shown = status.map_or(null, ReportValue::quoted);
        return wrong(format!("verdict.status {shown} is not a verdict status"));
    };
    let code = verdict.get("exit_code");
    let Some(number) = code.and_then(whole) else {
        return wrong("verdict.exit_code must be an integer");
    };
    let Some((_, paired)) = STATUSES.iter().find(|(known, _)| *known == number) else {
        return wrong(format!("Exit code {number} is not in the contract"));
    };
    if *paired != word {
        let shown = code.map_or(null, ReportValue::shown);
        return wrong(format!("verdict.status '{word}' does not pair with exit_code {shown}"));
    }
    verdict.name("summary")
}

fn check_finding(finding: &impl ReportValue, label: &str) -> Checked {
    let prefix = format!("{label}.");
    let finding = Object::of(finding, label, &prefix, &FINDING, &[])?;
    finding.pattern("id", "[a-z][a-z0-9_.]*", |byte| matches!(byte, b'0'..=b'9' | b'_' | b'.'))?;
    finding.name("kind")?;
    finding.name("title")?;
    let severity = finding.get("severity").and_then(ReportValue::text);
    if !severity.is_some_and(|severity| SEVERITIES.contains(&severity.as_str())) {
        let known = SEVERITIES.map(|severity| format!("'{severity}'")).join(", ");
        return wrong(format!("{label}.severity must be one of [{known}]"));
    }
    finding.text_or_null("message")?;
    if let Some(metrics) = finding.get("metrics") {
        check_metrics(metrics, &format!("{label}.metrics"))?;
    }
    finding.each("evidence", &format!("{label}.evidence"), true, check_evidence)
}

fn check_evidence(evidence: &impl ReportValue, label: &str) -> Checked {
    let prefix = format!("{label}.");
    let evidence = Object::of(evidence, label, &prefix, &EVIDENCE, &[])?;
    evidence.name("kind")?;
    evidence.names_or_null(&["path", "session_id", "record_id"])?;
    let is_pointer = |text: String| text.is_empty() || (text.starts_with('/') && !text.contains('\n'));
    let pointer = evidence.get("pointer").filter(|pointer| !pointer.is_null());
    if pointer.is_some_and(|pointer| !pointer.text().is_some_and(is_pointer)) {
        return wrong(format!("{label}.pointer must be a single-line JSON pointer"));
    }
    evidence.whole_or_null("start_ns", 0)?;
    evidence.whole_or_null("end_ns", 0)?;
    evidence.text_or_null("description")
}

fn check_artifact(artifact: &impl ReportValue, label: &str) -> Checked {
    let prefix = format!("{label}.");
    let artifact = Object::of(artifact, label, &prefix, &ARTIFACT, &[])?;
    artifact.name("kind")?;
    artifact.name("path")?;
    artifact.names_or_null(&["format"])?;
    artifact.whole_or_null("schema_version", 1)
}

fn check_metrics(metrics: &impl ReportValue, label: &str) -> Checked {
    let Some(entries) = metrics.entries() else { return wrong(format!("{label} must be an object")) };
    for (key, value) in entries {
        let Ok(key) = key else { return wrong(format!("{label} keys must be strings")) };
        match value.number() {
            Some(ReportNumber::Float(number)) if !number.is_finite() => {
                return wrong(format!("{label}.{key} must be finite"));
            }
            Some(_) => {}
            None if value.is_null() => {}
            None => return wrong(format!("{label}.{key} must be a number or null")),
        }
    }
    Ok(())
}

/// An integer as JSON has them: 3 and 3.0.
fn whole(value: &impl ReportValue) -> Option<i128> {
    match value.number()? {
        ReportNumber::Whole(number) => Some(number),
        ReportNumber::Float(number) if number.is_finite() && number.fract() == 0.0 => Some(number as i128),
        ReportNumber::Float(_) => None,
    }
}

/// An object whose keys are all known; `prefix` precedes a key in its messages.
struct Object<'a, V> {
    entries: Vec<(String, V)>,
    label: &'a str,
    prefix: &'a str,
}

impl<'a, V: ReportValue> Object<'a, V> {
    fn of(
        value: &V,
        label: &'a str,
        prefix: &'a str,
        known: &[&str],
        required: &[&str],
    ) -> Result<Self, InvalidReport> {
        let Some(given) = value.entries() else {
            return Err(InvalidReport(format!("{label} must be an object")));
        };
        let has = |key: &&str| given.iter().any(|(name, _)| name.as_deref() == Ok(*key));
        let missing: Vec<&str> = required.iter().filter(|key| !has(key)).copied().collect();
        if !missing.is_empty() {
            return Err(InvalidReport(format!("{label} is missing required fields: {}", missing.join(", "))));
        }
        let mut entries = Vec::with_capacity(given.len());
        let mut unknown = Vec::new();
        for (key, value) in given {
            match key {
                Ok(key) if known.contains(&key.as_str()) => entries.push((key, value)),
                Ok(key) | Err(key) => unknown.push(key),
            }
        }
        if !unknown.is_empty() {
            unknown.sort();
            return Err(InvalidReport(format!("{label} has unknown fields: {}", unknown.join(", "))));
        }
        Ok(Object { entries, label, prefix })
    }

    fn get(&self, key: &str) -> Option<&V> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn name(&self, key: &str) -> Checked {
        let text = self.get(key).and_then(ReportValue::text);
        if text.is_some_and(|text| !text.is_empty()) {
            return Ok(());
        }
        wrong(format!("{}{key} must be a non-empty string", self.prefix))
    }

    fn names_or_null(&self, keys: &[&str]) -> Checked {
        let is_given = |key: &str| self.get(key).is_some_and(|value| !value.is_null());
        keys.iter().filter(|key| is_given(key)).try_for_each(|key| self.name(key))
    }

    fn pattern(&self, key: &str, pattern: &str, further: fn(u8) -> bool) -> Checked {
        self.name(key)?;
        let text = self.get(key).and_then(ReportValue::text).unwrap_or_default();
        let mut bytes = text.bytes();
        let is_letter = |byte: u8| byte.is_ascii_lowercase();
        if bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || further(byte)) {
            return Ok(());
        }
        wrong(format!("{}{key} must match ^{pattern}$", self.prefix))
    }

    fn text_or_null(&self, key: &str) -> Checked {
        if self.get(key).is_none_or(|value| value.is_null() || value.text().is_some()) {
            return Ok(());
        }
        wrong(format!("{}.{key} must be a string or null", self.label))
    }

    fn whole_or_null(&self, key: &str, least: i128) -> Checked {
        let value = self.get(key).filter(|value| !value.is_null());
        if value.is_none_or(|value| whole(value).is_some_and(|number| number >= least)) {
            return Ok(());
        }
        wrong(format!("{}.{key} must be an integer >= {least}", self.label))
    }

    fn each(&self, key: &str, label: &str, required: bool, check: fn(&V, &str) -> Checked) -> Checked {
        let Some(list) = self.get(key) else {
            return if required { wrong(format!("{label} must be a list")) } else { Ok(()) };
        };
        let Some(items) = list.items() else { return wrong(format!("{label} must be a list")) };
        let mut numbered = items.iter().enumerate();
        numbered.try_for_each(|(number, item)| check(item, &format!("{label}[{number}]")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> Value {
        json!({
            "schema_version": 1, "format": "stormlog.report", "report_kind": "analyze",
            "generated_at_utc": "2026-03-03T15:20:30Z",
            "tool": {"name": "stormlog", "command": "analyze", "version": null},
            "verdict": {"status": "findings", "exit_code": 3, "summary": "grew"},
            "findings": [{
                "id": "growth.rss", "kind": "growth", "severity": "warning", "title": "grew",
                "metrics": {"bytes": 5}, "evidence": [{"kind": "session", "pointer": "/a"}],
            }],
            "payload": {"anything": [[[1]]]},
        })
    }

    #[test]
    fn a_whole_report_is_accepted() {
        assert_eq!(check(&&report()), Ok(()));
    }

    #[test]
    fn the_first_broken_rule_is_named_with_its_place() {
        let mut wrong = report();
        wrong["findings"][0]["evidence"][0]["pointer"] = "no slash".into();
        let sentence = check(&&wrong).unwrap_err().to_string();
        assert_eq!(sentence, "findings[0].evidence[0].pointer must be a single-line JSON pointer");
        wrong["verdict"]["exit_code"] = 0.into();
        let sentence = check(&&wrong).unwrap_err().to_string();
        assert_eq!(sentence, "verdict.status 'findings' does not pair with exit_code 0");
        wrong["colour"] = "red".into();
        assert_eq!(check(&&wrong).unwrap_err().to_string(), "report has unknown fields: colour");
        assert_eq!(check(&&json!([])).unwrap_err().to_string(), "report must be an object");
    }
}
