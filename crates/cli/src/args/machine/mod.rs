//! Arguments of the commands about the machine, and of `tfmemprof` and `jaxmemprof`, which share them.

pub(crate) mod device;
pub(crate) mod framework;
