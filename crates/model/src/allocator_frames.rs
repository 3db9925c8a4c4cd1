//! Native functions that only pass a request for memory on to an allocator: their caller wanted it. Must know them by their demangled names,
//! since they are often compiled into the user's own program; of an allocator's own library no name is needed.

/// Allocators of C, under the names they have in programs, in glibc and in its loader.
const OF_C: [&str; 17] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "mmap",
    "mmap64",
    "mremap",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__mmap",
];
/// Of CUDA; `libcudart_static_` and a hash is what the runtime's own functions are called in a program.
const OF_CUDA: [&str; 7] = [
    "cudaMalloc",
    "cudaHostAlloc",
    "cuMemAlloc",
    "cuMemCreate",
    "cuMemHostAlloc",
    "libcudart_static_",
    "cuMemMap",
];
/// Allocators that are libraries of their own.
const ALLOCATORS: [&str; 3] = ["libjemalloc", "libtcmalloc", "libmimalloc"];
/// What the standard libraries of C++ and Rust have their functions in.
const LIBRARIES: [&str; 4] = ["std::", "__gnu_cxx::", "alloc::", "hashbrown::"];
/// Functions the compilers call by themselves.
const OF_COMPILERS: [&str; 5] = ["__cxa_", "__rust_alloc", "__rust_realloc", "__rdl_", "__rg_"];

/// Whether a native function, by its name and its source file where that is known, only passes a request for memory on.
#[must_use]
pub fn passes_on(function: &str, file: &str) -> bool {
    let library = file.rsplit('/').next().unwrap_or(file);
    if ALLOCATORS.iter().any(|allocator| library.starts_with(allocator)) {
        return true;
    }
    let name = qualified(function);
    let is_rust = file.ends_with(".rs");
    let of_library = |name: &str| {
        let name = name.trim_start_matches(['<', '&']);
        let name = name.strip_prefix("mut ").unwrap_or(name);
        LIBRARIES.iter().any(|library| name.starts_with(library)) || (is_rust && name.starts_with("core::"))
    };
    // `<A as B>::f` belongs to the author of A or B; a generic A, which has no path, to the author of B.
    if let Some((of, like)) = name.strip_prefix('<').and_then(|rest| rest.split_once(" as ")) {
        return of_library(like) && (of_library(of) || !of.contains("::"));
    }
    let last = name.rsplit("::").next().unwrap_or(name);
    name.ends_with("operator new")
        || name.ends_with("operator new[]")
        || OF_C.contains(&name)
        || OF_CUDA.iter().any(|prefix| name.starts_with(prefix))
        || OF_COMPILERS.iter().any(|prefix| last.starts_with(prefix))
        || of_library(name)
}

/// The name of a function without what it takes and, of a C++ template, without what it returns.
fn qualified(function: &str) -> &str {
    let (mut depth, mut start, mut before) = (0u32, 0, ' ');
    let is_operator = |at: usize| function[..at].trim_end_matches(['<', '>']).ends_with("operator");
    for (at, letter) in function.char_indices() {
        match letter {
            // An `operator<` opens nothing.
            '<' | '>' if is_operator(at) => {}
            '<' | '{' | '[' => depth += 1,
            '(' if depth == 0 && !function[at..].starts_with("(anonymous namespace)") => {
                return &function[start..at];
            }
            '(' => depth += 1,
            '>' if before == '-' => {}
            '>' | '}' | ']' | ')' => depth = depth.saturating_sub(1),
            // `operator new`, `operator std::string` and `operator< <int>` are one name.
            ' ' if depth == 0 && !is_operator(at) => start = at + 1,
            _ => {}
        }
        before = letter;
    }
    &function[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_frames_are_known() {
        for name in [
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::nothrow_t const&)",
            "Pool::operator new(unsigned long)",
            "std::__new_allocator<int>::allocate(unsigned long, void const*)",
            "__gnu_cxx::new_allocator<Row>::allocate(unsigned long, void const*)",
            "void std::vector<Row, std::allocator<Row> >::_M_realloc_insert<Row&>(__gnu_cxx::__normal_iterator<Row*>, Row&)",
            "std::__cxx11::basic_string<char> std::operator+<char>(char const*, std::string const&)",
            "bool std::operator< <int>(std::vector<int> const&, std::vector<int> const&)",
            "__cxa_allocate_exception",
            "malloc",
            "posix_memalign",
            "alloc::raw_vec::RawVec<T,A>::grow_one",
            "<alloc::vec::Vec<T> as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
            "<T as alloc::slice::hack::ConvertVec>::to_vec",
            "<&mut alloc::string::String as std::io::Write>::write_str",
            "__rust_alloc_zeroed",
            "__rustc::__rdl_alloc",
            "__rustc[3a5f0fb9ab4a5b1f]::__rust_alloc",
            "std::collections::hash::map::HashMap<K,V,S>::insert",
            "cudaError cudaMalloc<int>(int**, unsigned long)",
            "cuMemAlloc_v2",
            "libcudart_static_5382377d5c772c9d197c0cda9fd9742ee6ad893c",
        ] {
            assert!(passes_on(name, "/usr/bin/program"), "{name}: {}", qualified(name));
        }
        assert!(passes_on(
            "core::iter::traits::iterator::Iterator::collect",
            "/rustc/1/library/core/src/iter.rs"
        ));
    }

    #[test]
    fn requesting_frames_are_not_skipped() {
        for name in [
            "main",
            "load(std::vector<int>&)",
            "std::vector<int> load<int>(int)",
            "Cache::put(std::string const&)",
            "(anonymous namespace)::Cache::put(std::string const&)",
            "Name::operator std::string() const",
            "bool operator< <Row>(std::vector<Row> const&, std::vector<Row> const&)",
            "main::{lambda(std::string)#1}::operator()(std::string) const",
            "core::Engine::load(char const*)",
            "xmalloc",
            "strdup",
            "program::keep::{{closure}}",
            "<program::Row as core::clone::Clone>::clone",
            "<alloc::vec::Vec<T> as program::Fill>::fill",
            "<fn(i32) -> i32 as program::Call>::call",
            "0x12f0",
            "",
        ] {
            assert!(!passes_on(name, "/usr/bin/program"), "{name}: {}", qualified(name));
        }
    }
}
