//! What of walking Python frames depends on the processor. Another processor is a folder beside this one with the same file names.

pub mod frame_compare;
#[cfg(target_env = "gnu")]
pub mod thread;
