//! A table page that sorts and filters. Must never know what its rows mean.

use serde::Serialize;
use serde_json::Value;

use crate::page::Template;

const TEMPLATE: Template = Template {
    html: concat!(include_str!("../assets/head.html"), include_str!("../assets/table/page.html")),
    style: concat!(include_str!("../assets/page.css"), include_str!("../assets/table/style.css")),
    scripts: &[
        include_str!("../assets/say.js"),
        include_str!("../assets/page.js"),
        include_str!("../assets/table/main.js"),
    ],
};

/// How a column is shown.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Words.
    Text,
    /// A size.
    Bytes,
    /// A number of things.
    Count,
}

/// A column.
#[derive(Debug, Clone, Serialize)]
pub struct Column {
    /// What its head says.
    pub name: &'static str,
    /// How it is shown.
    pub kind: Kind,
}

/// What the page shows.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// Head line.
    pub title: String,
    /// Line below it.
    pub subtitle: String,
    /// Sentences that must be seen.
    pub notes: Vec<String>,
    /// What is said when there is no row.
    pub empty: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The column it is sorted by at first, the largest on top.
    pub sort_column: usize,
    /// The rows: a text for a text column, a number for the others.
    pub rows: Vec<Vec<Value>>,
}

/// The page.
#[must_use]
pub fn page(table: &Table) -> String {
    TEMPLATE.fill(&table.title, table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_packed() {
        let table = Table {
            title: "<i>".into(),
            subtitle: String::new(),
            notes: vec![],
            empty: String::new(),
            columns: vec![Column { name: "Frame", kind: Kind::Text }],
            sort_column: 0,
            rows: vec![vec![Value::from("<img src=x onerror=alert(1)>")]],
        };
        let page = page(&table);
        assert!(page.contains("<title>&lt;i&gt;</title>"));
        assert!(!page.contains("onerror"), "rows are packed");
    }
}
