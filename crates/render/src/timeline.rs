//! The timeline page of allocator traces. The columns are the caller's; what they must be called is in
//! `assets/timeline/data.js`.

use serde::Serialize;

use crate::page::Template;

const TEMPLATE: Template = Template {
    html: concat!(include_str!("../assets/head.html"), include_str!("../assets/timeline/page.html")),
    style: concat!(include_str!("../assets/page.css"), include_str!("../assets/timeline/style.css")),
    scripts: &[
        include_str!("../assets/say.js"),
        include_str!("../assets/page.js"),
        include_str!("../assets/timeline/data.js"),
        include_str!("../assets/timeline/colours.js"),
        include_str!("../assets/timeline/chart.js"),
        include_str!("../assets/timeline/segments.js"),
        include_str!("../assets/timeline/main.js"),
    ],
};

/// What the page says and shows.
#[derive(Debug, Serialize)]
pub struct TimelinePage<'a, T> {
    /// Head line.
    pub title: &'a str,
    /// Line below it.
    pub subtitle: &'a str,
    /// Short facts, name and value.
    pub facts: &'a [(&'a str, String)],
    /// Sentences that must be seen.
    pub notes: &'a [String],
    /// The columns, one entry for each device.
    pub devices: &'a [T],
}

/// The page.
#[must_use]
pub fn page<T: Serialize>(content: &TimelinePage<'_, T>) -> String {
    TEMPLATE.fill(content.title, content)
}
