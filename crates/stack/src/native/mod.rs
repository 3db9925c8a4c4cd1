//! Native stacks (Linux, x86-64): unwinding by the `.eh_frame` tables every library carries, with compiled rules and a kept stack.
//!
//! Must never fault: an address is read only when it is on this thread's stack, above its stack pointer, or in the tables of a loaded module.

mod bounds;
mod library_exit;
mod modules;
mod recent;
mod saved_words;
mod stack;
mod x86_64;

pub use bounds::Bounds;
pub use modules::{LoadedModule, each_module};
pub use stack::NativeStack;
pub use x86_64::registers::Registers;
pub use x86_64::rules::Unwinder;
