//! The page of a fleet: the answer, then a table for each question, each of which sorts and can be filtered. Must never know where its rows come from.

use serde::Serialize;

use crate::page::Template;
use crate::table::Column;

const TEMPLATE: Template = Template {
    html: concat!(include_str!("../assets/head.html"), include_str!("../assets/fleet/page.html")),
    style: concat!(include_str!("../assets/page.css"), include_str!("../assets/fleet/style.css")),
    scripts: &[
        include_str!("../assets/say.js"),
        include_str!("../assets/page.js"),
        include_str!("../assets/fleet/main.js"),
    ],
};

/// What the page shows.
#[derive(Debug, Clone, Serialize)]
pub struct FleetPage {
    /// Head line.
    pub title: String,
    /// Line below it.
    pub subtitle: String,
    /// Sentences that must be seen.
    pub notes: Vec<String>,
    /// Counts: name and value.
    pub facts: Vec<(String, String)>,
    /// The answer, a line each.
    pub answer: Vec<String>,
    /// Tables, in the order of the page.
    pub sections: Vec<Section>,
}

/// A table of the page.
#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// Head line.
    pub title: &'static str,
    /// What its rows are and by which rule, one sentence.
    pub explanation: &'static str,
    /// The columns.
    pub columns: Vec<Column>,
    /// The column it is sorted by at first, the largest on top.
    pub sort_column: usize,
    /// The rows: a text for a text column, a number or null for the others.
    pub rows: Vec<Vec<serde_json::Value>>,
}

/// The page.
#[must_use]
pub fn page(fleet: &FleetPage) -> String {
    TEMPLATE.fill(&fleet.title, fleet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::unpacked;
    use crate::table::Kind;

    #[test]
    fn hostile_names_of_jobs_stay_packed() {
        let hostile = "</script><img src=x onerror=alert(1)>";
        let fleet = FleetPage {
            title: "Fleet".into(),
            subtitle: hostile.into(),
            notes: vec![],
            facts: vec![],
            answer: vec![hostile.into()],
            sections: vec![Section {
                title: "Jobs",
                explanation: "",
                columns: vec![Column { name: "Job", kind: Kind::Text }],
                sort_column: 0,
                rows: vec![vec![hostile.into()]],
            }],
        };
        let page = page(&fleet);
        assert!(!page.contains("onerror"));
        assert_eq!(unpacked(&page)["sections"][0]["rows"][0][0], hostile);
    }
}
