//! A loaded object as the loader lists it: its memory, the slots of its calls, the functions it defines. Must never ask the loader for anything, which may
//! be in the middle of its work, nor change the object.

use core::ffi::{CStr, c_char};

use crate::x86_64::relocation::{ABSOLUTE, FUNCTION, POINTER};

pub const PAGE: usize = 4096;

/// An object as the loader lists it.
pub struct Loaded<'a> {
    /// Where it is.
    pub base: usize,
    headers: &'a [libc::Elf64_Phdr],
}

impl Loaded<'_> {
    /// # Safety
    /// `info` is what the loader gave to a callback that is still running.
    pub unsafe fn new(info: *mut libc::dl_phdr_info) -> Self {
        // SAFETY: the caller guarantees that `info` is what the loader gave to a callback that is still running.
        unsafe {
            let info = &*info;
            let headers = core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            Self { base: info.dlpi_addr as usize, headers }
        }
    }

    fn segments(&self, sort: u32) -> impl Iterator<Item = (usize, usize)> {
        self.headers.iter().filter(move |header| header.p_type == sort).map(|header| {
            let start = self.base + header.p_vaddr as usize;
            (start, start + header.p_memsz as usize)
        })
    }

    /// True for an address in its memory.
    pub fn holds(&self, address: usize) -> bool {
        self.segments(libc::PT_LOAD).any(|(start, end)| (start..end).contains(&address))
    }

    /// True for an address that the loader made read-only.
    pub fn is_read_only(&self, address: usize) -> bool {
        self.segments(libc::PT_GNU_RELRO)
            .any(|(start, end)| (start & !(PAGE - 1)..end & !(PAGE - 1)).contains(&address))
    }

    /// Calls `visit` with each relocated slot and the name of its symbol.
    ///
    /// # Safety
    /// The object is loaded and its dynamic section relocated.
    pub unsafe fn slots(&self, mut visit: impl FnMut(*mut usize, &CStr)) {
        // SAFETY: the caller guarantees that the object is loaded and its dynamic section relocated.
        let Some(Dynamic { symbols, strings, tables, lengths, .. }) = (unsafe { self.dynamic() }) else {
            return;
        };
        for (table, length) in tables.into_iter().zip(lengths) {
            if !self.holds(table) {
                continue;
            }
            for index in 0..length / size_of::<libc::Elf64_Rela>() {
                // SAFETY: the table, the symbols and their names are in the object's own read-only memory.
                unsafe {
                    let relocation = &*(table as *const libc::Elf64_Rela).add(index);
                    let (sort, symbol) = (relocation.r_info as u32, (relocation.r_info >> 32) as usize);
                    if symbol == 0
                        || !matches!(sort, FUNCTION | POINTER | ABSOLUTE)
                        || (sort == ABSOLUTE && relocation.r_addend != 0)
                    {
                        continue;
                    }
                    let name = (*(symbols as *const libc::Elf64_Sym).add(symbol)).st_name as usize;
                    let name = CStr::from_ptr((strings + name) as *const c_char);
                    visit((self.base + relocation.r_offset as usize) as *mut usize, name);
                }
            }
        }
    }

    /// What its dynamic section says.
    ///
    /// # Safety
    /// The object is loaded and its dynamic section relocated.
    unsafe fn dynamic(&self) -> Option<Dynamic> {
        let (start, _) = self.segments(libc::PT_DYNAMIC).next()?;
        let mut dynamic = Dynamic::default();
        let mut entry = start as *const [usize; 2];
        // SAFETY: a dynamic section ends with a null entry.
        unsafe {
            loop {
                let [tag, value] = *entry;
                match tag {
                    0 => break,
                    5 => dynamic.strings = value,         // DT_STRTAB
                    6 => dynamic.symbols = value,         // DT_SYMTAB
                    7 => dynamic.tables[0] = value,       // DT_RELA
                    8 => dynamic.lengths[0] = value,      // DT_RELASZ
                    23 => dynamic.tables[1] = value,      // DT_JMPREL
                    2 => dynamic.lengths[1] = value,      // DT_PLTRELSZ
                    0x6fff_fef5 => dynamic.names = value, // DT_GNU_HASH
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        let is_here = |table: usize| table >= self.base && self.holds(table);
        (is_here(dynamic.symbols) && is_here(dynamic.strings)).then_some(dynamic)
    }

    /// Address and length of a function that the object defines and exports. Asks the loader nothing.
    ///
    /// # Safety
    /// As [`slots`](Self::slots).
    pub unsafe fn function(&self, name: &CStr) -> Option<(usize, usize)> {
        // SAFETY: the caller guarantees that the object is loaded and its dynamic section relocated.
        let dynamic = unsafe { self.dynamic() }?;
        if !self.holds(dynamic.names) {
            return None;
        }
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let table = dynamic.names as *const u32;
        // SAFETY: the table of a loaded object, as the loader itself reads it: four words, the filter, the buckets, the hashes.
        unsafe {
            let [buckets, first, filter, shift] = *table.cast::<[u32; 4]>();
            if buckets == 0 || filter == 0 {
                return None;
            }
            let filters = table.add(4).cast::<u64>();
            let word = filters.add((hash / 64 % filter) as usize).read_unaligned();
            if word >> (hash % 64) & word >> (hash >> (shift & 31) & 63) & 1 == 0 {
                return None;
            }
            let starts = filters.add(filter as usize).cast::<u32>();
            let hashes = starts.add(buckets as usize);
            let mut symbol = *starts.add((hash % buckets) as usize);
            while symbol >= first {
                let found = *hashes.add((symbol - first) as usize);
                let entry = &*(dynamic.symbols as *const libc::Elf64_Sym).add(symbol as usize);
                let is_it = (found | 1) == (hash | 1)
                    && entry.st_shndx != 0
                    && CStr::from_ptr((dynamic.strings + entry.st_name as usize) as *const c_char) == name;
                if is_it {
                    return Some((self.base + entry.st_value as usize, entry.st_size as usize));
                }
                if found & 1 != 0 {
                    break;
                }
                symbol += 1;
            }
        }
        None
    }

    /// True for what must be left alone: this library, the loader and the kernel's page.
    pub fn is_foreign_ground(&self) -> bool {
        // SAFETY: `getauxval` only reads the auxiliary vector, which the kernel filled before the first instruction.
        let (loader, kernel) = unsafe {
            (libc::getauxval(libc::AT_BASE) as usize, libc::getauxval(libc::AT_SYSINFO_EHDR) as usize)
        };
        self.holds(Self::is_foreign_ground as *const () as usize)
            || self.base == loader
            || self.base == kernel
    }
}

/// Addresses of tables in an object; 0 for one it does not have.
#[derive(Default)]
struct Dynamic {
    symbols: usize,
    strings: usize,
    /// Relocations: those of data, and those of calls.
    tables: [usize; 2],
    lengths: [usize; 2],
    /// From a name to its symbol.
    names: usize,
}
