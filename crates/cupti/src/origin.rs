//! Which library a stack belongs to, and whether the framework's own allocator is behind it.
//!
//! Found out inside the program's allocations, once for each stack. `dladdr` is not used: it waits for the loader's lock, which is held
//! while constructors run; `dl_iterate_phdr` (as the unwinder itself) takes another one that is held for moments only.

use std::ffi::{CStr, c_int, c_void};

use crate::ledger::Stack;

/// Libraries that allocate for others: the responsible one is their caller. `_native.` is ours, whose callback is the
/// innermost frame.
const BETWEEN: [&str; 5] = ["libcuda.so", "libcudart", "libcupti", "libnvidia-", "_native."];
/// The library of PyTorch's caching allocator: what it takes from the driver is what it reserves.
const CACHING_ALLOCATOR: &str = "libc10_cuda";

/// The library that a stack's memory belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its file name; `unknown` where there is none.
    pub(crate) library: String,
    /// The return address in it; 0 where there is none.
    pub(crate) caller: usize,
    /// It is PyTorch's allocator itself.
    is_framework: bool,
    /// PyTorch's allocator is in the stack: it asked, perhaps through an allocator that the program plugged into one of its pools.
    is_for_framework: bool,
}

impl Origin {
    /// The innermost library of a stack that allocates for itself.
    pub(crate) fn of(stack: &Stack) -> Self {
        let names = libraries(stack);
        let responsible = names.iter().position(|name| {
            name.as_ref().is_some_and(|name| !BETWEEN.iter().any(|part| name.starts_with(part)))
        });
        let is_caching =
            |name: &Option<String>| name.as_ref().is_some_and(|name| name.starts_with(CACHING_ALLOCATOR));
        Origin {
            library: responsible.and_then(|at| names[at].clone()).unwrap_or_else(|| "unknown".to_owned()),
            caller: responsible.map_or(0, |at| stack[at]),
            is_framework: responsible.is_some_and(|at| is_caching(&names[at])),
            is_for_framework: names.iter().any(is_caching),
        }
    }

    /// Whether the memory is a segment of PyTorch's caching allocator, which reports what it gives out of it. With
    /// `backend:cudaMallocAsync` the same library passes each request on to the driver's own pool, and reports nothing.
    pub(crate) fn is_segment(&self, is_from_drivers_pool: bool) -> bool {
        self.is_for_framework && !(self.is_framework && is_from_drivers_pool)
    }
}

/// The file name of the library of each frame.
fn libraries(stack: &Stack) -> Vec<Option<String>> {
    let mut search = Search { stack, names: vec![None; stack.len()] };
    // SAFETY: the callback is called before this returns, with the pointer given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.names
}

struct Search<'a> {
    stack: &'a Stack,
    names: Vec<Option<String>>,
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader's description of one object, valid during this call; `libraries` gave the other pointer.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the object's program headers, as many as the loader says.
    let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for (frame, name) in search.stack.iter().zip(&mut search.names) {
        let is_inside = segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD).any(|segment| {
            let offset = (*frame as u64).wrapping_sub(info.dlpi_addr).wrapping_sub(segment.p_vaddr);
            offset < segment.p_memsz
        });
        if *frame != 0 && is_inside && name.is_none() {
            *name = Some(file_name(info));
        }
    }
    0
}

/// The name of an object without its directories; the program itself has an empty one.
fn file_name(info: &libc::dl_phdr_info) -> String {
    if info.dlpi_name.is_null() {
        return String::new();
    }
    // SAFETY: the loader's own C string, valid during the callback.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy();
    match path.rsplit('/').next() {
        None | Some("") => program(),
        Some(name) => name.to_owned(),
    }
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(|| "program".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(is_framework: bool, is_for_framework: bool) -> Origin {
        Origin { library: String::new(), caller: 0, is_framework, is_for_framework }
    }

    #[test]
    fn segments_of_the_caching_allocator_are_the_frameworks() {
        assert!(origin(true, true).is_segment(false));
        assert!(origin(false, true).is_segment(false), "through an allocator plugged into a pool");
        assert!(origin(false, true).is_segment(true), "a plugged-in one that uses the driver's pool");
        assert!(!origin(true, true).is_segment(true), "backend:cudaMallocAsync reports nothing by itself");
        assert!(!origin(false, false).is_segment(false));
    }

    #[test]
    fn the_stack_of_this_test_belongs_to_its_program() {
        let found = Origin::of(&crate::ledger::here());
        assert_eq!(found.library, program());
        assert_ne!(found.caller, 0);
    }
}
