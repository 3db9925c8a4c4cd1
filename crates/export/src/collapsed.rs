//! Folded stacks: `outer;inner bytes`, one line a stack. Must keep a stack on one line whatever its names hold.

use std::fmt::Write;

use stormlog_model::stacks::StackProfile;
use stormlog_model::text::is_steering;

use crate::{label, outermost_first};

/// Folded stacks, weighed in bytes.
#[must_use]
pub fn collapsed(held: &StackProfile) -> String {
    let names: Vec<String> = held.tree.frames.iter().map(|frame| tidy(&label(frame))).collect();
    let mut text = String::new();
    for row in held.rows.iter().filter(|row| row.bytes > 0) {
        let path: Vec<&str> =
            outermost_first(held, row.node).iter().map(|&frame| names[frame as usize].as_str()).collect();
        let path = if path.is_empty() { "(no stack)".to_owned() } else { path.join(";") };
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{path} {}", row.bytes);
    }
    text
}

fn tidy(name: &str) -> String {
    name.chars().map(|c| if c == ';' || is_steering(c) { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_line_a_stack() {
        let text = super::collapsed(&crate::testing::held());
        assert_eq!(
            text,
            "main (train.py:3) 5\n\
             main (train.py:3);load_x (train.py:8) 10\n\
             main (train.py:3);load_x (train.py:8);par_se<_ (train.py:21) 30\n"
        );
    }
}
