//! A model of PyTorch's caching allocator, exact to the address.

mod allocate;
pub(crate) mod heap;
mod places;

pub(crate) use allocate::{Allocator, Request};
pub use heap::Totals;
pub(crate) use places::Places;
