//! The metric families of Stormlog, and the two text formats in which monitoring systems read them.
//!
//! Pure: values in, text out. Must never read a file or a clock, let a label end its own quotes, or write one series twice.
#![forbid(unsafe_code)]

mod exposition;
pub mod families;
mod labels;
mod text;

pub use exposition::{Exemplar, Exposition, Value};
pub use families::{Family, Kind, Unit};
pub use labels::Labels;
pub use text::Format;
