//! CPython as the pass over retained objects needs it: its functions, found at run time, and objects read from memory.
//!
//! Must never call what may run code of the program: no `repr`, no comparison, no attribute of an instance but by its dictionary.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute_copy;

use stormlog_stack::python::{Interpreter, Unsupported};

/// Fields of `PyTypeObject`, the same from 3.11 to 3.14.
mod type_field {
    pub const NAME: usize = 24;
    pub const BASIC_SIZE: usize = 32;
    pub const ITEM_SIZE: usize = 40;
    pub const FLAGS: usize = 168;
    pub const TRAVERSE: usize = 184;
    pub const BASE: usize = 256;
    pub const DICT: usize = 264;
    pub const DICT_OFFSET: usize = 288;
}

/// Bits of `tp_flags`.
pub mod flag {
    pub const MANAGED_DICT: usize = 1 << 4;
    pub const HEAP_TYPE: usize = 1 << 9;
    pub const HAVE_GC: usize = 1 << 14;
    pub const LONG: usize = 1 << 24;
    pub const LIST: usize = 1 << 25;
    pub const TUPLE: usize = 1 << 26;
    pub const BYTES: usize = 1 << 27;
    pub const TEXT: usize = 1 << 28;
    pub const DICT: usize = 1 << 29;
    pub const EXCEPTION: usize = 1 << 30;
    pub const TYPE: usize = 1 << 31;
}

/// Reference counts from here on belong to objects that never die.
const IMMORTAL: u32 = 1 << 30;
/// Bytes before a collectable object: the links of the collector's list.
const LINKS: usize = 16;

/// A live object: made from what the interpreter gave while the GIL is held, and used no longer than that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object(usize);

impl Object {
    /// # Safety
    /// `address` is 0 or a live object, and the GIL is held as long as the result is used.
    pub unsafe fn of(address: usize) -> Option<Self> {
        (address != 0 && address.is_multiple_of(8)).then_some(Object(address))
    }

    pub fn address(self) -> usize {
        self.0
    }

    /// A word of the object. The caller knows that its type has a field there.
    #[inline(always)]
    pub fn word(self, offset: usize) -> usize {
        // SAFETY: the object is live (the invariant of `Object`), and the field is within it.
        unsafe { *((self.0 + offset) as *const usize) }
    }

    /// The object that a field refers to. The caller knows that the field is null or a reference.
    #[inline(always)]
    pub fn field(self, offset: usize) -> Option<Object> {
        // SAFETY: what a live object refers to is live.
        unsafe { Object::of(self.word(offset)) }
    }

    /// Its type, as an address.
    #[inline(always)]
    pub fn kind_address(self) -> usize {
        self.word(8)
    }

    pub fn class(self) -> Type {
        Type(self.word(8))
    }

    /// References to it; 0 for one that never dies.
    #[inline(always)]
    pub fn references(self) -> u32 {
        let count = self.word(0) as u32;
        if count >= IMMORTAL { 0 } else { count }
    }

    /// Whether the collector's list has it; only for objects of a type with `HAVE_GC`.
    #[inline(always)]
    pub fn is_tracked(self) -> bool {
        // SAFETY: collectable objects have their links before them.
        unsafe { *((self.0 - LINKS) as *const usize) != 0 }
    }

    /// The number in the head of a variable-sized object.
    pub fn length(self) -> usize {
        (self.word(16) as isize).unsigned_abs()
    }
}

/// A live type object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Type(usize);

impl Type {
    pub fn object(self) -> Object {
        Object(self.0)
    }

    /// Of an object that is a type.
    pub fn of(object: Object) -> Self {
        Type(object.0)
    }

    pub fn flags(self) -> usize {
        self.object().word(type_field::FLAGS)
    }

    pub fn has(self, flag: usize) -> bool {
        self.flags() & flag != 0
    }

    pub fn basic_size(self) -> usize {
        self.object().word(type_field::BASIC_SIZE)
    }

    pub fn item_size(self) -> usize {
        self.object().word(type_field::ITEM_SIZE)
    }

    pub fn base(self) -> Option<Type> {
        self.object().field(type_field::BASE).map(Type::of)
    }

    /// Its dictionary, where the type object itself has it (the types of the program do).
    pub fn dictionary(self) -> Option<Object> {
        self.object().field(type_field::DICT)
    }

    pub fn has_instance_dictionary(self) -> bool {
        self.has(flag::MANAGED_DICT) || self.object().word(type_field::DICT_OFFSET) != 0
    }

    /// `tp_name`: with its module for types of C, without for classes of Python.
    pub fn name<'a>(self) -> &'a [u8] {
        // SAFETY: a type's name is a C string that lives as long as the type.
        unsafe { crate::libc_symbols::text(self.object().word(type_field::NAME) as *const c_char) }
    }

    /// The last part of its name.
    pub fn short_name<'a>(self) -> &'a [u8] {
        let name = self.name();
        name.rsplit(|byte| *byte == b'.').next().unwrap_or(name)
    }

    pub fn traverse(self) -> Option<Traverse> {
        let function = self.object().word(type_field::TRAVERSE);
        // SAFETY: `tp_traverse` is null or of this type.
        (function != 0).then(|| unsafe { transmute_copy(&function) })
    }
}

pub type Visit = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
pub type Traverse = unsafe extern "C" fn(*mut c_void, Visit, *mut c_void) -> c_int;

type Get = unsafe extern "C" fn() -> usize;
type GetOf = unsafe extern "C" fn(usize) -> usize;
type GetAt = unsafe extern "C" fn(usize, isize) -> usize;
type Release = unsafe extern "C" fn(usize);
type Next = unsafe extern "C" fn(usize, *mut isize, *mut usize, *mut usize) -> c_int;
type VisitAll = unsafe extern "C" fn(Visit, *mut c_void);
type Line = unsafe extern "C" fn(usize, c_int) -> c_int;
type Attribute = unsafe extern "C" fn(usize, *const c_char) -> usize;
/// `Py_AddPendingCall`.
pub type Pending = unsafe extern "C" fn(extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int;

macro_rules! functions {
    ($($field:ident: $kind:ty = $name:literal),* $(,)?) => {
        /// The functions of CPython that are called; each takes no code of the program along.
        pub struct Functions { $(pub $field: $kind),* }

        impl Functions {
            /// # Safety
            /// The symbols are CPython's.
            unsafe fn find() -> Option<Self> {
                // SAFETY: the types are those of CPython's headers.
                unsafe { Some(Functions { $($field: symbol($name)?),* }) }
            }
        }
    };
}

functions! {
    new_list: GetOf = c"PyList_New",
    release: Release = c"Py_DecRef",
    keep: Release = c"Py_IncRef",
    interpreter: Get = c"PyInterpreterState_Get",
    threads: GetOf = c"PyInterpreterState_ThreadHead",
    next_thread: GetOf = c"PyThreadState_Next",
    modules: Get = c"PyImport_GetModuleDict",
    dict_next: Next = c"PyDict_Next",
    dict_size: GetOf = c"PyDict_Size",
    tuple_size: GetOf = c"PyTuple_Size",
    tuple_item: GetAt = c"PyTuple_GetItem",
    line: Line = c"PyCode_Addr2Line",
    instance_dict: unsafe extern "C" fn(usize, *mut c_void) -> usize = c"PyObject_GenericGetDict",
    attribute: Attribute = c"PyObject_GetAttrString",
    number: unsafe extern "C" fn(usize) -> u64 = c"PyLong_AsUnsignedLongLongMask",
    clear_error: unsafe extern "C" fn() = c"PyErr_Clear",
    has_error: Get = c"PyErr_Occurred",
    function_code: GetOf = c"PyFunction_GetCode",
    function_closure: GetOf = c"PyFunction_GetClosure",
    free_variables: GetOf = c"PyCode_GetFreevars",
}

macro_rules! types {
    ($($field:ident = $name:literal),* $(,)?) => {
        /// Addresses of CPython's own types.
        #[derive(Default)]
        pub struct Types { $(pub $field: usize),* }

        impl Types {
            fn find() -> Self {
                // SAFETY: the type objects are not read through these addresses, only compared with.
                unsafe { Types { $($field: symbol::<usize>($name).unwrap_or(0)),* } }
            }
        }
    };
}

types! {
    byte_array = c"PyByteArray_Type", set = c"PySet_Type", frozen_set = c"PyFrozenSet_Type", module = c"PyModule_Type",
    function = c"PyFunction_Type", cell = c"PyCell_Type", frame = c"PyFrame_Type", traceback = c"PyTraceBack_Type",
    generator = c"PyGen_Type", coroutine = c"PyCoro_Type", async_generator = c"PyAsyncGen_Type", code = c"PyCode_Type",
    member = c"PyMemberDescr_Type", text = c"PyUnicode_Type",
}

/// The interpreter of this process.
pub struct Python {
    pub interpreter: Interpreter,
    pub call: Functions,
    pub types: Types,
    /// 3.12 and later.
    pub visit_all: Option<VisitAll>,
}

impl Python {
    /// Finds it. Uses `dlsym`: not for the inside of `malloc`.
    pub fn find() -> Result<Self, Unsupported> {
        let interpreter = Interpreter::find()?;
        // SAFETY: each symbol is given the type that CPython's headers declare for its name.
        unsafe {
            let call = Functions::find().ok_or(Unsupported::Version(interpreter.version()))?;
            let visit_all = symbol(c"PyUnstable_GC_VisitObjects");
            Ok(Python { interpreter, call, types: Types::find(), visit_all })
        }
    }

    /// Whether this thread holds the GIL.
    pub fn holds_gil(&self) -> bool {
        // SAFETY: `thread_state` returned this state for this thread in the same expression, as `holds_gil` requires; the interpreter is never unloaded.
        unsafe { self.interpreter.holds_gil(self.interpreter.thread_state()) }
    }

    /// Calls `visit` with keys and values of a dictionary until it answers `false`. Looks at no more than `most` entries.
    pub fn entries(&self, dictionary: Object, most: usize, mut visit: impl FnMut(Object, Object) -> bool) {
        let (mut at, mut key, mut value) = (0, 0, 0);
        for _ in 0..most {
            // SAFETY: the GIL is held and the dictionary is not changed; what it gives is live.
            unsafe {
                let more =
                    (self.call.dict_next)(dictionary.address(), &raw mut at, &raw mut key, &raw mut value);
                let (Some(key), Some(value)) = (Object::of(key), Object::of(value)) else { return };
                if more == 0 || !visit(key, value) {
                    return;
                }
            }
        }
    }

    /// The item of a tuple.
    pub fn item(&self, tuple: Object, index: usize) -> Option<Object> {
        // SAFETY: the object is a tuple, and the index is within it.
        unsafe {
            let is_within = index < (self.call.tuple_size)(tuple.address());
            is_within.then(|| Object::of((self.call.tuple_item)(tuple.address(), index as isize))).flatten()
        }
    }

    /// The name of a variable of a function, by the live code object's own tuple.
    pub fn variable_name(&self, code: usize, index: usize) -> Option<&'static [u8]> {
        // SAFETY: a live code object has the tuple of its variables' names.
        let names = unsafe { Object::of(self.interpreter.variable_names(code)) }?;
        self.item(names, index).map(|name| self.text(name))
    }

    /// An attribute that C code of the type gives, to be released. Only for types whose attribute this is known to be.
    pub fn attribute(&self, object: Object, name: &CStr) -> Option<Object> {
        // SAFETY: a live object, a terminated name; an error is cleared.
        unsafe {
            let found = Object::of((self.call.attribute)(object.address(), name.as_ptr()));
            if found.is_none() {
                (self.call.clear_error)();
            }
            found
        }
    }

    /// Takes a reference, to be released.
    pub fn keep(&self, object: Object) {
        // SAFETY: an `Object` is alive while the GIL is held (`Object::of`).
        unsafe { (self.call.keep)(object.address()) };
    }

    /// Gives a reference back.
    pub fn release(&self, object: Object) {
        // SAFETY: CPython returned a new reference, which this pass owns and releases once.
        unsafe { (self.call.release)(object.address()) };
    }

    /// Calls `use_it` with the dictionary of an instance, made now where it has none yet; never through an attribute of its class.
    pub fn with_instance_dictionary(&self, object: Object, use_it: impl FnOnce(Object)) {
        if !object.class().has_instance_dictionary() {
            return;
        }
        // SAFETY: a live object with a dictionary; an error (no memory for one) is cleared.
        let dictionary = unsafe {
            let found = Object::of((self.call.instance_dict)(object.address(), core::ptr::null_mut()));
            if found.is_none() {
                (self.call.clear_error)();
            }
            found
        };
        if let Some(dictionary) = dictionary {
            use_it(dictionary);
            self.release(dictionary);
        }
    }

    /// The characters of a string as bytes, where it is a plain `str` of ASCII or Latin-1; empty for any other object.
    pub fn text<'a>(&self, object: Object) -> &'a [u8] {
        if object.kind_address() != self.types.text {
            return &[];
        }
        // SAFETY: a live `str`; the text is used while the GIL is held.
        let text = unsafe { self.interpreter.characters(object.address()) };
        if text.kind == 1 { text.bytes } else { &[] }
    }
}

/// The function that has another function called with the GIL held, at the main thread's next safe moment.
pub fn pending_calls() -> Option<Pending> {
    // SAFETY: the type is that of CPython's header.
    unsafe { symbol(c"Py_AddPendingCall") }
}

/// # Safety
/// `T` is pointer-sized, and what the symbol is.
unsafe fn symbol<T>(name: &CStr) -> Option<T> {
    // SAFETY: a terminated name; looking a symbol up changes nothing.
    let address: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        crate::libc_symbols::forget_error();
        return None;
    }
    // SAFETY: the caller guarantees that `T` is pointer-sized and the type of the symbol.
    Some(unsafe { transmute_copy(&address) })
}
