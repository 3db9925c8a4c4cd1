//! The metric families of Stormlog, and the formats in which monitoring systems read them: two of text, and OTLP.
//!
//! Pure: values in, text out. Must never read a file or a clock, let a label end its own quotes, or write one series twice.
#![forbid(unsafe_code)]

mod exposition;
pub mod families;
mod labels;
mod otlp;
mod text;

pub use exposition::{Exemplar, Exposition, Value};
pub use families::{Family, Kind, Unit};
pub use labels::Labels;
pub use otlp::Span;
pub use text::Format;
