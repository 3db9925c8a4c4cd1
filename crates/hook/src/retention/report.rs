//! The report of a pass as JSON, and the file it is written to: whole or not at all, private, never through a link. `stormlog-catalog` reads it.

use core::ffi::CStr;

use stormlog_model::memory::{Device, Memory, Source};

use super::Order;
use super::graph::Graph;
use super::holders::{Group, Holders, operations};
use super::kinds::Kinds;
use super::line::Line;
use super::path_describer::PathDescriber;
use super::python::{Object, Python};
use super::roots::Roots;
use super::sampler::{GRAPHS, RECORDED, Sample, Sampler};

/// Rows, and blocks of a row.
const MOST_ROWS: usize = 48;
const MOST_BLOCKS: usize = 512;
/// Holders of less than this part of a memory are left out.
const SMALLEST_PART: u64 = 500;
/// Operations of an autograd graph that are named.
const OPERATIONS: usize = 4;

/// What is reported.
pub struct Report<'r> {
    pub python: &'r Python,
    pub graph: &'r Graph<'r>,
    pub roots: &'r Roots<'r>,
    pub sampler: &'r Sampler<'r>,
    pub holders: &'r Holders<'r>,
    pub nodes: &'r [u32],
    pub taken_at_ns: u64,
    pub elapsed_us: u64,
    pub is_complete: bool,
}

impl Report<'_> {
    /// Writes the text.
    pub fn write(&self, kinds: &mut Kinds<'_>, order: &Order<'_>, out: &mut Line<'_>, line: &mut Line<'_>) {
        out.push(b"{\"format\":\"stormlog-retained\",\"version\":1,\"pid\":")
            .number(u64::from(crate::sys::process()));
        out.push(b",\"taken_at_ns\":").number(self.taken_at_ns);
        out.push(b",\"reason\":");
        string(out, order.reason);
        out.push(b",\"elapsed_us\":").number(self.elapsed_us);
        out.push(b",\"objects\":").number(self.sampler.objects);
        out.push(b",\"complete\":").push(if self.is_complete { b"true" } else { b"false" });
        if !self.is_complete {
            out.push(b",\"note\":\"not every path was followed in the time allowed\"");
        }
        out.push(b",\"held\":[");
        let mut is_first = true;
        // Tensors with a graph are counted, not weighed: they come beside the largest.
        let graphs = self.holders.groups().iter().filter(|group| group.memory == GRAPHS).take(MOST_ROWS / 4);
        let of_memory = |memory: u16| -> u64 {
            let groups = self.holders.groups().iter().filter(|group| group.memory == memory);
            groups.map(|group| group.bytes).sum()
        };
        let is_large = |group: &&Group| group.bytes > of_memory(group.memory) / SMALLEST_PART;
        let plain = self.holders.groups().iter().filter(|group| group.memory != GRAPHS);
        let plain = plain.filter(is_large).take(MOST_ROWS);
        for group in plain.chain(graphs) {
            if !core::mem::replace(&mut is_first, false) {
                out.push(b",");
            }
            self.row(kinds, group, out, line);
        }
        out.push(b"]}\n");
    }

    fn row(&self, kinds: &mut Kinds<'_>, group: &Group, out: &mut Line<'_>, line: &mut Line<'_>) {
        let is_graph = group.memory == GRAPHS;
        let largest = self.sampler.samples().nth(group.largest as usize);
        // SAFETY: sampled in this pass, which holds the GIL to its end, so the object is alive.
        let object = largest.and_then(|sample| unsafe { Object::of(sample.object) });
        let memory = match (is_graph, object) {
            (true, Some(tensor)) => {
                kinds.tensors.storage(self.python, tensor).map_or(0, |extent| extent.memory)
            }
            _ => group.memory,
        };
        out.push(b"{\"memory\":\"");
        memory_name(out, memory);
        out.push(b"\",\"bytes\":").number(if is_graph { 0 } else { group.bytes });
        out.push(b",\"objects\":").number(group.objects);
        if is_graph {
            out.push(b",\"keeps_graph\":true");
        }
        let Some(node) = group.node(self.nodes) else {
            out.push(b",\"kept_by\":\"\"}");
            return;
        };
        let mut describer =
            PathDescriber { python: self.python, kinds, graph: self.graph, roots: self.roots };
        let chain = describer.chain(node);
        line.clear();
        line.push(if group.is_by_graph() { b"the autograd graph of ".as_slice() } else { b"" });
        describer.sentence(&chain, line);
        let tensor = if group.is_by_graph() { self.graph.object(node) } else { object.filter(|_| is_graph) };
        if let Some(tensor) = tensor {
            line.push(match (group.is_by_graph(), group.objects > 1) {
                (true, _) => b" (grad_fn ".as_slice(),
                (_, true) => b"; each keeps its autograd graph (grad_fn ",
                _ => b"; it keeps its autograd graph (grad_fn ",
            });
            let mut count = 0;
            operations(self.python, describer.kinds, tensor, OPERATIONS, |name| {
                line.push(if count == 0 { b"".as_slice() } else { " → ".as_bytes() }).push(name);
                count += 1;
            });
            line.push(if count == OPERATIONS { " → …)".as_bytes() } else { b")" });
        }
        out.push(b",\"kept_by\":");
        string(out, line.text());
        out.push(b",\"path\":[");
        let mut is_first = true;
        describer.steps(
            &chain,
            |step| {
                if !core::mem::replace(&mut is_first, false) {
                    out.push(b",");
                }
                string(out, step);
            },
            line,
        );
        out.push(b"],\"blocks\":[");
        self.blocks(group, group.memory, |is_first, sample| {
            out.push(if is_first { b"[" } else { b",[" });
            out.number(sample.address as u64).push(b",").number(sample.weight).push(b"]");
        });
        out.push(b"],\"recorded\":[");
        if group.memory == 0 {
            self.blocks(group, RECORDED, |is_first, sample| {
                out.push(if is_first { b"" } else { b"," }).number(sample.address as u64);
            });
        }
        out.push(b"]}");
    }

    /// Calls `write` with the samples of a memory that a holder keeps, and whether it is the first; none for tensors as objects.
    fn blocks(&self, group: &Group, memory: u16, mut write: impl FnMut(bool, &Sample)) {
        let own = self.sampler.samples().enumerate();
        let own = own.filter(|(at, sample)| self.holders.has(group, *at, sample, memory));
        for (count, (_, sample)) in own.take(if memory == GRAPHS { 0 } else { MOST_BLOCKS }).enumerate() {
            write(count == 0, sample);
        }
    }
}

/// As `stormlog_model` names it; without an allocation.
fn memory_name(out: &mut Line<'_>, memory: u16) {
    struct Write<'o, 'l>(&'o mut Line<'l>);
    impl core::fmt::Write for Write<'_, '_> {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0.push(text.as_bytes());
            Ok(())
        }
    }
    let name = match memory {
        0 => Memory::Host,
        device => Memory::Device(Device {
            kind: (device >> 8) as u8,
            index: (device & 0xff) as u8,
            source: Source::Allocator,
        }),
    };
    let _ = core::fmt::write(&mut Write(out), format_args!("{name}"));
}

fn string(out: &mut Line<'_>, text: &[u8]) {
    out.push(b"\"");
    for byte in text {
        match byte {
            b'"' | b'\\' => out.push(&[b'\\', *byte]),
            0..0x20 => out.push(b"?"),
            _ => out.push(&[*byte]),
        };
    }
    out.push(b"\"");
}

/// Puts the text into the file of that name; an error number of the system where it cannot.
pub fn store(path: &CStr, draft: &CStr, text: &[u8]) -> Result<(), i32> {
    const FLAGS: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: terminated paths, a buffer as long as is passed; the descriptor is ours.
    unsafe {
        libc::unlink(draft.as_ptr());
        let file = libc::open(draft.as_ptr(), FLAGS, 0o600);
        if file < 0 {
            return Err(crate::libc_symbols::errno());
        }
        share_with_group(file, path);
        let mut left = text;
        while !left.is_empty() {
            let written = libc::write(file, left.as_ptr().cast(), left.len());
            if written <= 0 {
                let error = crate::libc_symbols::errno();
                libc::close(file);
                libc::unlink(draft.as_ptr());
                return Err(error.max(1));
            }
            left = &left[written as usize..];
        }
        libc::close(file);
        if libc::rename(draft.as_ptr(), path.as_ptr()) != 0 {
            return Err(crate::libc_symbols::errno());
        }
    }
    Ok(())
}

/// In a run that is shared with a group, which the directory says, the group may read the file.
///
/// # Safety
/// `file` is ours.
unsafe fn share_with_group(file: i32, path: &CStr) {
    let mut directory = [0_u8; 4096];
    let bytes = path.to_bytes();
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'/').filter(|end| *end < directory.len()) else {
        return;
    };
    directory[..end].copy_from_slice(&bytes[..end]);
    // SAFETY: `directory` ends with a zero byte because `end` is below its length; all zeroes is a valid `stat`; the caller guarantees that it owns `file`.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        if libc::stat(directory.as_ptr().cast(), &raw mut status) == 0 && status.st_mode & 0o2000 != 0 {
            libc::fchmod(file, 0o640);
        }
    }
}
