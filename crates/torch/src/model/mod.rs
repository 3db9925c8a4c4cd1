//! A model of PyTorch's caching allocator, exact to the address.

mod address_space;
mod allocate;
pub(crate) mod heap;

pub(crate) use address_space::AddressSpace;
pub(crate) use allocate::{Allocator, Request};
pub use heap::Totals;
