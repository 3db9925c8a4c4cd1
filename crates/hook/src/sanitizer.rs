//! Programs built with AddressSanitizer: its runtime must come first in the list of libraries, and takes over the allocator itself. Such a
//! program is started again without this library, as if it had never been preloaded. Must do nothing in any other program.
//!
//! The runtime looks at the list in its first constructor, before ours. So this is decided earlier, while libraries are relocated: the loader calls the
//! resolver of an indirect function then. No function of the C library may be called at that moment, for the sanitizer has replaced it and is not ready,
//! and the program is not relocated. That goes for what compilers put in, too (`strlen`, `memcmp`, `memcpy`): texts are read byte by byte, by
//! volatile loads. Memory is read as the loader laid it out, and the rest is system calls.

use core::ffi::c_char;
use core::ptr::null;

use crate::exec;
use crate::sys;

/// What a program defines that contains the runtime and shows its symbols, ...
const SYMBOL: &[u8] = b"__asan_init";
/// ... and how the names of those begin that a runtime inside a program leaves open.
const HOOKS: &[u8] = b"__sanitizer_";
/// Parts of the names of runtimes that are libraries.
const RUNTIMES: [&[u8]; 2] = [b"libasan.so", b"libclang_rt.asan"];
/// The library whose place in the list tells preloaded libraries from those that were loaded later.
const C_LIBRARY: &[u8] = b"/libc.so";
/// The longest environment or command line; the kernel's own limit is a quarter of the stack.
const MOST: usize = 8 << 20;
/// The longest path.
const PATH: usize = 4096;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_DEBUG: i64 = 21;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// `struct link_map` of `link.h`.
#[repr(C)]
struct Object {
    base: usize,
    name: *const c_char,
    dynamic: *const [i64; 2],
    next: *const Object,
}

/// `struct r_debug` of `link.h`.
#[repr(C)]
struct Debug {
    version: i32,
    first: *const Object,
}

#[cfg(not(test))]
unsafe extern "C" {
    fn stormlog_early();
}

/// What has the loader call the resolver. Never called itself.
#[cfg(not(test))]
#[used]
static EARLY: unsafe extern "C" fn() = stormlog_early;

/// Where the indirect function leads.
#[cfg(not(test))]
pub extern "C" fn nothing() {}

/// Starts a program again where it must not have this library.
#[cfg_attr(test, allow(dead_code, reason = "called by the loader"))]
pub extern "C" fn decide() {
    // SAFETY: the loader's own structures, which it keeps while the process lives.
    if unsafe { is_sanitized() } {
        start_without_us();
    }
}

/// # Safety
/// The loader has mapped all libraries.
unsafe fn is_sanitized() -> bool {
    // SAFETY: the program headers of the program, its dynamic section, and the list the loader hangs there.
    unsafe {
        let Some(mut object) = first_object().as_ref() else { return false };
        if contains_runtime(object) {
            return is_preloaded(object);
        }
        let first = object;
        while let Some(next) = object.next.as_ref() {
            object = next;
            if contains(object.name, RUNTIMES[0]) || contains(object.name, RUNTIMES[1]) {
                return is_preloaded(first);
            }
        }
    }
    false
}

/// Whether this library is before the C library in the list that begins with `object`.
///
/// # Safety
/// As [`is_sanitized`].
unsafe fn is_preloaded(mut object: &Object) -> bool {
    // SAFETY: the caller guarantees that the list of loaded objects does not change during the call.
    unsafe {
        loop {
            if contains(object.name, exec::LIBRARY) {
                return true;
            }
            match object.next.as_ref() {
                Some(next) if !contains(object.name, C_LIBRARY) => object = next,
                _ => return false,
            }
        }
    }
}

/// The program itself, first of the loader's list.
///
/// # Safety
/// As [`is_sanitized`].
unsafe fn first_object() -> *const Object {
    // SAFETY: what the kernel says of the program's headers; the loader keeps `getauxval`'s values from the very beginning.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr;
        let count = libc::getauxval(libc::AT_PHNUM) as usize;
        if headers.is_null() {
            return null();
        }
        let headers = core::slice::from_raw_parts(headers, count);
        let itself = headers.iter().find(|header| header.p_type == libc::PT_PHDR);
        let base = itself.map_or(0, |itself| headers.as_ptr() as usize - itself.p_vaddr as usize);
        let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
            return null();
        };
        let dynamic = (base + dynamic.p_vaddr as usize) as *const [i64; 2];
        let debug = entry(dynamic, DT_DEBUG) as *const Debug;
        debug.as_ref().map_or(null(), |debug| debug.first)
    }
}

/// An entry of a dynamic section; 0 where there is none.
///
/// # Safety
/// `dynamic` is a dynamic section.
unsafe fn entry(mut dynamic: *const [i64; 2], tag: i64) -> usize {
    // SAFETY: the section ends with an entry of tag 0.
    unsafe {
        while (*dynamic)[0] != 0 && (*dynamic)[0] != tag {
            dynamic = dynamic.add(1);
        }
        if (*dynamic)[0] == tag { (*dynamic)[1] as usize } else { 0 }
    }
}

/// Whether the runtime of a sanitizer is linked into an object.
///
/// # Safety
/// The object is loaded.
unsafe fn contains_runtime(object: &Object) -> bool {
    let hash =
        SYMBOL.iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
    // SAFETY: the tables are mapped, and laid out as `DT_GNU_HASH` is.
    unsafe {
        let address = |tag| match entry(object.dynamic, tag) {
            0 => 0,
            // The loader puts addresses in place of offsets where it can write.
            found if found < object.base => found + object.base,
            found => found,
        };
        let (table, symbols, names) = (address(DT_GNU_HASH), address(DT_SYMTAB), address(DT_STRTAB));
        if table == 0 || symbols == 0 || names == 0 {
            return false;
        }
        let word = |at: usize| *((table + 4 * at) as *const u32);
        let (buckets, first, bloom) = (word(0), word(1), word(2));
        if buckets == 0 {
            return false;
        }
        let name_of = |index: usize| {
            let symbol = (symbols + index * size_of::<libc::Elf64_Sym>()) as *const libc::Elf64_Sym;
            (names + (*symbol).st_name as usize) as *const c_char
        };
        // What is not defined comes first.
        if (1..first as usize).any(|index| begins(name_of(index), HOOKS)) {
            return true;
        }
        let after_bloom = 4 + 2 * bloom as usize;
        let mut index = word(after_bloom + (hash % buckets) as usize);
        while index >= first {
            let known = word(after_bloom + buckets as usize + (index - first) as usize);
            let name = name_of(index as usize);
            if known | 1 == hash | 1 && begins(name, SYMBOL) && *name.add(SYMBOL.len()) == 0 {
                return true;
            }
            if known & 1 == 1 {
                return false;
            }
            index += 1;
        }
        false
    }
}

/// Whether a text begins so.
///
/// # Safety
/// `text` is a C string.
unsafe fn begins(text: *const c_char, part: &[u8]) -> bool {
    // SAFETY: no byte past the end of the text is read: that one differs from all of `part`.
    part.iter().enumerate().all(|(at, byte)| unsafe { text.add(at).cast::<u8>().read_volatile() == *byte })
}

/// Whether a text has this in it.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn contains(mut text: *const c_char, part: &[u8]) -> bool {
    // SAFETY: the caller guarantees that `text` is null or a C string.
    unsafe {
        while !text.is_null() && text.read_volatile() != 0 {
            if begins(text, part) {
                return true;
            }
            text = text.add(1);
        }
    }
    false
}

/// # Safety
/// `text` is a C string.
unsafe fn length_of(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: the caller guarantees that `text` is a C string, so that its end is reached.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

/// Takes this library out of a variable; false where nothing is left of it, or it is ours altogether.
///
/// # Safety
/// `variable` is a C string that may be written to.
unsafe fn keeps(variable: *mut u8) -> bool {
    // SAFETY: the caller guarantees that `variable` is a C string that can be written; what is written is never longer than
    // what was there.
    unsafe {
        if begins(variable.cast(), exec::OPTIONS) {
            return false;
        }
        if !begins(variable.cast(), exec::PRELOAD) {
            return true;
        }
        let list = variable.add(exec::PRELOAD.len());
        let (mut at, mut kept) = (0, 0);
        while list.add(at).read_volatile() != 0 {
            let mut end = at;
            while !matches!(list.add(end).read_volatile(), 0 | b':' | b' ') {
                end += 1;
            }
            let last = list.add(end).read_volatile();
            list.add(end).write_volatile(0);
            if end > at && !contains(list.add(at).cast(), exec::LIBRARY) {
                if kept > 0 {
                    list.add(kept).write_volatile(b':');
                    kept += 1;
                }
                for from in at..end {
                    list.add(kept).write_volatile(list.add(from).read_volatile());
                    kept += 1;
                }
            }
            at = if last == 0 { end } else { end + 1 };
        }
        list.add(kept).write_volatile(0);
        kept > 0
    }
}

/// Replaces the program by itself, without our variables. Where that fails it starts as it would have.
fn start_without_us() {
    let (arguments, environment) = (Row::read(b"/proc/self/cmdline\0"), Row::read(b"/proc/self/environ\0"));
    let (Some(arguments), Some(environment), target) = (arguments, environment, sys::map_private(PATH))
    else {
        return;
    };
    environment.without_ours();
    // SAFETY: the kernel writes at most this many bytes; the rows end with a null.
    unsafe {
        let link = c"/proc/self/exe".as_ptr() as usize;
        let is_read = sys::call(libc::SYS_readlink, [link, target as usize, PATH - 1, 0, 0, 0]).is_ok();
        if target.is_null() || !is_read {
            return;
        }
        // The name it was started by, which is the name of its process; not where that is a script, which names us its interpreter.
        let name = libc::getauxval(libc::AT_EXECFN) as *const u8;
        let path = if is_same_file(name, target) { name } else { target };
        let _ = sys::call(
            libc::SYS_execve,
            [path as usize, arguments.row as usize, environment.row as usize, 0, 0, 0],
        );
    }
}

/// # Safety
/// Both are null or C strings.
unsafe fn is_same_file(left: *const u8, right: *const u8) -> bool {
    // SAFETY: the caller guarantees that both are null or C strings.
    let identity = |path: *const u8| unsafe {
        let path = core::slice::from_raw_parts(path, length_of(path) + 1);
        let descriptor = sys::open(path, libc::O_PATH, 0).ok()?;
        let identity = sys::identity(descriptor);
        sys::close(descriptor);
        identity
    };
    !left.is_null() && !right.is_null() && identity(left).is_some() && identity(left) == identity(right)
}

/// Texts as `execve` takes them.
struct Row {
    row: *mut *mut u8,
}

impl Row {
    /// The zero-terminated texts of a file of `/proc`.
    fn read(path: &[u8]) -> Option<Self> {
        let (text, row) = (sys::map_private(MOST), sys::map_private(MOST).cast::<*mut u8>());
        if text.is_null() || row.is_null() {
            return None;
        }
        let descriptor = sys::open(path, libc::O_RDONLY, 0).ok()?;
        let (mut length, mut count) = (0, 0);
        // SAFETY: both are fresh mappings of this length, and a text has at least one byte: this many pointers fit only of texts that are
        // longer on average than the pointer, which is checked.
        unsafe {
            loop {
                let more = sys::read(
                    descriptor,
                    core::slice::from_raw_parts_mut(text.add(length), MOST - length - 1),
                );
                if more == 0 {
                    break;
                }
                length += more;
            }
            sys::close(descriptor);
            let mut at = 0;
            while at < length {
                if (count + 2) * size_of::<usize>() > MOST {
                    return None;
                }
                row.add(count).write(text.add(at));
                count += 1;
                at += length_of(text.add(at)) + 1;
            }
        }
        (length < MOST - 1).then_some(Self { row })
    }

    /// Takes our variables out of an environment.
    fn without_ours(&self) {
        // SAFETY: a null-terminated row of texts of our own.
        unsafe {
            let (mut from, mut to) = (self.row, self.row);
            while !(*from).is_null() {
                if keeps(*from) {
                    *to = *from;
                    to = to.add(1);
                }
                from = from.add(1);
            }
            *to = core::ptr::null_mut();
        }
    }
}
