//! All of the hook that depends on the processor. Another processor is a folder beside this one with the same file names.

pub mod callers;
#[cfg(not(test))]
mod early;
pub mod exec;
pub mod framework;
pub mod loader;
pub mod relocation;
pub mod syscall;
pub mod tls;
