//! Recording without LD_PRELOAD: the global offset tables of loaded objects are patched to call the hooks, and restored on
//! stop. Must never touch a slot that does not lead to the real function, and never leave a page writable that was not.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::libc_symbols::{self, Group};
use crate::object::{Loaded, PAGE};
use crate::session;
use crate::sys;

/// Most slots: some twenty an object.
const MAX_SLOTS: usize = 1 << 17;
/// Most objects.
const MAX_OBJECTS: usize = 1 << 13;

/// A slot that points to a hook now.
#[derive(Clone, Copy)]
struct Slot {
    address: usize,
    original: usize,
    hook: usize,
    /// It is in pages the loader made read-only.
    read_only: bool,
}

/// What was patched. The memory is only touched as far as it is used.
struct Tables {
    busy: AtomicBool,
    slots: AtomicUsize,
    slot_count: AtomicUsize,
    objects: AtomicUsize,
    object_count: AtomicUsize,
}

static TABLES: Tables = Tables {
    busy: AtomicBool::new(false),
    slots: AtomicUsize::new(0),
    slot_count: AtomicUsize::new(0),
    objects: AtomicUsize::new(0),
    object_count: AtomicUsize::new(0),
};

/// An object that is done: where it is, and a slot of it that shows whether it is still the same one.
#[derive(Clone, Copy)]
struct Object {
    base: usize,
    witness: usize,
}

impl Tables {
    fn alone<T>(&self, work: impl FnOnce(&mut [Slot], &mut [Object]) -> T) -> Option<T> {
        while self.busy.swap(true, Ordering::Acquire) {
            sys::give_way();
        }
        // Each by itself: a fork may come between the two.
        for (table, bytes) in
            [(&self.slots, MAX_SLOTS * size_of::<Slot>()), (&self.objects, MAX_OBJECTS * size_of::<Object>())]
        {
            if table.load(Ordering::Relaxed) == 0 {
                table.store(map(bytes) as usize, Ordering::Relaxed);
            }
        }
        let slots = self.slots.load(Ordering::Relaxed) as *mut Slot;
        let objects = self.objects.load(Ordering::Relaxed) as *mut Object;
        let result = (!slots.is_null() && !objects.is_null()).then(|| {
            // SAFETY: mapped with this length, zeroed (a valid value), and used under the lock alone.
            unsafe {
                work(
                    core::slice::from_raw_parts_mut(slots, MAX_SLOTS),
                    core::slice::from_raw_parts_mut(objects, MAX_OBJECTS),
                )
            }
        });
        self.busy.store(false, Ordering::Release);
        result
    }
}

/// Memory that a forked child keeps: its slots are patched as the parent's were.
fn map(bytes: usize) -> *mut u8 {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a new anonymous mapping touches no memory in use.
    unsafe { sys::call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) }
        .map_or(null_mut(), |address| address as *mut u8)
}

/// What a walk over the loaded objects carries along.
struct Walk<'a> {
    slots: &'a mut [Slot],
    objects: &'a mut [Object],
    /// Every object met is done.
    whole: bool,
}

/// False: there is no memory for what must be remembered, and nothing can be patched.
pub fn prepare() -> bool {
    TABLES.alone(|_, _| ()).is_some()
}

/// Points the slots of every object that is not done yet at the hooks. False: some object could not be done yet.
pub fn patch() -> bool {
    let whole = TABLES.alone(|slots, objects| {
        let mut walk = Walk { slots, objects, whole: true };
        // SAFETY: the callback casts the pointer back to the walk it was made from, which lives through the call.
        unsafe { libc::dl_iterate_phdr(Some(patch_object), (&raw mut walk).cast()) };
        walk.whole
    });
    whole.unwrap_or(false)
}

/// After a fork no other thread is patching.
pub fn after_fork() {
    TABLES.busy.store(false, Ordering::Release);
}

/// Puts every slot back that still points to a hook. How many were patched, and how many put back.
pub fn restore() -> (usize, usize) {
    TABLES
        .alone(|slots, _| {
            let count = TABLES.slot_count.swap(0, Ordering::Relaxed);
            TABLES.object_count.store(0, Ordering::Relaxed);
            let mut restore = (&slots[..count], 0_usize);
            // SAFETY: the callback casts the pointer back to the pair it was made from, which lives through the call.
            unsafe { libc::dl_iterate_phdr(Some(restore_object), (&raw mut restore).cast()) };
            (count, restore.1)
        })
        .unwrap_or_default()
}

unsafe extern "C" fn patch_object(info: *mut libc::dl_phdr_info, _: usize, walk: *mut c_void) -> c_int {
    // SAFETY: called by `patch` with its walk, by the loader with a loaded object.
    let (object, walk) = unsafe { (Loaded::new(info), &mut *walk.cast::<Walk<'_>>()) };
    let known = &walk.objects[..TABLES.object_count.load(Ordering::Relaxed)];
    let place = known.iter().position(|known| known.base == object.base);
    if let Some(place) = place {
        let witness = known[place].witness;
        // SAFETY: a slot inside the object that is loaded there now.
        if witness == 0 || (object.holds(witness) && is_hook(unsafe { *(witness as *const usize) })) {
            return 0;
        }
    }
    let (witness, whole) = if object.is_foreign_ground() { (0, true) } else { patch_slots(&object, walk) };
    if whole {
        let place = place.unwrap_or_else(|| TABLES.object_count.fetch_add(1, Ordering::Relaxed));
        match walk.objects.get_mut(place) {
            Some(entry) => *entry = Object { base: object.base, witness },
            None => TABLES.object_count.store(MAX_OBJECTS, Ordering::Relaxed),
        }
    }
    walk.whole &= whole;
    0
}

fn is_hook(value: usize) -> bool {
    libc_symbols::all().any(|(_, hook)| hook == value)
}

/// Whether the recording needs to see calls of these functions.
fn is_wanted(group: Group) -> bool {
    match group {
        Group::Memory => session::options().host,
        Group::Framework => session::options().gpu,
        Group::Process => true,
    }
}

/// Patches an object. Gives one of its patched slots, and whether all could be: those of an object that is just being loaded cannot.
fn patch_slots(object: &Loaded<'_>, walk: &mut Walk<'_>) -> (usize, bool) {
    let (mut witness, mut whole) = (0, true);
    let mut patch = |slot: *mut usize, name: &CStr| {
        let Some((function, hook)) = libc_symbols::all().find(|(function, _)| function.name() == name) else {
            return;
        };
        if !is_wanted(function.group()) {
            return;
        }
        let address = slot as usize;
        if !object.holds(address) || !address.is_multiple_of(8) {
            return;
        }
        // SAFETY: an aligned slot in the memory of a loaded object.
        let value = unsafe { (*slot.cast::<AtomicUsize>()).load(Ordering::Acquire) };
        if value == hook {
            return;
        }
        if function.known() == 0 {
            // The library that defines it is being loaded, together with this one.
            whole &= function.group() != Group::Framework;
            return;
        }
        // Not bound yet: leads into the object's own stubs. Not even relocated: as in the file, nothing or a place counted from the object's beginning.
        // Anything else is another tool's.
        if value != function.known() && !object.holds(value) {
            whole &= value != 0 && !object.holds(object.base.wrapping_add(value));
            return;
        }
        let count = TABLES.slot_count.load(Ordering::Relaxed);
        let Some(entry) = walk.slots.get_mut(count) else { return };
        let read_only = object.is_read_only(address);
        if put(address, value, hook, read_only) {
            *entry = Slot { address, original: value, hook, read_only };
            TABLES.slot_count.store(count + 1, Ordering::Relaxed);
            witness = address;
        } else {
            whole = false; // bound at this very moment, or its page could not be opened
        }
    };
    // SAFETY: `dl_iterate_phdr` passes only objects that are mapped, and holds the lock of the loader's list, so this one cannot be unloaded
    // while it is patched. One that is just being loaded has its dynamic section mapped and relocated before it is listed.
    unsafe { object.slots(&mut patch) };
    (witness, whole)
}

/// Replaces `old` by `new` in a slot, opening its page for that moment where it is read-only.
fn put(address: usize, old: usize, new: usize, read_only: bool) -> bool {
    let page = address & !(PAGE - 1);
    if read_only && sys::protect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE).is_err() {
        return false;
    }
    // SAFETY: an aligned slot in writable memory of a loaded object; the loader may bind it at the same time, hence the exchange.
    let done = unsafe {
        (*(address as *const AtomicUsize))
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    if read_only {
        let _ = sys::protect(page, PAGE, libc::PROT_READ);
    }
    done
}

unsafe extern "C" fn restore_object(info: *mut libc::dl_phdr_info, _: usize, restore: *mut c_void) -> c_int {
    // SAFETY: called by `restore` with its pair, by the loader with a loaded object.
    let (object, (slots, restored)) =
        unsafe { (Loaded::new(info), &mut *restore.cast::<(&[Slot], usize)>()) };
    for slot in slots.iter().filter(|slot| object.holds(slot.address)) {
        *restored += usize::from(put(slot.address, slot.hook, slot.original, slot.read_only));
    }
    0
}
