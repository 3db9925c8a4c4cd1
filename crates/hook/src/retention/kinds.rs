//! What an object is, and which memory is its own: the block of a list's items, of an array, of a tensor's storage. Known by the type, which is
//! judged once and remembered. Must never follow a field that the type is not known to have.

use super::python::{Object, Python, Type, flag};
use super::region::Region;
use super::tensors::Tensors;

/// Sorts of objects that the pass treats differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Numbers, `None` and the like: too small and too many.
    Atom = 1,
    Type,
    List,
    Tuple,
    Dict,
    Set,
    Bytes,
    ByteArray,
    Text,
    Module,
    Function,
    Cell,
    Frame,
    Traceback,
    Generator,
    NdArray,
    Array,
    Tensor,
    Deque,
    LruCache,
    BytesIo,
    Exception,
    Instance,
}

const ALL: [Kind; 23] = [
    Kind::Atom,
    Kind::Type,
    Kind::List,
    Kind::Tuple,
    Kind::Dict,
    Kind::Set,
    Kind::Bytes,
    Kind::ByteArray,
    Kind::Text,
    Kind::Module,
    Kind::Function,
    Kind::Cell,
    Kind::Frame,
    Kind::Traceback,
    Kind::Generator,
    Kind::NdArray,
    Kind::Array,
    Kind::Tensor,
    Kind::Deque,
    Kind::LruCache,
    Kind::BytesIo,
    Kind::Exception,
    Kind::Instance,
];

/// The memory of an object: where it is and how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub address: usize,
    pub bytes: usize,
    /// 0 for the host's; else the device's type and number as PyTorch has them, in two bytes.
    pub memory: u16,
}

/// Types that are remembered; others are judged each time.
const SLOTS: usize = 4096;
const PROBES: usize = 8;
/// Base classes that are looked at.
const DEEPEST: usize = 32;
/// Bit of a remembered type: its objects may be in the collector's list.
const COLLECTABLE: usize = 1 << 8;
/// No array has more dimensions.
const MOST_DIMENSIONS: usize = 64;

/// The kinds of the types that were met.
pub struct Kinds<'a> {
    slots: &'a mut [(usize, usize)],
    pub tensors: Tensors,
}

impl<'a> Kinds<'a> {
    pub fn new(region: &'a Region) -> Option<Self> {
        Some(Kinds { slots: region.array(SLOTS)?, tensors: Tensors::default() })
    }

    /// What an object is, and whether the collector may list it.
    #[inline]
    pub fn of(&mut self, python: &Python, object: Object) -> (Kind, bool) {
        let kind = object.kind_address();
        let start = (kind >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52;
        for probe in 0..PROBES {
            let slot = &mut self.slots[(start + probe) % SLOTS];
            if slot.0 == kind {
                return unpacked(slot.1);
            }
            if slot.0 == 0 {
                *slot = (kind, judged(python, object.class()));
                return unpacked(slot.1);
            }
        }
        unpacked(judged(python, object.class()))
    }

    /// The memory that is the object's own.
    pub fn extent(&mut self, python: &Python, object: Object, kind: Kind) -> Extent {
        let class = object.class();
        let own = || Extent { address: object.address(), bytes: class.basic_size(), memory: 0 };
        let with_items = || {
            let bytes = class.basic_size().saturating_add(object.length().saturating_mul(class.item_size()));
            Extent { bytes, ..own() }
        };
        let block = |address: usize, bytes: usize| {
            if address == 0 || bytes < 64 { own() } else { Extent { address, bytes, memory: 0 } }
        };
        match kind {
            Kind::List => block(object.word(24), object.word(32).saturating_mul(8)),
            Kind::Dict => block(object.word(32), keys_bytes(object.word(32))),
            Kind::Set => {
                let table = object.word(40);
                let is_inside = table.wrapping_sub(object.address()) < class.basic_size();
                if is_inside { own() } else { block(table, (object.word(32) + 1).saturating_mul(16)) }
            }
            Kind::ByteArray => block(object.word(32), object.word(24)),
            Kind::Bytes | Kind::Tuple => with_items(),
            Kind::Text => {
                // SAFETY: a live `str`, whose characters are only counted.
                let text = unsafe { python.interpreter.characters(object.address()) };
                Extent { bytes: class.basic_size() + text.bytes.len(), ..own() }
            }
            Kind::NdArray => block(array_data(object), array_bytes(object)),
            Kind::Array => block(object.word(24), object.word(32).saturating_mul(array_item(object))),
            Kind::Deque => block(object.word(24), object.length().saturating_mul(8)),
            Kind::Tensor => self.tensors.storage(python, object).unwrap_or_else(own),
            Kind::Atom | Kind::Type | Kind::Module | Kind::BytesIo => Extent::default(),
            _ => own(),
        }
    }
}

fn unpacked(packed: usize) -> (Kind, bool) {
    let kind = ALL.get((packed & 0xff).wrapping_sub(1)).copied().unwrap_or(Kind::Instance);
    (kind, packed & COLLECTABLE != 0)
}

fn judged(python: &Python, class: Type) -> usize {
    let collectable = if class.has(flag::HAVE_GC) { COLLECTABLE } else { 0 };
    kind_of(python, class) as usize | collectable
}

fn kind_of(python: &Python, class: Type) -> Kind {
    let types = &python.types;
    let address = class.object().address();
    let exact = [
        (types.byte_array, Kind::ByteArray),
        (types.set, Kind::Set),
        (types.frozen_set, Kind::Set),
        (types.module, Kind::Module),
        (types.function, Kind::Function),
        (types.cell, Kind::Cell),
        (types.frame, Kind::Frame),
        (types.traceback, Kind::Traceback),
        (types.generator, Kind::Generator),
        (types.coroutine, Kind::Generator),
        (types.async_generator, Kind::Generator),
    ];
    if let Some((_, kind)) = exact.iter().find(|(known, _)| *known == address) {
        return *kind;
    }
    let flags = class.flags();
    let by_flag = [
        (flag::TYPE, Kind::Type),
        (flag::LIST, Kind::List),
        (flag::TUPLE, Kind::Tuple),
        (flag::DICT, Kind::Dict),
        (flag::BYTES, Kind::Bytes),
        (flag::TEXT, Kind::Text),
        (flag::LONG, Kind::Atom),
        (flag::EXCEPTION, Kind::Exception),
    ];
    if let Some((_, kind)) = by_flag.iter().find(|(bit, _)| flags & bit != 0) {
        return *kind;
    }
    let mut base = Some(class);
    for _ in 0..DEEPEST {
        let Some(one) = base else { break };
        match one.name() {
            b"numpy.ndarray" => return Kind::NdArray,
            b"array.array" => return Kind::Array,
            b"collections.deque" => return Kind::Deque,
            b"functools._lru_cache_wrapper" => return Kind::LruCache,
            b"_io.BytesIO" => return Kind::BytesIo,
            b"module" => return Kind::Module,
            // Of subclasses it is not known what asking them for their storage does.
            b"torch._C.TensorBase" | b"torch._C._TensorBase" => {
                return match class.name() {
                    b"Tensor" | b"Parameter" => Kind::Tensor,
                    _ => Kind::Instance,
                };
            }
            _ => base = one.base(),
        }
    }
    let is_atom = matches!(class.name(), b"float" | b"NoneType" | b"complex" | b"ellipsis");
    if is_atom { Kind::Atom } else { Kind::Instance }
}

/// Bytes of a dictionary's table; 0 where it is shared by the instances of a class.
fn keys_bytes(keys: usize) -> usize {
    const SPLIT: usize = 2;
    // SAFETY: a live dictionary has a table, whose head is the same from 3.11 to 3.14: references, then four bytes of sizes and kind.
    let (references, sizes) = unsafe { (*(keys as *const usize), *((keys + 8) as *const usize)) };
    let (length, index, sort) = (sizes & 0xff, sizes >> 8 & 0xff, sizes >> 16 & 0xff);
    if sort == SPLIT || length > 48 || index > 56 || references == 0 {
        return 0;
    }
    let entry = if sort == 0 { 24 } else { 16 };
    32 + (1_usize << index) + (1_usize << length) * 2 / 3 * entry
}

/// The data of a NumPy array. The first fields have been the same since NumPy 1.7.
fn array_data(array: Object) -> usize {
    array.word(16)
}

/// Bytes of a NumPy array that owns its data; 0 for a view.
fn array_bytes(array: Object) -> usize {
    const OWNS_DATA: usize = 4;
    let (dimensions, is_owner) = (array.word(24) as u32 as usize, array.word(64) & OWNS_DATA != 0);
    if !is_owner || dimensions > MOST_DIMENSIONS {
        return 0;
    }
    let (lengths, strides) = (array.word(32), array.word(40));
    let mut bytes = 0;
    for dimension in 0..dimensions {
        // SAFETY: an array has as many lengths and strides as dimensions.
        let (length, stride) = unsafe {
            (
                *(lengths as *const isize).add(dimension) as usize,
                (*(strides as *const isize).add(dimension)).unsigned_abs(),
            )
        };
        bytes = bytes.max(length.saturating_mul(stride));
    }
    bytes
}

/// The object whose data a NumPy array shows.
pub fn array_base(array: Object) -> Option<Object> {
    array.field(48)
}

/// Bytes of an item of an `array.array`, from its description.
fn array_item(array: Object) -> usize {
    let description = array.word(40);
    // SAFETY: an array has a description, which begins with a letter and the size of an item.
    let size = if description == 0 { 1 } else { unsafe { *((description + 4) as *const u32) } };
    (size as usize).min(64)
}
