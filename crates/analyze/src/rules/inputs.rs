//! What could not be read, and what was lost before it could be: named and counted, never silently dropped.
//! Page: `docs/rules/inputs.md`.

use stormlog_event::{Evidence, Finding, Severity};

use super::{advice, metrics};

/// Problems listed one by one; the rest is counted.
const LISTED: usize = 20;

/// One input, as the reader found it.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// The file or directory.
    pub path: String,
    /// Good records in it.
    pub events: u64,
    /// What was wrong, a sentence each; at most [`Input::LISTED`] of them.
    pub problems: Vec<String>,
    /// How many were wrong.
    pub problem_count: u64,
    /// What the reader noticed: losses, a torn last line, a writer that died.
    pub notes: Vec<String>,
}

impl Input {
    /// Problems kept per input.
    pub const LISTED: usize = LISTED;

    /// Takes one problem.
    pub fn damage(&mut self, sentence: String) {
        self.problem_count += 1;
        if self.problems.len() < LISTED {
            self.problems.push(sentence);
        }
    }
}

/// What is to be said about inputs.
pub fn findings(inputs: &[Input]) -> Vec<Finding> {
    let damaged: Vec<&Input> = inputs.iter().filter(|input| input.problem_count > 0).collect();
    let noted: Vec<&Input> = inputs.iter().filter(|input| !input.notes.is_empty()).collect();
    let pointer = |input: &Input, sentence: &String| Evidence {
        kind: "input".to_owned(),
        path: Some(input.path.clone()),
        description: Some(sentence.clone()),
        ..Evidence::default()
    };
    let mut findings = Vec::new();
    if !damaged.is_empty() {
        let count: u64 = damaged.iter().map(|input| input.problem_count).sum();
        let sentences =
            damaged.iter().flat_map(|input| input.problems.iter().map(|text| pointer(input, text)));
        findings.push(Finding {
            id: "inputs.damaged".to_owned(),
            kind: "damaged_input".to_owned(),
            severity: Severity::Warning,
            confidence: 1.0,
            title: format!(
                "{count} problems in {} inputs; what could not be read is left out",
                damaged.len()
            ),
            message: None,
            metrics: metrics([
                ("bad_records", count.into()),
                ("good_records", inputs.iter().map(|input| input.events).sum::<u64>().into()),
            ]),
            evidence: sentences.take(LISTED).collect(),
            advice: advice(["`stormlog validate PATH` lists every problem with file, line and field."]),
        });
    }
    if !noted.is_empty() {
        let sentences = noted.iter().flat_map(|input| input.notes.iter().map(|text| pointer(input, text)));
        findings.push(Finding {
            id: "inputs.lost".to_owned(),
            kind: "lost_records".to_owned(),
            severity: Severity::Info,
            confidence: 1.0,
            title: format!("{} inputs are not whole: a writer died or lost records", noted.len()),
            message: None,
            metrics: metrics([("inputs", noted.len().into())]),
            evidence: sentences.take(LISTED).collect(),
            advice: advice(["What is missing cannot be judged; everything before it can."]),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_counted_past_what_is_listed() {
        let mut input = Input { path: "a".into(), events: 5, ..Input::default() };
        (0..100).for_each(|line| input.damage(format!("a:{line}: bad")));
        let torn =
            Input { path: "b".into(), notes: vec!["the last line is cut off".into()], ..Input::default() };
        let found = findings(&[input, torn, Input::default()]);
        assert_eq!(found[0].metrics["bad_records"], 100);
        assert_eq!(found[0].evidence.len(), LISTED);
        assert_eq!((found[1].kind.as_str(), found[1].severity), ("lost_records", Severity::Info));
        assert!(findings(&[Input::default()]).is_empty());
    }
}
