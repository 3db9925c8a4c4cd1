//! The kinds of relocation that fill a slot with the address of a function.

/// `R_X86_64_JUMP_SLOT`: called through the procedure linkage table.
pub const FUNCTION: u32 = 7;
/// `R_X86_64_GLOB_DAT`: a pointer in the global offset table.
pub const POINTER: u32 = 6;
/// `R_X86_64_64`: a pointer in data.
pub const ABSOLUTE: u32 = 1;
