//! Which loaded module an address belongs to, and where its unwind tables are.
//!
//! glibc 2.35 and later answer that without a lock at any moment (`_dl_find_object`); elsewhere a copy of the loader's list is used, as old as the last refresh.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A loaded module: its addresses and its `.eh_frame_hdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Module {
    pub start: usize,
    pub end: usize,
    pub tables: usize,
}

/// `struct dl_find_object` of glibc's `dlfcn.h`.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    start: usize,
    end: usize,
    link_map: usize,
    eh_frame: usize,
    reserved: [u64; 11],
}

type FindObject = unsafe extern "C" fn(*const c_void, *mut DlFindObject) -> c_int;

const MOST: usize = 1024;

/// The loader's list. Written by `refresh` under its caller's exclusion, read by anyone.
pub(super) struct Modules {
    find_object: Option<FindObject>,
    /// Odd while the list is being written.
    version: AtomicUsize,
    len: AtomicUsize,
    list: UnsafeCell<[Module; MOST]>,
}

// SAFETY: readers check `version` before and after they copy from `list`; torn copies are thrown away.
unsafe impl Sync for Modules {}

impl Modules {
    /// # Safety
    /// `at` is zeroed memory for one `Modules`, never freed.
    pub unsafe fn prepare(at: *mut Self) {
        // SAFETY: the type is that of glibc's header.
        let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
        // SAFETY: a null pointer is `None` for an optional function; zeroed memory is valid for the other fields.
        unsafe { (*at).find_object = core::mem::transmute::<*mut c_void, Option<FindObject>>(find) };
    }

    /// Copies the loader's list. Takes the loader's lock: not for the inside of `malloc`.
    pub fn refresh(&self) {
        if self.find_object.is_some() {
            return;
        }
        self.version.fetch_add(1, Ordering::AcqRel);
        self.len.store(0, Ordering::Relaxed);
        // SAFETY: `add` gets back the `Modules` it expects, and is the only writer now.
        unsafe { libc::dl_iterate_phdr(Some(add), core::ptr::from_ref(self).cast_mut().cast()) };
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    pub fn find(&self, address: usize) -> Option<Module> {
        if let Some(find) = self.find_object {
            let mut found =
                DlFindObject { flags: 0, start: 0, end: 0, link_map: 0, eh_frame: 0, reserved: [0; 11] };
            // SAFETY: takes no lock and writes less than `found` has.
            let status = unsafe { find(address as *const c_void, &mut found) };
            return (status == 0 && found.eh_frame != 0).then_some(Module {
                start: found.start,
                end: found.end,
                tables: found.eh_frame,
            });
        }
        let version = self.version.load(Ordering::Acquire);
        let mut answer = None;
        for at in 0..self.len.load(Ordering::Relaxed).min(MOST) {
            // SAFETY: inside the array; a torn value is thrown away below.
            let module = unsafe { self.list.get().cast::<Module>().add(at).read_volatile() };
            if (module.start..module.end).contains(&address) {
                answer = Some(module);
            }
        }
        (version & 1 == 0 && version == self.version.load(Ordering::Acquire)).then_some(answer?)
    }
}

/// A loaded module, to be recorded so that its addresses can be named later. Good during the call only.
#[derive(Clone, Copy, Debug)]
pub struct LoadedModule<'a> {
    /// The path the loader used; empty for the program itself (`/proc/self/exe`).
    pub path: &'a CStr,
    /// What was added to the addresses in the file.
    pub bias: u64,
    /// The addresses it is mapped to.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Its GNU build id; empty when it has none.
    pub build_id: &'a [u8],
}

/// Calls `visit` for each loaded module. Holds the loader's lock meanwhile: not for the inside of `malloc`.
pub fn each_module<F: FnMut(LoadedModule<'_>)>(mut visit: F) {
    unsafe extern "C" fn show<F: FnMut(LoadedModule<'_>)>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's structures during the call, and the closure handed in below.
        unsafe {
            let (info, visit) = (&*info, &mut *visit.cast::<F>());
            let mut module =
                LoadedModule { path: c"", bias: info.dlpi_addr, start: u64::MAX, end: 0, build_id: &[] };
            if !info.dlpi_name.is_null() {
                module.path = CStr::from_ptr(info.dlpi_name);
            }
            for at in 0..usize::from(info.dlpi_phnum) {
                let header = &*info.dlpi_phdr.add(at);
                let start = info.dlpi_addr + header.p_vaddr;
                match header.p_type {
                    libc::PT_LOAD => {
                        module.start = module.start.min(start);
                        module.end = module.end.max(start + header.p_memsz);
                    }
                    // notes are loaded with the first segment
                    libc::PT_NOTE if module.build_id.is_empty() => {
                        module.build_id = build_id(core::slice::from_raw_parts(
                            start as *const u8,
                            header.p_memsz as usize,
                        ));
                    }
                    _ => {}
                }
            }
            if module.start < module.end {
                visit(module);
            }
        }
        0
    }
    // SAFETY: `show` gets back the closure it expects, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(show::<F>), (&raw mut visit).cast()) };
}

/// The build id among a module's notes: name size, text size, type, name and text, each padded to four bytes.
fn build_id(mut notes: &[u8]) -> &[u8] {
    const GNU_BUILD_ID: u32 = 3;
    while let Some((head, rest)) = notes.split_at_checked(12) {
        let number = |at: usize| {
            head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
        };
        let padded = |at: usize| (number(at) as usize).next_multiple_of(4);
        let Some((name, rest)) = rest.split_at_checked(padded(0)) else { break };
        let Some(text) = rest.get(..number(4) as usize) else { break };
        if number(8) == GNU_BUILD_ID && name == b"GNU\0" {
            return text;
        }
        let Some(rest) = rest.get(padded(4)..) else { break };
        notes = rest;
    }
    &[]
}

unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _size: usize, modules: *mut c_void) -> c_int {
    // SAFETY: the loader's structures during the call, and our own.
    unsafe {
        let (info, modules) = (&*info, &*modules.cast::<Modules>());
        let base = info.dlpi_addr as usize;
        let mut module = Module { start: usize::MAX, end: 0, tables: 0 };
        for at in 0..usize::from(info.dlpi_phnum) {
            let header = &*info.dlpi_phdr.add(at);
            let start = base + header.p_vaddr as usize;
            match header.p_type {
                libc::PT_LOAD => {
                    module.start = module.start.min(start);
                    module.end = module.end.max(start + header.p_memsz as usize);
                }
                libc::PT_GNU_EH_FRAME => module.tables = start,
                _ => {}
            }
        }
        let len = modules.len.load(Ordering::Relaxed);
        if module.tables != 0 && len < MOST {
            modules.list.get().cast::<Module>().add(len).write(module);
            modules.len.store(len + 1, Ordering::Relaxed);
        }
    }
    0
}
