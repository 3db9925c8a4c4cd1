//! The stack of the running thread, Python and native, as ids of nodes in a tree of stacks; and, offline, the names behind it.
//!
//! The walkers run inside `malloc` of any thread of a program we do not know. So nothing here allocates, locks or panics (the crate is
//! `no_std` but for the offline feature `symbols`), and no memory is read that was not shown to be a live frame first: a frame is live when
//! it hangs on the thread's chain of frames, an address on the stack when it is between the stack pointer and the stack's end.
//!
//! Both walkers work alike. A thread's last stack is kept; the next one is walked from the top until it meets the kept
//! part, and that part is *compared* with what is in memory now, not trusted: an equal address says nothing after a return and a
//! call. Only what changed is looked up in the tree.
//!
//! Must never hold a lock it would need, call Python (but for [`python::CodeWatch`], which says when), or guess a layout.

#![no_std]

#[cfg(any(test, feature = "symbols"))]
extern crate std;

pub mod line_table;
pub mod native;
pub mod python;
#[cfg(feature = "symbols")]
pub mod symbols;

/// The tree of stacks, where equal stacks get equal ids. Implemented by the writer of the recording.
///
/// Id 0 is the empty stack. The methods are called inside `malloc` and must not allocate.
pub trait Nodes {
    /// The child of `parent` for a Python frame executing code unit `instruction` of the code object at `code`. `entry`: C called this frame,
    /// so a run of the interpreter's own C frames ends here.
    fn python(&mut self, parent: u32, code: usize, instruction: u32, entry: bool) -> u32;
    /// Whether the death of the code object of the last call of [`Self::python`] is not reported: its frame is then looked up at every walk, where
    /// [`python::Interpreter::fingerprint`] can tell it from another at the same address.
    fn unwatched(&self) -> bool {
        false
    }
    /// The child of `parent` for a native frame at `address`: a return address, or the exact place for the frame a signal interrupted.
    fn native(&mut self, parent: u32, address: u64) -> u32;
    /// The child of `parent` that says: frames are missing here.
    fn truncated(&mut self, parent: u32) -> u32;
}
