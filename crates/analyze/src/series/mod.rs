//! One counter over time, kept in bounded memory, and what its lower edge says.

mod envelope;
mod growth;
mod points;
mod statistics;
mod tail;

pub use envelope::{Envelope, Window};
pub use growth::{Growth, Shape, growth, growth_of};
pub use statistics::median;
pub(crate) use statistics::{mad, mean, round_to, sample_deviation, slope_of_line, student_t_two_sided};
