//! Why a snapshot could not be read, with the value that was wrong and what to do about it.

use std::path::PathBuf;

/// Everything that can be wrong with a snapshot file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Reading or decompressing failed on the way.
    #[error("read error at byte {at}: {source}")]
    Read {
        /// Decompressed bytes read before that.
        at: u64,
        /// What the operating system or the decompressor said.
        source: std::io::Error,
    },
    /// Neither a pickle, JSON, gzip nor zstd.
    #[error(
        "starts with {first:02x?}: not a pickle, JSON, gzip or zstd file; give what torch.cuda.memory._dump_snapshot wrote"
    )]
    NotASnapshot {
        /// The first bytes.
        first: Vec<u8>,
    },
    /// A pickle protocol that is not defined yet, or one too old to be a snapshot.
    #[error("pickle protocol {version}: snapshots use 2 to 5")]
    Protocol {
        /// What the file says.
        version: u8,
    },
    /// The pickle asks for code to be run.
    #[error(
        "byte {at}: the pickle would run code ({name}); snapshots hold only plain values, so this file is refused"
    )]
    Code {
        /// The pickle's word for it.
        name: &'static str,
        /// Where.
        at: u64,
    },
    /// A byte that is not a pickle opcode a snapshot can hold.
    #[error("byte {at}: unknown pickle opcode 0x{opcode:02x}; the file is damaged or not a snapshot")]
    Opcode {
        /// The byte.
        opcode: u8,
        /// Where.
        at: u64,
    },
    /// The file ends inside a value.
    #[error(
        "the file ends after {at} bytes, in the middle of a value: it is truncated; copy it again, or dump again"
    )]
    Truncated {
        /// Bytes there were.
        at: u64,
    },
    /// A length no snapshot has.
    #[error("byte {at}: a value claims {length} bytes, more than the {limit} allowed")]
    TooLong {
        /// The claim.
        length: u64,
        /// What is allowed.
        limit: u64,
        /// Where.
        at: u64,
    },
    /// More of something than a snapshot can sensibly hold: a bomb.
    #[error("more than {limit} {what}: no snapshot needs that many, so the file is refused")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are allowed.
        limit: u64,
    },
    /// A compressed file that unpacks to far more than a snapshot does: a bomb.
    #[error(
        "unpacks to more than {limit} bytes, which no snapshot of its size does, so the file is refused; if it is one, unpack it and give the plain file"
    )]
    Unpacked {
        /// What is allowed.
        limit: u64,
    },
    /// Containers in containers in containers, or one that contains itself.
    #[error("values nested deeper than {limit}, or holding themselves")]
    TooDeep {
        /// What is allowed.
        limit: u32,
    },
    /// A container that refers to itself.
    #[error("byte {at}: a container that holds itself; snapshots are trees")]
    Cycle {
        /// Where.
        at: u64,
    },
    /// A reference to a memo slot that was never filled.
    #[error("byte {at}: refers to memo slot {slot}, which was never filled")]
    Memo {
        /// The slot.
        slot: u64,
        /// Where.
        at: u64,
    },
    /// Opcodes that do not fit each other.
    #[error("byte {at}: {what}")]
    Malformed {
        /// What does not fit.
        what: &'static str,
        /// Where.
        at: u64,
    },
    /// The JSON parser's complaint.
    #[error("JSON: {0}")]
    Json(String),
    /// A value of the wrong kind in a known field.
    #[error("{field}: expected {expected}, found {found}")]
    Field {
        /// The key.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A whole, harmless pickle that is something else.
    #[error(
        "no allocator snapshot in it: expected a dictionary with `segments`, or a list of segments, found {found}"
    )]
    Shape {
        /// What the outermost value is.
        found: String,
    },
}
