//! Arguments of the commands about the machine, and of `tfmemprof`, which shares them.

pub(crate) mod tensorflow;
