//! A heap's state as bytes, for captures that keep no records. Must refuse bytes that contradict themselves.

use stormlog_capture::wire::{Put, Take};

use crate::blocks::Blocks;
use crate::code_end::CodeEnd;
use crate::curve::Point;
use crate::mappings::Mapping;
use crate::state::{Amount, Block, Failure, Site, SiteKey, State, Stream, Watch};
use crate::tree::{Code, Module, Step};

/// Version of these bytes.
const VERSION: u64 = 1;

/// Writes everything down.
pub(crate) fn save(state: &State, streams: &[Stream]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put(VERSION);
    save_tree(&mut out, state);
    out.put(state.sites.len() as u64);
    for site in &state.sites {
        put_key(&mut out, site.key);
        for amount in [site.now, site.total, site.temporary, site.peak] {
            put_amount(&mut out, amount);
        }
        out.put(u64::from(site.epoch));
    }
    out.put(state.blocks.len() as u64);
    // In order, neighbours differ little, and the bytes pack well.
    let mut sorted: Vec<_> = state.blocks.iter().collect();
    sorted.sort_unstable_by_key(|(address, _)| *address);
    let mut last = 0;
    for (address, block) in sorted {
        out.put(address - last);
        last = address;
        put_block(&mut out, block);
    }
    out.put(state.mappings.ranges.len() as u64);
    for (start, mapping) in &state.mappings.ranges {
        for value in [*start, mapping.end, u64::from(mapping.site), mapping.count, mapping.bytes] {
            out.put(value);
        }
        out.push(u8::from(mapping.in_span));
    }
    save_scalars(&mut out, state);
    out.put(streams.len() as u64);
    for stream in streams {
        save_stream(&mut out, stream);
    }
    save_code_end(&mut out, state);
    out
}

/// Behind everything else, where earlier releases have nothing and look at nothing.
fn save_code_end(out: &mut Vec<u8>, state: &State) {
    let Some(end) = &state.code_end else { return };
    out.put(end.time_us);
    put_amount(out, end.held);
    out.put(end.allocated);
    out.put(end.sites.len() as u64);
    end.sites.iter().for_each(|amount| put_amount(out, *amount));
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
            Step::Truncated => (3, 0, 0, false),
        };
        out.push(tag << 1 | u8::from(flag));
        out.put(one);
        out.put(two);
    }
}

fn save_scalars(out: &mut Vec<u8>, state: &State) {
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
    put_amount(out, state.level.now());
    put_amount(out, state.peak);
    out.put(state.peak_time_us);
    out.put(u64::from(state.epoch));
    out.push(u8::from(state.rising));
    for value in [
        state.time_us,
        state.level.tick_max,
        state.failed,
        state.unknown_frees,
        state.forced,
        state.variance.to_bits(),
    ] {
        out.put(value);
    }
    out.put(state.curve.width_us);
    out.put(state.curve.points.len() as u64);
    for point in &state.curve.points {
        for value in [point.time_us, point.bytes, point.max_bytes] {
            out.put(value);
        }
    }
    for amount in state.sizes {
        put_amount(out, amount);
    }
    out.put(state.failures.len() as u64);
    for failure in &state.failures {
        put_key(out, failure.site);
        for value in [u64::from(failure.errno), failure.bytes, failure.time_us] {
            out.put(value);
        }
        out.push(u8::from(failure.limits.is_some()));
        for limit in failure.limits.unwrap_or_default() {
            out.put(limit);
        }
    }
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

fn put_amount(out: &mut Vec<u8>, amount: Amount) {
    out.put(amount.bytes);
    out.put(amount.count);
}

fn put_key(out: &mut Vec<u8>, key: SiteKey) {
    out.put(u64::from(key.python));
    out.put(u64::from(key.native));
    out.put(u64::from(key.thread));
    out.push(key.kind);
}

fn put_block(out: &mut Vec<u8>, block: &Block) {
    out.put(block.size);
    out.put(u64::from(block.site));
    out.put(u64::from(block.born));
}

/// Reads what [`save`] wrote. `None`: it did not.
pub(crate) fn load(bytes: &[u8], watch: Watch, sample_bytes: u64) -> Option<(State, Vec<Stream>)> {
    let mut take = Take::new(bytes);
    if take.number()? != VERSION {
        return None;
    }
    let mut state = State::new(watch, sample_bytes);
    load_tree(&mut take, &mut state)?;
    for _ in 0..take.number()? {
        let key = take_key(&mut take)?;
        let mut amount = || take_amount(&mut take);
        let (now, total, temporary, peak) = (amount()?, amount()?, amount()?, amount()?);
        let site = state.site_of(key) as usize;
        state.sites[site] = Site { key, now, total, temporary, peak, epoch: take.small()? };
    }
    let sites = state.sites.len();
    state.blocks = take_blocks(&mut take, sites)?;
    for _ in 0..take.number()? {
        let start = take.number()?;
        let (end, site, count, bytes) = (take.number()?, take.small()?, take.number()?, take.number()?);
        if end <= start || site as usize >= sites {
            return None;
        }
        state
            .mappings
            .insert(start, Mapping { end, site, count, bytes, in_span: take.byte()? == 1, step: 0 });
    }
    load_scalars(&mut take, &mut state)?;
    let mut streams = Vec::new();
    for _ in 0..take.number()? {
        streams.push(take_stream(&mut take, &state)?);
    }
    state.code_end = take_code_end(&mut take, sites)?;
    state.folded_us = Some(state.time_us);
    Some((state, streams))
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
                _ => return None,
            },
        ));
    }
    state.tree.restore(nodes).then_some(())
}

fn load_scalars(take: &mut Take<'_>, state: &mut State) -> Option<()> {
    for _ in 0..take.number()? {
        state.threads.push(take.number()?);
    }
    for _ in 0..take.number()? {
        let thread = take.number()?;
        state.thread_names.insert(thread, take_text(take)?);
    }
    state.python = Some(take_text(take)?).filter(|text| !text.is_empty());
    state.level.set(take_amount(take)?);
    state.peak = take_amount(take)?;
    state.peak_time_us = take.number()?;
    state.epoch = take.small()?;
    state.rising = take.byte()? == 1;
    state.time_us = take.number()?;
    state.level.tick_max = take.number()?;
    state.failed = take.number()?;
    state.unknown_frees = take.number()?;
    state.forced = take.number()?;
    state.variance = f64::from_bits(take.number()?);
    state.curve.width_us = take.number()?;
    for _ in 0..take.number()? {
        let (time_us, bytes, max_bytes) = (take.number()?, take.number()?, take.number()?);
        state.curve.points.push(Point { time_us, bytes, max_bytes, max_change: 0 });
    }
    for index in 0..state.sizes.len() {
        state.sizes[index] = take_amount(take)?;
    }
    for _ in 0..take.number()? {
        let site = take_key(take)?;
        let (errno, bytes, time_us) = (take.small()?, take.number()?, take.number()?);
        let is_known = take.byte()? == 1;
        let limits = [take.number()?, take.number()?, take.number()?];
        state.failures.push(Failure { site, errno, bytes, time_us, limits: is_known.then_some(limits) });
    }
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
        stream.taken = Some((address, take_block(take, state.sites.len())?));
    }
    stream.parts = take.bytes()?.to_vec();
    Some(stream)
}

/// `Some(None)`: there is none.
fn take_code_end(take: &mut Take<'_>, sites: usize) -> Option<Option<CodeEnd>> {
    if take.is_empty() {
        return Some(None);
    }
    let (time_us, held, allocated) = (take.number()?, take_amount(take)?, take.number()?);
    let count = usize::try_from(take.number()?).ok().filter(|count| *count <= sites)?;
    let sites = (0..count).map(|_| take_amount(take)).collect::<Option<Vec<Amount>>>()?;
    Some(Some(CodeEnd { time_us, change: 0, held, allocated, sites }))
}

fn take_blocks(take: &mut Take<'_>, sites: usize) -> Option<Blocks> {
    let count = take.number()?;
    let mut blocks = Blocks::default();
    blocks.reserve(take.plausible(count) / 4);
    let mut address = 0u64;
    for _ in 0..count {
        address = address.checked_add(take.number()?)?;
        blocks.insert(address, take_block(take, sites)?);
    }
    Some(blocks)
}

fn take_block(take: &mut Take<'_>, sites: usize) -> Option<Block> {
    let (size, site, born) = (take.number()?, take.small()?, take.small()?);
    ((site as usize) < sites).then_some(Block { size, site, born })
}

fn take_amount(take: &mut Take<'_>) -> Option<Amount> {
    Some(Amount { bytes: take.number()?, count: take.number()? })
}

fn take_key(take: &mut Take<'_>) -> Option<SiteKey> {
    Some(SiteKey { python: take.small()?, native: take.small()?, thread: take.small()?, kind: take.byte()? })
}

fn take_text(take: &mut Take<'_>) -> Option<String> {
    Some(String::from_utf8_lossy(take.bytes()?).into_owned())
}
