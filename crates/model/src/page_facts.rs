//! The names by which a sample's metadata has the pages of a process: `track` writes them, `analyze` reads them. Must never change: recordings have them.

/// What files or shared memory back of the resident memory.
pub const FILE_BACKED: &str = "file_backed_bytes";
/// What shared memory backs.
pub const SHARED_MEMORY: &str = "shared_memory_bytes";
/// The proportional set size: pages that several processes share count by their share.
pub const PSS: &str = "pss_bytes";
/// The part of it that files back.
pub const PSS_FILE: &str = "pss_file_bytes";
/// What no other process shares.
pub const USS: &str = "uss_bytes";
/// What of the unshared pages was written.
pub const PRIVATE_DIRTY: &str = "private_dirty_bytes";
/// What of the shared pages was written.
pub const SHARED_DIRTY: &str = "shared_dirty_bytes";
/// What no file backs.
pub const ANONYMOUS: &str = "anonymous_bytes";
/// Page faults that needed no reading.
pub const MINOR_FAULTS: &str = "minor_faults";
/// Whether the process is a fork that has not executed a program.
pub const FORKED: &str = "is_fork";
/// What no file backs of a fork when it was met: the pages that it shared with its parent then.
pub const FORK_ANONYMOUS: &str = "fork_anonymous_bytes";
