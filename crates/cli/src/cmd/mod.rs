//! One file a command: options in, text out.

pub(crate) mod convert;
pub(crate) mod limited;
pub(crate) mod oom;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod validate;
