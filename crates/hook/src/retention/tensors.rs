//! The storages of PyTorch's tensors, by the C functions that PyTorch promises to keep (its AOT Inductor interface). Must never make PyTorch print,
//! copy or run anything of the program.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;

use super::kinds::Extent;
use super::python::{Object, Python};
use crate::object::Loaded;

const NAMES: [&CStr; 8] = [
    c"aoti_torch_get_data_ptr",
    c"aoti_torch_get_storage_size",
    c"aoti_torch_get_storage_offset",
    c"aoti_torch_get_device_type",
    c"aoti_torch_get_device_index",
    c"aoti_torch_get_dtype",
    c"aoti_torch_dtype_element_size",
    c"aoti_torch_get_layout",
];

type Ask = unsafe extern "C" fn(usize, *mut i64) -> c_int;
type ItemSize = unsafe extern "C" fn(i32) -> usize;

/// PyTorch's number for memory without contents.
const META: i64 = 14;
/// Where the tensor's C++ object is in the Python object, depending on the version.
const PLACES: [usize; 2] = [24, 16];

/// PyTorch's functions, once they were looked for.
#[derive(Default)]
pub struct Tensors {
    functions: [usize; NAMES.len()],
    is_searched: bool,
    /// One of [`PLACES`]; 0: not known.
    place: usize,
}

impl Tensors {
    /// The storage of a tensor. `None` where this PyTorch cannot tell, or the tensor has none.
    pub fn storage(&mut self, python: &Python, tensor: Object) -> Option<Extent> {
        if !self.is_searched {
            self.is_searched = true;
            // SAFETY: `look_at` gets the pointer to `functions` that it casts back, and it lives through the call.
            unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut self.functions).cast()) };
            self.place = place_of(python, tensor);
        }
        if self.place == 0 || self.functions.contains(&0) {
            return None;
        }
        let handle = tensor.address() + self.place;
        if tensor.word(self.place) == 0 || self.ask(7, handle)? != 0 {
            return None; // no storage behind one address: sparse, quantised by blocks
        }
        let (device, index) = (self.ask(3, handle)?, self.ask(4, handle)?);
        let (data, bytes) = (self.ask(0, handle)? as usize, self.ask(1, handle)?);
        let offset = self.ask(2, handle)?.unsigned_abs() as usize;
        if device == META || data == 0 || bytes <= 0 {
            return None;
        }
        // SAFETY: `functions[6]` is not 0 here, and was found under the name of a function of this type.
        let item = unsafe { transmute::<usize, ItemSize>(self.functions[6])(self.ask(5, handle)? as i32) };
        let memory = if device == 0 { 0 } else { (device as u16) << 8 | (index.max(0) as u16 & 0xff) };
        Some(Extent { address: data.wrapping_sub(offset.wrapping_mul(item)), bytes: bytes as usize, memory })
    }

    fn ask(&self, which: usize, handle: usize) -> Option<i64> {
        let mut answer = 0_i64;
        // SAFETY: the function found under this name, with the handle of a live tensor. Some write four bytes only, which stay below 2^31.
        let failed = unsafe { transmute::<usize, Ask>(self.functions[which])(handle, &raw mut answer) };
        (failed == 0).then_some(answer)
    }
}

/// Where the C++ object is: at the place whose word is what the tensor itself names.
fn place_of(python: &Python, tensor: Object) -> usize {
    let Some(number) = python.attribute(tensor, c"_cdata") else { return 0 };
    // SAFETY: PyTorch defines `_cdata` as an `int`; the reference is held until it is released below.
    let named = unsafe { (python.call.number)(number.address()) } as usize;
    python.release(number);
    PLACES.into_iter().find(|place| tensor.word(*place) == named && named != 0).unwrap_or(0)
}

unsafe extern "C" fn look_at(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: called by `storage` with its array, by the loader with a loaded object.
    unsafe {
        let (object, found) = (Loaded::new(info), &mut *found.cast::<[usize; NAMES.len()]>());
        if object.is_foreign_ground() || object.function(NAMES[0]).is_none() {
            return 0;
        }
        for (place, name) in found.iter_mut().zip(NAMES) {
            *place = object.function(name).map_or(0, |(address, _)| address);
        }
    }
    1
}
