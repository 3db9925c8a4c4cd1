//! A report to paste into an incident: Markdown that every tracker renders.

use std::fmt::Write;

use super::{LISTED, SessionLine, evidence_line, fullest, score, verdict_sentence};
use crate::Analysis;

/// The page, with charts (addresses of images, our own) below its first lines.
pub fn markdown(analysis: &Analysis, charts: &[String]) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(page, "# Memory analysis\n");
    for (number, line) in analysis.headline.iter().enumerate() {
        let line = escaped(line.trim());
        let _ = if number == 0 { writeln!(page, "**{line}**\n") } else { writeln!(page, "- {line}") };
    }
    let _ = writeln!(page, "\n{}\n", escaped(&verdict_sentence(analysis)));
    for chart in charts {
        let _ = writeln!(page, "![Memory over time]({chart})\n");
    }
    if !analysis.findings.is_empty() {
        let _ = writeln!(page, "| severity | kind | confidence | what |\n|---|---|---|---|");
        for finding in &analysis.findings {
            let _ = writeln!(
                page,
                "| {} | {} | {:.2} | {} |",
                finding.severity.as_str(),
                escaped(&finding.kind),
                finding.confidence,
                escaped(&finding.title)
            );
        }
    }
    for finding in &analysis.findings {
        let _ = writeln!(page, "\n## {}\n", escaped(&finding.title));
        if let Some(message) = &finding.message {
            let _ = writeln!(page, "{}\n", escaped(message));
        }
        for evidence in finding.evidence.iter().take(10) {
            let _ = writeln!(page, "- {}", escaped(&evidence_line(evidence)));
        }
        if !finding.advice.is_empty() {
            let _ = writeln!(page, "\nTry:\n");
        }
        // Advice is our own words, with commands in backquotes: it is Markdown already.
        for (number, sentence) in finding.advice.iter().enumerate() {
            let sentence = sentence.replace('<', "&lt;").replace(['\n', '\r'], " ");
            let _ = writeln!(page, "{}. {sentence}", number + 1);
        }
    }
    if !analysis.sessions.is_empty() {
        let _ = writeln!(page, "\n## Sessions\n\n| session | events | span | peak used |\n|---|---|---|---|");
    }
    let (sessions, rest) = fullest(analysis, LISTED);
    for SessionLine { id, events, span, peak } in sessions {
        let _ = writeln!(page, "| {} | {events} | {span} | {peak} |", escaped(id));
    }
    if rest > 0 {
        let _ = writeln!(page, "\n… and {rest} more with lower peaks.");
    }
    let score = score(&analysis.findings);
    let _ = writeln!(page, "\nScore {} ({}).", score.score, score.grade);
    page
}

/// Text from recordings must not become markup: a path may hold anything.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\n' | '\r' => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, sample};
    use crate::{AnalysisOptions, analyze};

    #[test]
    fn a_leak_is_a_table_a_section_and_advice() {
        let leak = (0..100).map(|i| sample(i * 1_000_000_000, (1 << 30) + i * (200 << 20)));
        let page = markdown(&analyze(finish(leak), Vec::new(), &AnalysisOptions::default()), &[]);
        assert!(page.contains("| critical | leak | 0.9"), "{page}");
        assert!(page.contains("\n1. Find the line: `stormlog run --heap"));
        assert!(page.contains("| s | 100 | 1 min 39 s | 20.34 GiB |"), "{page}");
    }

    #[test]
    fn markup_in_names_is_defused() {
        assert_eq!(escaped("a|b<script>\n[x](y)"), "a\\|b&lt;script&gt; \\[x\\](y)");
    }
}
