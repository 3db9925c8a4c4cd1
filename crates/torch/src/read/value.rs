//! A value while it is being read: a small copy that names what it stands for.

/// What is on the machine's stack. Everything with contents lives in a table of the builder.
#[derive(Debug, Clone, Copy)]
pub(super) enum Val {
    None,
    Bool(bool),
    Int(i64),
    /// Beyond `i64::MAX`.
    Unsigned(u64),
    Float(f64),
    Str(u32),
    /// Two small numbers, such as a pool's id.
    Pair(u32, u32),
    Frame(u32),
    /// A list of frames, with the memo slot that must follow it while it still grows.
    Stack {
        id: u32,
        slot: u32,
    },
    /// Events `.0` up to `.1`, adjacent in the store.
    Events(u32, u32),
    Block(u32),
    Segment(u32),
    Annotation,
    /// A list or dictionary without contents yet, and its memo slot.
    FreshList(u32),
    FreshDict(u32),
    List(u32),
    Tuple(u32),
    Dict(u32),
}

/// Not memoised.
pub(super) const NO_SLOT: u32 = u32::MAX;
/// Fetched from the memo: shared, so it may not change any more.
pub(super) const SHARED: u32 = u32::MAX - 1;

impl Val {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Val::None => "None",
            Val::Bool(_) => "a boolean",
            Val::Int(_) | Val::Unsigned(_) => "an integer",
            Val::Float(_) => "a float",
            Val::Str(_) => "a string",
            Val::Pair(..) | Val::Tuple(_) => "a tuple",
            Val::Frame(_) => "a frame",
            Val::Stack { .. } => "a list of frames",
            Val::Events(..) => "a trace event",
            Val::Block(_) => "a block",
            Val::Segment(_) => "a segment",
            Val::Annotation => "an annotation",
            Val::FreshList(_) => "an empty list",
            Val::FreshDict(_) => "an empty dictionary",
            Val::List(_) => "a list",
            Val::Dict(_) => "a dictionary",
        }
    }
}

/// A memo slot: four bytes, because a large file has tens of millions of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(u32);

const INDEX: u32 = (1 << 28) - 1;

/// What a slot says.
pub(super) enum Memo {
    Unset,
    /// A container that has no contents yet, but may still get some.
    Open(Val),
    /// A known structure that no honest file refers to a second time.
    Spent,
    Value(Val),
    /// Stored in full elsewhere.
    Elsewhere(u32),
}

impl Slot {
    pub(super) const UNSET: Slot = Slot(0);
    pub(super) const SPENT: Slot = Slot(2);
    pub(super) const EMPTY_LIST: Slot = Slot(3);
    const EMPTY_DICT: Slot = Slot(4);
    pub(super) const OPEN_LIST: Slot = Slot(5);
    pub(super) const OPEN_DICT: Slot = Slot(6);

    /// Whether another value already refers to the container as an empty one.
    pub(super) fn is_settled(self) -> bool {
        matches!(self, Slot::EMPTY_LIST | Slot::EMPTY_DICT)
    }

    /// `None` when the value needs more than a slot holds.
    #[inline]
    pub(super) fn pack(value: Val) -> Option<Slot> {
        let (tag, index) = match value {
            Val::FreshList(_) => return Some(Slot::EMPTY_LIST),
            Val::FreshDict(_) => return Some(Slot::EMPTY_DICT),
            Val::Events(..) | Val::Block(_) | Val::Segment(_) | Val::Annotation => return Some(Slot::SPENT),
            Val::Str(id) => (1, id),
            Val::Frame(id) => (2, id),
            Val::Stack { id, .. } => (3, id),
            Val::List(id) => (4, id),
            Val::Dict(id) => (5, id),
            Val::Tuple(id) => (6, id),
            _ => return None,
        };
        (index <= INDEX).then_some(Slot(tag << 28 | index))
    }

    /// The number of the string in it.
    #[inline]
    pub(super) fn text(self) -> Option<u32> {
        (self.0 >> 28 == 1).then_some(self.0 & INDEX)
    }

    /// The number of the frame in it.
    #[inline]
    pub(super) fn frame(self) -> Option<u32> {
        (self.0 >> 28 == 2).then_some(self.0 & INDEX)
    }

    /// The slot of a value kept elsewhere.
    pub(super) fn elsewhere(index: u32) -> Slot {
        Slot(7 << 28 | (index & INDEX))
    }

    #[inline]
    pub(super) fn unpack(self) -> Memo {
        let index = self.0 & INDEX;
        Memo::Value(match self.0 >> 28 {
            1 => Val::Str(index),
            2 => Val::Frame(index),
            3 => Val::Stack { id: index, slot: SHARED },
            4 => Val::List(index),
            5 => Val::Dict(index),
            6 => Val::Tuple(index),
            7 => return Memo::Elsewhere(index),
            _ => match self {
                Slot::SPENT => return Memo::Spent,
                Slot::EMPTY_LIST => Val::FreshList(SHARED),
                Slot::EMPTY_DICT => Val::FreshDict(SHARED),
                Slot::OPEN_LIST => return Memo::Open(Val::FreshList(SHARED)),
                Slot::OPEN_DICT => return Memo::Open(Val::FreshDict(SHARED)),
                _ => return Memo::Unset,
            },
        })
    }
}
