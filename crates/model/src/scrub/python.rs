//! The list as Python source, for the code that is injected into Python programs and has no other way to ask.

use std::fmt::Write;

use crate::scrub::{REDACTED, names, shapes, text};

/// Assignments of tuples of strings: `_ANYWHERE`, `_WORDS`, `_LAST`, `_ENDINGS`, `_WHOLE`, `_HARMLESS`, `_STARTS`, `_SCHEMES`; and of
/// `_SHORTEST`, `_LONG`, `_KEY_BLOCK`, `_SECRET_PATH` and `_REDACTED`.
#[must_use]
pub fn python_tables() -> String {
    let mut source = String::new();
    let tables: [(&str, &[&str]); 8] = [
        ("_ANYWHERE", &names::ANYWHERE),
        ("_WORDS", &names::WORDS),
        ("_LAST", &names::LAST),
        ("_ENDINGS", &names::ENDINGS),
        ("_WHOLE", &names::WHOLE),
        ("_HARMLESS", &names::HARMLESS),
        ("_STARTS", &shapes::STARTS),
        ("_SCHEMES", &text::SCHEMES),
    ];
    for (name, words) in tables {
        let words: String = words.iter().map(|word| format!("\"{word}\", ")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(source, "{name} = ({})", words.trim_end());
    }
    for (name, word) in
        [("_KEY_BLOCK", shapes::KEY_BLOCK), ("_SECRET_PATH", shapes::SECRET_PATH), ("_REDACTED", REDACTED)]
    {
        let _ = writeln!(source, "{name} = \"{word}\"");
    }
    let _ = writeln!(source, "_SHORTEST = {}\n_LONG = {}", shapes::SHORTEST, shapes::LONG);
    source
}
