//! One file a command: options in, text out.

pub(crate) mod convert;
pub(crate) mod sessions;
pub(crate) mod validate;
