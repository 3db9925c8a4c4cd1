//! A program's memory as the records so far leave it: one ledger for the host and one for each device, and what they share: stacks, threads,
//! names, the clock. Must take any records.

use rustc_hash::FxHashMap;
use stormlog_capture::op::{Op, PAIRS, is_allocation};
use stormlog_capture::record::{definition, kind};

use crate::define;
use crate::devices::{DeviceLedger, Devices};
use crate::ledger::Ledger;
use crate::read_options::HeapReadOptions;
use crate::stream::Stream;
use crate::tree::{ROOT, Step, Tree};

/// Everything but the streams.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) options: HeapReadOptions,
    pub(crate) tree: Tree,
    pub(crate) threads: Vec<u64>,
    pub(crate) thread_names: FxHashMap<u64, String>,
    pub(crate) python: Option<String>,
    pub(crate) time_us: u64,
    pub(crate) host: Ledger,
    pub(crate) devices: Devices,
    /// Records up to this time were folded: nothing is known of single moments before.
    pub(crate) folded_us: Option<u64>,
}

impl State {
    pub(crate) fn new(options: HeapReadOptions, sample_bytes: u64) -> Self {
        State {
            host: Ledger::new(&options, &options.moments, sample_bytes, 0),
            options,
            tree: Tree::default(),
            threads: Vec::new(),
            thread_names: FxHashMap::default(),
            python: None,
            time_us: 0,
            devices: Devices::default(),
            folded_us: None,
        }
    }

    pub(crate) fn thread(&mut self, id: u64) -> u32 {
        let known = self.threads.iter().position(|thread| *thread == id);
        known.unwrap_or_else(|| {
            self.threads.push(id);
            self.threads.len() - 1
        }) as u32
    }

    /// The clock of the whole program moves on; all records before it are in.
    pub(crate) fn advance(&mut self, time_us: u64) {
        if time_us <= self.time_us {
            return;
        }
        self.time_us = time_us;
        self.host.advance(time_us);
        self.devices.advance(time_us);
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self, streams: &mut [Stream]) {
        for stream in streams.iter_mut() {
            // Killed within `realloc`: the block was handed over and nothing says that it went.
            if let Some((address, block)) = stream.taken.take() {
                self.host.put_back(address, block);
            }
        }
        self.host.end();
        self.devices.end();
        self.tree.close();
    }

    /// The program's own code has ended.
    pub(crate) fn code_has_ended(&mut self) {
        self.host.code_has_ended();
        self.devices.list.iter_mut().for_each(DeviceLedger::code_has_ended);
    }

    /// Is there a block at this address, of the host or of a device?
    pub(crate) fn is_live(&self, address: u64) -> bool {
        self.host.blocks.contains(address) || self.devices.is_live(address)
    }

    /// Takes in one record that concerns memory. False: it is about a mapping, must wait for another stream, and may.
    #[inline]
    pub(crate) fn apply(&mut self, stream: &mut Stream, op: &Op, may_wait: bool) -> bool {
        match op.kind {
            kind::FREE | kind::PY_FREE | kind::REALLOC_TAKE => {
                if self.host.is_simple() {
                    self.host.free::<true>(stream, op);
                } else {
                    self.host.free::<false>(stream, op);
                }
                true
            }
            kind::MUNMAP => self.host.unmap(op, may_wait),
            kind::MMAP | kind::MREMAP | kind::BRK => self.host.map(stream, op, may_wait),
            allocator if is_allocation(allocator) => {
                if self.host.is_simple() {
                    self.host.allocate::<true>(stream, op);
                } else {
                    self.host.allocate::<false>(stream, op);
                }
                true
            }
            kind::REALLOC_UNDO => {
                if let Some((address, block)) = stream.taken.take() {
                    self.host.put_back(address, block);
                }
                true
            }
            kind::FAILED => {
                let limits = stream.limits.take();
                let site = stream.key(op.python, op.native, (op.address & 0xff) as u8);
                self.host.fail(site, (op.address >> 8) as u32, op.size, limits);
                true
            }
            kind::DEVICE_ALLOCATION | kind::DEVICE_FREE => {
                self.on_device(stream, op);
                true
            }
            PAIRS => {
                self.host.pairs(stream, op);
                true
            }
            _ => true,
        }
    }

    /// Takes in a node or a definition. `payload` is the definition's own part.
    pub(crate) fn learn(&mut self, stream: &mut Stream, op: &Op, payload: &[u8]) {
        let parent = stream.nodes.get(op.native).unwrap_or(ROOT);
        let step = match op.kind {
            kind::NODE_PYTHON => Step::Python {
                code: self.tree.code(op.address),
                instruction: (op.size >> 1) as u32,
                is_entry: op.size & 1 == 1,
            },
            kind::NODE_LINE => Step::Line {
                code: self.tree.code(op.address),
                line: (op.size >> 1) as u32,
                is_entry: op.size & 1 == 1,
            },
            kind::NODE_NATIVE => {
                Step::Native { address: op.address, module: self.tree.module_at(op.address) }
            }
            kind::NODE_TRUNCATED => Step::Truncated,
            kind::NODE_MARK => Step::Mark { mark: u32::try_from(op.address).unwrap_or(0) },
            _ => {
                if op.size == definition::LIMITS {
                    stream.limits = define::limits(payload);
                } else if let Some(whole) = define::join(&mut stream.parts, payload, op.native == 1)
                    && !self.define_device(stream, op.size, op.address, &whole)
                {
                    define::define(self, op.size, op.address, &whole);
                }
                return;
            }
        };
        let node = self.tree.node(parent, step);
        stream.nodes.insert(op.python, node);
    }
}
