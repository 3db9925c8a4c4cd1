//! Whether the heap of a program can be recorded, by its file: the recording library is loaded by the GNU C library's dynamic loader, for
//! x86-64, and by no other.
//!
//! A loader of another C library would refuse to start the program with a library it cannot load, so that is found out before. Must never
//! keep a program from being started: what cannot be read here may be right.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{getegid, geteuid};

/// Bytes of a file that are read: headers come first.
const HEAD: u64 = 16 << 10;
const CLASS_64: u8 = 2;
const X86_64: u16 = 62;
/// Of a program header.
const INTERPRETER: u32 = 3;
const HEADER_SIZE: usize = 56;
/// How the loader of the GNU C library is called: by itself, and in the Linux Standard Base.
const LOADERS: [&[u8]; 2] = [b"ld-linux-x86-64.so", b"ld-lsb-x86-64.so"];
/// Permission bits.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// Why the heap of a program cannot be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unrecordable {
    /// There is no dynamic loader in it.
    Static,
    /// It has a loader of another C library, of this name.
    OtherLoader(String),
    /// It was built for another processor.
    OtherMachine,
    /// The loader ignores libraries from the environment.
    Privileged,
    /// The run's directory, or the recording library, prevents it: the whole sentence.
    Failed(String),
}

impl Unrecordable {
    /// What prevents the recording of `program`, as it will be searched for; `None` where nothing is known to.
    pub(crate) fn find(program: &OsStr) -> Option<Self> {
        let path = locate(program)?;
        let (file, head) = read_head(&path)?;
        if let Some(interpreter) = script_interpreter(&head) {
            let (file, head) = read_head(&interpreter)?;
            return Self::of(&interpreter, &file, &head);
        }
        Self::of(&path, &file, &head)
    }

    fn of(path: &Path, file: &std::fs::Metadata, head: &[u8]) -> Option<Self> {
        let is_other = |bit: u32, owner: u32, own: u32| file.mode() & bit != 0 && owner != own;
        if is_other(SET_USER, file.uid(), geteuid().as_raw())
            || is_other(SET_GROUP, file.gid(), getegid().as_raw())
        {
            return Some(Unrecordable::Privileged);
        }
        let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let is_loader = |name: &[u8]| LOADERS.iter().any(|loader| name.starts_with(loader));
        match Elf::parse(head)? {
            Elf::OtherMachine => Some(Unrecordable::OtherMachine),
            Elf::Loaded(loader) => {
                let name = name(&loader);
                let words = || String::from_utf8_lossy(&name).into_owned();
                (!is_loader(&name)).then(|| Unrecordable::OtherLoader(words()))
            }
            // The loader may be started as a program itself.
            Elf::Static => (!is_loader(&name(path.as_os_str().as_bytes()))).then_some(Unrecordable::Static),
        }
    }

    /// Whether the program must be started without the library: its loader would not start it with it.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Unrecordable::OtherLoader(_) | Unrecordable::OtherMachine)
    }
}

impl std::fmt::Display for Unrecordable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unrecordable::Static => f.write_str("the program is statically linked"),
            Unrecordable::OtherLoader(name) => {
                write!(f, "the program uses another C library than glibc (loader {name})")
            }
            Unrecordable::OtherMachine => f.write_str("the program is not built for 64-bit x86"),
            Unrecordable::Failed(sentence) => f.write_str(sentence),
            Unrecordable::Privileged => f.write_str("the program is set-user-ID or set-group-ID"),
        }
    }
}

/// What the headers of a program say.
#[derive(Debug, PartialEq, Eq)]
enum Elf {
    OtherMachine,
    /// The path of its loader.
    Loaded(Vec<u8>),
    Static,
}

impl Elf {
    /// `None`: not a program, or its headers are not in `head`.
    fn parse(head: &[u8]) -> Option<Self> {
        let u16_at = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        if !head.starts_with(b"\x7fELF") {
            return None;
        }
        if *head.get(4)? != CLASS_64 || u16_at(18)? != X86_64 {
            return Some(Elf::OtherMachine);
        }
        let (table, size, count) = (usize::try_from(u64_at(32)?).ok()?, u16_at(54)?, u16_at(56)?);
        for index in 0..usize::from(count) {
            let at = table.checked_add(index * usize::from(size).max(HEADER_SIZE))?;
            if u32_at(at)? == INTERPRETER {
                let start = usize::try_from(u64_at(at + 8)?).ok()?;
                let length = usize::try_from(u64_at(at + 32)?).ok()?;
                let path = head.get(start..start.checked_add(length)?)?;
                return Some(Elf::Loaded(path.split(|byte| *byte == 0).next()?.to_vec()));
            }
        }
        Some(Elf::Static)
    }
}

/// The file that will be executed.
fn locate(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0))
}

fn read_head(path: &Path) -> Option<(std::fs::Metadata, Vec<u8>)> {
    let file = stormlog_files::open_regular(path).ok()?;
    let metadata = file.metadata().ok()?;
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).ok()?;
    Some((metadata, head))
}

/// What the first line of a script names.
fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = line.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    /// A program with one program header behind its own header.
    fn program(class: u8, machine: u16, kind: u32, loader: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + HEADER_SIZE];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[4] = class;
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&(HEADER_SIZE as u16).to_le_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        let start = bytes.len() as u64;
        bytes[72..80].copy_from_slice(&start.to_le_bytes());
        bytes[96..104].copy_from_slice(&(loader.len() as u64).to_le_bytes());
        bytes.extend_from_slice(loader);
        bytes
    }

    fn judged(bytes: &[u8]) -> Option<Unrecordable> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("program");
        std::fs::write(&path, bytes).unwrap();
        Unrecordable::find(path.as_os_str())
    }

    #[test]
    fn programs_are_judged_by_their_loader() {
        let loaded = |loader: &[u8]| judged(&program(CLASS_64, X86_64, INTERPRETER, loader));
        assert_eq!(loaded(b"/lib64/ld-linux-x86-64.so.2\0"), None);
        assert_eq!(loaded(b"/nix/store/x/lib/ld-linux-x86-64.so.2\0"), None);
        let musl = Unrecordable::OtherLoader("ld-musl-x86_64.so.1".to_owned());
        assert_eq!(loaded(b"/lib/ld-musl-x86_64.so.1\0"), Some(musl.clone()));
        assert!(musl.is_refused());
        assert_eq!(judged(&program(CLASS_64, X86_64, 1, b"")), Some(Unrecordable::Static));
        assert_eq!(judged(&program(1, 3, 1, b"")), Some(Unrecordable::OtherMachine));
    }

    #[test]
    fn unreadable_program_is_not_judged() {
        let whole = program(CLASS_64, X86_64, INTERPRETER, b"/lib/ld-musl-x86_64.so.1\0");
        for end in 0..whole.len() - 1 {
            assert!(!matches!(judged(&whole[..end]), Some(Unrecordable::OtherLoader(_))), "{end}");
        }
        assert_eq!(judged(b"print('hello')"), None);
        assert_eq!(Unrecordable::find(OsStr::new("/is/not/there")), None);
        assert_eq!(Unrecordable::find(OsStr::new("sh")), None);
    }

    #[test]
    fn a_script_is_judged_by_what_runs_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("runs");
        std::fs::write(&path, program(CLASS_64, X86_64, 1, b"")).unwrap();
        assert_eq!(judged(format!("#! {} -x\n", path.display()).as_bytes()), Some(Unrecordable::Static));
    }
}
