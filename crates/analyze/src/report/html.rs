//! A report as one HTML file: no script, nothing fetched, nothing from a recording unescaped.

use std::fmt::Write;

use stormlog_model::Severity;
use stormlog_model::text::escape_markup;

use super::{LISTED, SessionLine, evidence_line, fullest, score, verdict_sentence};
use crate::Analysis;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}\
table{border-collapse:collapse}td,th{text-align:left;padding:.25rem .75rem;border-bottom:1px solid #d0d7de}\
.critical{color:#b42318}.warning{color:#93610a}.info{color:#57606a}section{margin:1.5rem 0}h2{font-size:1.05rem}\
code{font-size:.9em}.answer{white-space:pre-wrap;font-size:.9em;line-height:1.5;border-left:3px solid #57606a;padding-left:.75rem}figure{margin:1rem 0}figure svg{max-width:100%;height:auto}@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}\
td,th{border-color:#30363d}.critical{color:#ff7b72}.warning{color:#d29922}.info{color:#8b949e}}";

/// The page, with charts (SVG, our own) below its first lines.
pub fn html(analysis: &Analysis, charts: &[String]) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Memory analysis</title>\
         <style>{STYLE}</style></head><body>\n<h1>Memory analysis</h1>\n"
    );
    if !analysis.headline.is_empty() {
        let _ =
            writeln!(page, "<pre class=\"answer\">{}</pre>", escape_markup(&analysis.headline.join("\n")));
    }
    let _ = writeln!(page, "<p><strong>{}</strong></p>", escape_markup(&verdict_sentence(analysis)));
    for chart in charts {
        let _ = writeln!(page, "<figure>{chart}</figure>");
    }
    for finding in &analysis.findings {
        let _ = write!(
            page,
            "<section><h2 class=\"{severity}\">{severity} · {} · confidence {:.2}</h2>\n<p>{}</p>\n",
            escape_markup(&finding.kind),
            finding.confidence,
            escape_markup(&finding.title),
            severity = finding.severity.as_str(),
        );
        if let Some(message) = &finding.message {
            let _ = writeln!(page, "<p>{}</p>", escape_markup(message));
        }
        list(&mut page, "ul", finding.evidence.iter().take(20).map(evidence_line));
        list(&mut page, "ol", finding.advice.iter().cloned());
        page.push_str("</section>\n");
    }
    page.push_str("<table>");
    if !analysis.sessions.is_empty() {
        page.push_str("<tr><th>session</th><th>events</th><th>span</th><th>peak used</th></tr>\n");
    }
    let (sessions, rest) = fullest(analysis, LISTED);
    for SessionLine { id, events, span, peak } in sessions {
        let id = escape_markup(id);
        let _ = writeln!(
            page,
            "<tr><td><code>{id}</code></td><td>{events}</td><td>{span}</td><td>{peak}</td></tr>"
        );
    }
    let score = score(&analysis.findings);
    // Beside trouble its kind words would mislead.
    let is_calm = analysis.worst().is_none_or(|worst| worst == Severity::Info);
    let kind_words = if is_calm { format!(": {}", score.description) } else { String::new() };
    let more =
        if rest > 0 { format!("<p>… and {rest} more with lower peaks</p>\n") } else { String::new() };
    let _ = write!(
        page,
        "</table>\n{more}<p>Score {} ({}){}</p>\n</body></html>\n",
        score.score, score.grade, kind_words
    );
    page
}

fn list(page: &mut String, tag: &str, items: impl Iterator<Item = String>) {
    let items: Vec<String> = items.map(|item| format!("<li>{}</li>", escape_markup(&item))).collect();
    if !items.is_empty() {
        let _ = writeln!(page, "<{tag}>{}</{tag}>", items.concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{finish, sample, with};
    use crate::{AnalysisOptions, analyze};

    #[test]
    fn nothing_from_a_recording_becomes_markup() {
        let oom = with(sample(5, 10), "error", "OOM <script>alert(1)</script> out of memory");
        let page = html(&analyze(finish([oom]), Vec::new(), &AnalysisOptions::default()), &[]);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(!page.contains("http"), "nothing is fetched");
        assert!(page.contains("<p>Score 80 (B)</p>"), "no praise beside a death: {page}");
    }
}
