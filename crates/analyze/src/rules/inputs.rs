//! What could not be read, and what was lost before it could be: named and counted, never silently dropped.
//! Page: `docs/rules/inputs.md`.

use stormlog_model::{Evidence, Finding, Severity};

use super::{advice, metrics};
use crate::text::counted;

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
    /// Good records of a period that another input had already; a bundle beside its log has none.
    pub overlapping: u64,
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
    let twice: Vec<&Input> = inputs.iter().filter(|input| input.overlapping > 0).collect();
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
                "{} in {}; what could not be read is left out",
                counted(count, "problem"),
                counted(damaged.len() as u64, "input")
            ),
            message: None,
            metrics: metrics([
                ("bad_records", count.into()),
                ("good_records", inputs.iter().map(|input| input.events).sum::<u64>().into()),
            ]),
            evidence: sentences.take(LISTED).collect(),
            advice: advice(["`stormlog validate PATH` lists every problem with file, line and field."]),
            undecided: false,
            process: None,
            memory: None,
            holder: None,
        });
    }
    if !twice.is_empty() {
        let count: u64 = twice.iter().map(|input| input.overlapping).sum();
        let sentence = |input: &Input| format!("{} left out", counted(input.overlapping, "event"));
        findings.push(Finding {
            id: "inputs.overlapping".to_owned(),
            kind: "overlapping_input".to_owned(),
            severity: Severity::Info,
            confidence: 1.0,
            title: format!(
                "{} counted once: another input has the same period of their session, process and device",
                counted(count, "event")
            ),
            message: Some(format!(
                "in {}",
                twice.iter().map(|input| input.path.as_str()).take(3).collect::<Vec<_>>().join(", ")
            )),
            metrics: metrics([("events", count.into()), ("inputs", twice.len().into())]),
            evidence: twice.iter().take(LISTED).map(|input| pointer(input, &sentence(input))).collect(),
            advice: advice(["If they are two recordings and not copies of one, analyse each by itself."]),
            undecided: false,
            process: None,
            memory: None,
            holder: None,
        });
    }
    if !noted.is_empty() {
        let sentences = noted.iter().flat_map(|input| input.notes.iter().map(|text| pointer(input, text)));
        findings.push(Finding {
            id: "inputs.lost".to_owned(),
            kind: "lost_records".to_owned(),
            severity: Severity::Info,
            confidence: 1.0,
            title: format!(
                "{} incomplete: a writer died or lost records",
                if noted.len() == 1 {
                    "1 input is".to_owned()
                } else {
                    format!("{} inputs are", noted.len())
                }
            ),
            message: None,
            metrics: metrics([("inputs", noted.len().into())]),
            evidence: sentences.take(LISTED).collect(),
            advice: advice(["Missing records are not analysed; everything before them is."]),
            undecided: false,
            process: None,
            memory: None,
            holder: None,
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
        let copy = Input { path: "c".into(), events: 9, overlapping: 7, ..Input::default() };
        let finding = &findings(&[copy])[0];
        assert_eq!((finding.kind.as_str(), &finding.metrics["events"]), ("overlapping_input", &7.into()));
    }
}
