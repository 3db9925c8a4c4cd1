//! The memory map at the end of an address profile, in the form of `/proc/PID/maps`, as modules. Opens the named files to read 18 bytes of their
//! head and nothing else.

use std::io::Read;
use std::path::Path;

use crate::sink::{Module, Sink};

/// Modules of a process: more are not real.
const MOST_LINES: usize = 1 << 17;
const ET_EXEC: u16 = 2;

/// Mappings as their lines come; a module is what has one path.
#[derive(Default)]
pub(crate) struct Maps {
    modules: Vec<Mapped>,
    lines: usize,
}

struct Mapped {
    path: String,
    /// Of its first mapping.
    start: u64,
    offset: u64,
    /// Those that are executable.
    segments: Vec<(u64, u64)>,
}

impl Maps {
    /// Takes a line; false when it is not a mapping.
    pub(crate) fn line(&mut self, line: &str) -> bool {
        self.lines += 1;
        self.lines <= MOST_LINES && self.mapping(line).is_some()
    }

    fn mapping(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        let (rights, offset) = (words.next()?, hex(words.next()?)?);
        // Device and inode; the path may have spaces.
        let (_, inode) = (words.next()?, words.next()?);
        let path = line.split_once(&format!(" {inode} "))?.1.trim();
        if !path.starts_with('/') {
            return Some(());
        }
        if self.modules.last().is_none_or(|module| module.path != path) {
            self.modules.push(Mapped { path: path.to_owned(), start, offset, segments: Vec::new() });
        }
        if let Some(module) = self.modules.last_mut().filter(|_| rights.contains('x')) {
            module.segments.push((start, end));
        }
        Some(())
    }

    /// Whether an address is in a library whose file name begins so.
    pub(crate) fn is_in(&self, address: u64, name: &str) -> bool {
        let is_named =
            |module: &&Mapped| module.path.rsplit('/').next().is_some_and(|file| file.starts_with(name));
        let is_inside =
            |module: &Mapped| module.segments.iter().any(|(start, end)| (*start..*end).contains(&address));
        self.modules.iter().filter(is_named).any(is_inside)
    }

    pub(crate) fn load(&self, sink: &mut dyn Sink) {
        for Mapped { path, start, offset, segments } in
            self.modules.iter().filter(|one| !one.segments.is_empty())
        {
            sink.module(Module { path, base: base_of(path, *start, *offset), segments, build_id: &[] });
        }
    }
}

/// What was added to the addresses in a file that is mapped from `offset` to `start`. A program that is not position-independent was loaded where
/// its file says.
pub(crate) fn base_of(path: &str, start: u64, offset: u64) -> u64 {
    match is_fixed(Path::new(path)) {
        true => 0,
        false => start.saturating_sub(offset),
    }
}

fn is_fixed(path: &Path) -> bool {
    let mut head = [0; 18];
    let read = stormlog_files::open_regular(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.starts_with(b"\x7fELF") && u16::from_le_bytes([head[16], head[17]]) == ET_EXEC
}
