//! Keeps secrets out of what is written: command lines, environments and exception messages end up in bug reports.
//!
//! One list decides what a secret is ([`is_secret_name`], [`is_secret_word`]). Three users build on it: the functions here that return a
//! safe text, the hook library, which must not allocate ([`is_plain_argument`]), and the code injected into Python programs, which gets
//! the list as Python source ([`python_tables`]).
//!
//! Patterns cannot find every secret. A harmless word that is redacted is the better mistake; what must stay readable is listed in the tests.
//! `stormlog.scrub` of the Python package is another thing: it reproduces the rules of 0.4.3 on texts that 0.4.3 scrubs.
mod environment;
mod names;
mod plain;
mod python;
mod shapes;
mod text;

pub use environment::{is_recorded_variable, variable};
pub use names::is_secret_name;
pub use plain::is_plain_argument;
pub use python::python_tables;
pub use shapes::is_secret_word;
pub use text::{argument, command, text, value};

/// Replaces a secret.
pub const REDACTED: &str = "<redacted>";
