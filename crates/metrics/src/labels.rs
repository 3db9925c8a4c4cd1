//! The labels of one series. A value is input: a program's name, a job's id. What is written is bounded, without control characters, and escaped, so
//! that no value ends its own quotes or its line. Must never write a label that is empty: to the readers that is one that is not there.

/// The most characters of a value: enough for an id, too few to fill a scrape with one program's name.
const MOST_CHARACTERS: usize = 200;

/// Names and values, in the order they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels {
    pairs: Vec<(&'static str, String)>,
}

impl Labels {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Labels::default()
    }

    /// These and one more; left out where the value is empty.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        let value = bounded(value);
        if !value.is_empty() {
            self.pairs.push((name, value));
        }
        self
    }

    /// Names and values as they are shown, unescaped.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.pairs.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Characters of names and values, as OpenMetrics counts them.
    #[must_use]
    pub fn characters(&self) -> usize {
        self.pairs.iter().map(|(name, value)| name.len() + value.chars().count()).sum()
    }

    /// `{a="b",c="d"}`; nothing where there are none.
    pub(crate) fn write(&self, out: &mut String) {
        if !self.pairs.is_empty() {
            self.write_braced(out);
        }
    }

    /// The same with the braces in any case.
    pub(crate) fn write_braced(&self, out: &mut String) {
        out.push('{');
        for (at, (name, value)) in self.pairs.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(name);
            out.push_str("=\"");
            escape(value, out);
            out.push('"');
        }
        out.push('}');
    }
}

fn bounded(value: &str) -> String {
    let shown = |character: char| if character.is_control() { ' ' } else { character };
    let mut characters = value.chars().map(shown);
    let mut kept: String = characters.by_ref().take(MOST_CHARACTERS).collect();
    if characters.next().is_some() {
        kept.pop();
        kept.push('…');
    }
    kept.trim().to_owned()
}

fn escape(value: &str, out: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(labels: &Labels) -> String {
        let mut out = String::new();
        labels.write(&mut out);
        out
    }

    #[test]
    fn value_cannot_end_its_quotes_or_its_line() {
        let hostile = Labels::new().with("a", "x\"} 1\nstormlog_deaths_total 9\\").with("b", "\u{7}\r\n");
        assert_eq!(written(&hostile), "{a=\"x\\\"} 1 stormlog_deaths_total 9\\\\\"}");
    }

    #[test]
    fn empty_labels_are_left_out_and_long_values_are_cut() {
        assert_eq!(written(&Labels::new().with("a", "").with("b", "  ")), "");
        let long = Labels::new().with("a", &"é".repeat(5000));
        let (_, value) = long.iter().next().unwrap_or_default();
        assert_eq!(value.chars().count(), MOST_CHARACTERS);
        assert!(value.ends_with('…'));
    }
}
