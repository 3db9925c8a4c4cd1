//! Text for people: what a terminal, a page, a spreadsheet and a sentence show of values that other programs made.
//!
//! Each rule exists here only; the scripts of the pages have a copy of [`STEERING`], compared by a test. Must never fail: a value
//! that cannot be shown as it is, is shown as something harmless.

mod amount;
pub mod compat;
mod markup;
mod sparkline;
mod spreadsheet;
mod table;
mod terminal;
mod words;

pub use amount::{
    format_bytes, format_duration, format_rate, format_whole_seconds, grouped, nanoseconds_in_words,
    parse_bytes,
};
pub use markup::escape_markup;
pub use sparkline::sparkline;
pub use spreadsheet::inert_cell;
pub use table::Table;
pub use terminal::{STEERING, inert_lines, inert_text, is_steering, short_name, visible};
pub use words::{WordsError, command_line, split_words};
