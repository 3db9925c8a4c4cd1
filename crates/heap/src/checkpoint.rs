//! A program's memory as bytes, for captures that keep no records. Must refuse bytes that contradict themselves.

use stormlog_capture::record::MAX_DEVICES;
use stormlog_capture::wire::{Put, Take};
use stormlog_model::memory::{Device, Memory, Source};

use crate::checkpoint_ledger::{
    put_block, put_blocks, put_code_end, put_curve, put_figures, put_sites, put_steps, take_block,
    take_blocks, take_code_end, take_curve, take_figures, take_sites, take_steps,
};
use crate::devices::Reserved;
use crate::ledger::{Ledger, OlderMemory};
use crate::mappings::Mapping;
use crate::read_options::HeapReadOptions;
use crate::site_history::SiteHistory;
use crate::state::State;
use crate::stream::Stream;
use crate::tree::{Code, Module, Step};

/// Version of these bytes.
const VERSION: u64 = 1;
/// The version of a state that has more than the host's memory, which earlier releases know nothing of.
const WITH_DEVICES: u64 = 2;
/// The version of a state that has what sites held over time, too.
const WITH_HISTORY: u64 = 3;

/// Writes everything down.
pub(crate) fn save(state: &State, streams: &[Stream]) -> Vec<u8> {
    let mut out = Vec::new();
    let has_history = state.ledgers().any(|ledger| ledger.history.is_some());
    let has_devices = has_history || !state.devices.list.is_empty() || state.devices.reports.is_some();
    out.put(match (has_history, has_devices) {
        (true, _) => WITH_HISTORY,
        (false, true) => WITH_DEVICES,
        (false, false) => VERSION,
    });
    save_tree(&mut out, state);
    put_sites(&mut out, &state.host);
    put_blocks(&mut out, &state.host.blocks);
    save_mappings(&mut out, &state.host);
    save_names(&mut out, state);
    put_figures(&mut out, &state.host);
    out.put(streams.len() as u64);
    for stream in streams {
        save_stream(&mut out, stream);
    }
    if has_devices {
        save_devices(&mut out, state, streams);
    }
    if has_history {
        for ledger in state.ledgers() {
            out.push(u8::from(ledger.history.is_some()));
            if let Some(history) = &ledger.history {
                history.put(&mut out);
            }
        }
    }
    // Behind everything else: the first releases have nothing there and look at nothing.
    put_code_end(&mut out, &state.host);
    out
}

fn save_devices(out: &mut Vec<u8>, state: &State, streams: &[Stream]) {
    out.push(match state.devices.reports {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    });
    for stream in streams {
        out.put(u64::from(stream.device_allocations));
        let (device, allocated) = stream.totals.unwrap_or((u8::MAX, 0));
        out.push(device);
        out.put(allocated);
    }
    out.put(state.devices.list.len() as u64);
    for device in &state.devices.list {
        let (kind, index, source) = match device.memory {
            Memory::Device(Device { kind, index, source }) => {
                (kind, index, u8::from(source == Source::Driver))
            }
            Memory::Host => (0, 0, 0),
        };
        out.extend([device.number, kind, index, source]);
        out.push(u8::from(device.before.is_some()));
        out.put(device.before.unwrap_or(0));
        put_sites(out, &device.ledger);
        put_blocks(out, &device.ledger.blocks);
        put_figures(out, &device.ledger);
        let before = device.ledger.before;
        out.push(u8::from(before.is_some()));
        if let Some(OlderMemory { site, bytes, .. }) = before {
            out.put(u64::from(site));
            out.put(bytes);
        }
        let Reserved { now, peak, tick_max, time_us, curve } = &device.reserved;
        for value in [*now, *peak, *tick_max, *time_us] {
            out.put(value);
        }
        put_curve(out, curve);
        out.push(u8::from(device.ledger.code_end.is_some()));
        put_code_end(out, &device.ledger);
        put_steps(out, &device.steps);
    }
}

fn save_mappings(out: &mut Vec<u8>, ledger: &Ledger) {
    out.put(ledger.mappings.ranges.len() as u64);
    for (start, mapping) in &ledger.mappings.ranges {
        for value in [*start, mapping.end, u64::from(mapping.site), mapping.count, mapping.bytes] {
            out.put(value);
        }
        out.push(u8::from(mapping.in_span));
    }
}

fn save_tree(out: &mut Vec<u8>, state: &State) {
    let tree = &state.tree;
    out.put(tree.codes.len() as u64);
    for code in &tree.codes {
        out.put_bytes(code.name.as_bytes());
        out.put_bytes(code.file.as_bytes());
        out.put(u64::from(code.first_line));
        out.put_bytes(&code.table);
    }
    out.put(tree.code_by_id.len() as u64);
    for (id, slot) in &tree.code_by_id {
        out.put(*id);
        out.put(u64::from(*slot));
    }
    out.put(tree.modules.len() as u64);
    for module in &tree.modules {
        out.put(module.base);
        out.put(module.segments.len() as u64);
        for (start, end) in &module.segments {
            out.put(*start);
            out.put(*end);
        }
        out.put_bytes(&module.build_id);
        out.put_bytes(module.path.as_bytes());
    }
    out.put(tree.loaded.len() as u64);
    for (start, (end, slot)) in &tree.loaded {
        out.put(*start);
        out.put(*end);
        out.put(u64::from(*slot));
    }
    out.put(tree.nodes.len() as u64);
    for (parent, step) in &tree.nodes {
        out.put(u64::from(*parent));
        let (tag, one, two, flag) = match *step {
            Step::Python { code, instruction, is_entry } => {
                (0, u64::from(code), u64::from(instruction), is_entry)
            }
            Step::Line { code, line, is_entry } => (1, u64::from(code), u64::from(line), is_entry),
            Step::Native { address, module } => (2, address, u64::from(module), false),
            // Imported captures are not folded.
            Step::Truncated | Step::Named { .. } => (3, 0, 0, false),
            Step::Mark { mark } => (4, u64::from(mark), 0, false),
        };
        out.push(tag << 1 | u8::from(flag));
        out.put(one);
        out.put(two);
    }
}

fn save_names(out: &mut Vec<u8>, state: &State) {
    out.put(state.threads.len() as u64);
    for thread in &state.threads {
        out.put(*thread);
    }
    out.put(state.thread_names.len() as u64);
    for (thread, name) in &state.thread_names {
        out.put(*thread);
        out.put_bytes(name.as_bytes());
    }
    out.put_bytes(state.python.as_deref().unwrap_or_default().as_bytes());
}

fn save_stream(out: &mut Vec<u8>, stream: &Stream) {
    let (thread, allocations) = (u64::from(stream.thread), u64::from(stream.allocations));
    for value in [u64::from(stream.id), stream.sequence, stream.done, stream.time_us, thread, allocations] {
        out.put(value);
    }
    out.put(stream.nodes.len() as u64);
    for (own, node) in stream.nodes.iter() {
        out.put(u64::from(own));
        out.put(u64::from(node));
    }
    out.push(u8::from(stream.taken.is_some()));
    if let Some((address, block)) = &stream.taken {
        out.put(*address);
        put_block(out, block);
    }
    out.put_bytes(&stream.parts);
}

/// Reads what [`save`] wrote. `None`: it did not.
pub(crate) fn load(
    bytes: &[u8],
    options: HeapReadOptions,
    sample_bytes: u64,
) -> Option<(State, Vec<Stream>)> {
    let mut take = Take::new(bytes);
    let version = take.number()?;
    if !matches!(version, VERSION | WITH_DEVICES | WITH_HISTORY) {
        return None;
    }
    let mut state = State::new(options, sample_bytes);
    load_tree(&mut take, &mut state)?;
    take_sites(&mut take, &mut state.host)?;
    let sites = state.host.sites.len();
    state.host.blocks = take_blocks(&mut take, sites)?;
    load_mappings(&mut take, &mut state.host)?;
    load_names(&mut take, &mut state)?;
    take_figures(&mut take, &mut state.host)?;
    state.time_us = state.host.time_us;
    let mut streams = Vec::new();
    for _ in 0..take.number()? {
        streams.push(take_stream(&mut take, &state)?);
    }
    if version >= WITH_DEVICES {
        load_devices(&mut take, &mut state, &mut streams)?;
    }
    // Where the folded part has none, the curve of the rest would begin as growth.
    for ledger in state.ledgers_mut() {
        let has_one = version == WITH_HISTORY && take.byte()? == 1;
        let sites = ledger.sites.len();
        ledger.history = if has_one { Some(SiteHistory::take(&mut take, sites)?) } else { None };
    }
    if !take.is_empty() {
        state.host.code_end = Some(take_code_end(&mut take, sites)?);
    }
    state.folded_us = Some(state.time_us);
    Some((state, streams))
}

fn load_devices(take: &mut Take<'_>, state: &mut State, streams: &mut [Stream]) -> Option<()> {
    state.devices.reports = match take.byte()? {
        0 => None,
        word => Some(word == 2),
    };
    for stream in streams {
        stream.device_allocations = take.small()?;
        let (device, allocated) = (take.byte()?, take.number()?);
        stream.totals = (device < MAX_DEVICES).then_some((device, allocated));
    }
    for _ in 0..take.number()? {
        let number = take.byte().filter(|number| *number < MAX_DEVICES)?;
        let (kind, index) = (take.byte()?, take.byte()?);
        let source = if take.byte()? == 1 { Source::Driver } else { Source::Allocator };
        let State { devices, options, time_us, .. } = state;
        let device = devices.numbered(number, options, *time_us);
        device.define(Memory::Device(Device { kind, index, source }), options);
        let (knows_before, before) = (take.byte()? == 1, take.number()?);
        device.before = knows_before.then_some(before);
        take_sites(take, &mut device.ledger)?;
        let sites = device.ledger.sites.len();
        device.ledger.blocks = take_blocks(take, sites)?;
        take_figures(take, &mut device.ledger)?;
        if take.byte()? == 1 {
            let (site, bytes) = (take.small().filter(|site| (*site as usize) < sites)?, take.number()?);
            device.ledger.before = Some(OlderMemory { site, step: 0, bytes });
        }
        let reserved = &mut device.reserved;
        (reserved.now, reserved.peak) = (take.number()?, take.number()?);
        (reserved.tick_max, reserved.time_us) = (take.number()?, take.number()?);
        take_curve(take, &mut reserved.curve)?;
        if take.byte()? == 1 {
            device.ledger.code_end = Some(take_code_end(take, sites)?);
        }
        device.steps = take_steps(take)?;
    }
    Some(())
}

fn load_mappings(take: &mut Take<'_>, ledger: &mut Ledger) -> Option<()> {
    for _ in 0..take.number()? {
        let start = take.number()?;
        let (end, site, count, bytes) = (take.number()?, take.small()?, take.number()?, take.number()?);
        if end <= start || site as usize >= ledger.sites.len() {
            return None;
        }
        let in_span = take.byte()? == 1;
        ledger.mappings.insert(start, Mapping { end, site, count, bytes, in_span, step: 0 });
    }
    Some(())
}

fn load_tree(take: &mut Take<'_>, state: &mut State) -> Option<()> {
    for _ in 0..take.number()? {
        let (name, file) = (take_text(take)?, take_text(take)?);
        state.tree.codes.push(Code { name, file, first_line: take.small()?, table: take.bytes()?.to_vec() });
    }
    let codes = state.tree.codes.len() as u32;
    for _ in 0..take.number()? {
        let (id, slot) = (take.number()?, take.small()?);
        state.tree.code_by_id.insert(id, (slot < codes).then_some(slot)?);
    }
    for _ in 0..take.number()? {
        let base = take.number()?;
        let mut segments = Vec::new();
        for _ in 0..take.number()? {
            segments.push((take.number()?, take.number()?));
        }
        let build_id = take.bytes()?.to_vec();
        state.tree.modules.push(Module { base, segments, build_id, path: take_text(take)? });
    }
    for _ in 0..take.number()? {
        let start = take.number()?;
        state.tree.loaded.insert(start, (take.number()?, take.small()?));
    }
    let count = take.number()?;
    let mut nodes = Vec::with_capacity(take.plausible(count));
    for _ in 0..count {
        let parent = take.small()?;
        let tag = take.byte()?;
        let (one, two, is_entry) = (take.number()?, take.small()?, tag & 1 == 1);
        let code = || u32::try_from(one).ok().filter(|slot| *slot < codes);
        nodes.push((
            parent,
            match tag >> 1 {
                0 => Step::Python { code: code()?, instruction: two, is_entry },
                1 => Step::Line { code: code()?, line: two, is_entry },
                2 => Step::Native { address: one, module: two },
                3 => Step::Truncated,
                4 => Step::Mark { mark: u32::try_from(one).ok()? },
                _ => return None,
            },
        ));
    }
    state.tree.restore(nodes).then_some(())
}

fn load_names(take: &mut Take<'_>, state: &mut State) -> Option<()> {
    for _ in 0..take.number()? {
        state.threads.push(take.number()?);
    }
    for _ in 0..take.number()? {
        let thread = take.number()?;
        state.thread_names.insert(thread, take_text(take)?);
    }
    state.python = Some(take_text(take)?).filter(|text| !text.is_empty());
    Some(())
}

fn take_stream(take: &mut Take<'_>, state: &State) -> Option<Stream> {
    let mut stream = Stream::new(take.small()?);
    stream.sequence = take.number()?;
    stream.done = take.number()?;
    stream.time_us = take.number()?;
    stream.thread = take.small()?;
    stream.allocations = take.small()?;
    for _ in 0..take.number()? {
        let (own, node) = (take.small()?, take.small()?);
        if node as usize >= state.tree.nodes.len() {
            return None;
        }
        stream.nodes.insert(own, node);
    }
    if take.byte()? == 1 {
        let address = take.number()?;
        stream.taken = Some((address, take_block(take, state.host.sites.len())?));
    }
    stream.parts = take.bytes()?.to_vec();
    Some(stream)
}

fn take_text(take: &mut Take<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(take.bytes()?).into_owned())
}
