//! Text in a cell of a CSV file. Quoting is the CSV writer's; this is about what a spreadsheet does with the cell afterwards.

use std::borrow::Cow;

/// What a spreadsheet takes for the start of a formula.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// A text cell that a spreadsheet shows instead of running it: an apostrophe before what begins like a formula. Not for numbers.
#[must_use]
pub fn inert_cell(text: &str) -> Cow<'_, str> {
    if text.starts_with(FORMULA) { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_marked_as_text() {
        assert_eq!(inert_cell("=HYPERLINK(\"x\")"), "'=HYPERLINK(\"x\")");
        assert_eq!(inert_cell("@sum"), "'@sum");
        assert_eq!(inert_cell("train.py"), "train.py");
    }
}
