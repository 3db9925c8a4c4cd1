//! One memory as bytes, a part of a checkpoint. Must refuse bytes that contradict themselves.

use stormlog_capture::wire::{Put, Take};

use crate::blocks::Blocks;
use crate::code_end::CodeEnd;
use crate::curve::{Curve, Point};
use crate::ledger::{Block, Failure, Ledger, Site, SiteKey};
use crate::level::Amount;
use crate::step_clock::{MOST_STEPS, StepClock};

pub(crate) fn put_sites(out: &mut Vec<u8>, ledger: &Ledger) {
    out.put(ledger.sites.len() as u64);
    for site in &ledger.sites {
        put_key(out, site.key);
        for amount in [site.now, site.total, site.temporary, site.peak] {
            put_amount(out, amount);
        }
        out.put(u64::from(site.epoch));
    }
}

pub(crate) fn put_blocks(out: &mut Vec<u8>, blocks: &Blocks) {
    out.put(blocks.len() as u64);
    // In order, neighbours differ little, and the bytes pack well.
    let mut sorted: Vec<_> = blocks.iter().collect();
    sorted.sort_unstable_by_key(|(address, _)| *address);
    let mut last = 0;
    for (address, block) in sorted {
        out.put(address - last);
        last = address;
        put_block(out, block);
    }
}

/// What changes with nearly every record.
pub(crate) fn put_figures(out: &mut Vec<u8>, ledger: &Ledger) {
    put_amount(out, ledger.level.now());
    put_amount(out, ledger.peak);
    out.put(ledger.peak_time_us);
    out.put(u64::from(ledger.epoch));
    out.push(u8::from(ledger.rising));
    for value in [
        ledger.time_us,
        ledger.level.tick_max,
        ledger.failed,
        ledger.unknown_frees,
        ledger.forced,
        ledger.variance.to_bits(),
    ] {
        out.put(value);
    }
    put_curve(out, &ledger.curve);
    for amount in ledger.sizes {
        put_amount(out, amount);
    }
    out.put(ledger.failures.len() as u64);
    for failure in &ledger.failures {
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

pub(crate) fn put_curve(out: &mut Vec<u8>, curve: &Curve) {
    out.put(curve.width_us);
    out.put(curve.points.len() as u64);
    for point in &curve.points {
        for value in [point.time_us, point.bytes, point.max_bytes] {
            out.put(value);
        }
    }
}

/// Nothing where the moment is not known.
pub(crate) fn put_code_end(out: &mut Vec<u8>, ledger: &Ledger) {
    let Some(end) = &ledger.code_end else { return };
    out.put(end.time_us);
    put_amount(out, end.held);
    out.put(end.allocated);
    out.put(end.sites.len() as u64);
    end.sites.iter().for_each(|amount| put_amount(out, *amount));
}

pub(crate) fn put_steps(out: &mut Vec<u8>, steps: &StepClock) {
    out.put(steps.count);
    out.put(steps.backward_thread.map_or(0, |thread| u64::from(thread) + 1));
    out.put(steps.stride);
    out.put(steps.points.len() as u64);
    for (step, bytes) in &steps.points {
        out.put(*step);
        out.put(*bytes);
    }
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

pub(crate) fn put_block(out: &mut Vec<u8>, block: &Block) {
    out.put(block.size);
    out.put(u64::from(block.site));
    out.put(u64::from(block.born));
}

pub(crate) fn take_sites(take: &mut Take<'_>, ledger: &mut Ledger) -> Option<()> {
    for _ in 0..take.number()? {
        let key = take_key(take)?;
        let mut amount = || take_amount(take);
        let (now, total, temporary, peak) = (amount()?, amount()?, amount()?, amount()?);
        let site = ledger.site_of(key) as usize;
        ledger.sites[site] = Site { key, now, total, temporary, peak, epoch: take.small()? };
    }
    Some(())
}

pub(crate) fn take_figures(take: &mut Take<'_>, ledger: &mut Ledger) -> Option<()> {
    ledger.level.set(take_amount(take)?);
    ledger.peak = take_amount(take)?;
    ledger.peak_time_us = take.number()?;
    ledger.epoch = take.small()?;
    ledger.rising = take.byte()? == 1;
    ledger.time_us = take.number()?;
    ledger.level.tick_max = take.number()?;
    ledger.failed = take.number()?;
    ledger.unknown_frees = take.number()?;
    ledger.forced = take.number()?;
    ledger.variance = f64::from_bits(take.number()?);
    take_curve(take, &mut ledger.curve)?;
    for index in 0..ledger.sizes.len() {
        ledger.sizes[index] = take_amount(take)?;
    }
    for _ in 0..take.number()? {
        let site = take_key(take)?;
        let (errno, bytes, time_us) = (take.small()?, take.number()?, take.number()?);
        let is_known = take.byte()? == 1;
        let limits = [take.number()?, take.number()?, take.number()?];
        ledger.failures.push(Failure { site, errno, bytes, time_us, limits: is_known.then_some(limits) });
    }
    Some(())
}

pub(crate) fn take_curve(take: &mut Take<'_>, curve: &mut Curve) -> Option<()> {
    curve.width_us = take.number()?;
    for _ in 0..take.number()? {
        let (time_us, bytes, max_bytes) = (take.number()?, take.number()?, take.number()?);
        curve.points.push(Point { time_us, bytes, max_bytes, max_change: 0 });
    }
    Some(())
}

pub(crate) fn take_code_end(take: &mut Take<'_>, sites: usize) -> Option<CodeEnd> {
    let (time_us, held, allocated) = (take.number()?, take_amount(take)?, take.number()?);
    let count = usize::try_from(take.number()?).ok().filter(|count| *count <= sites)?;
    let sites = (0..count).map(|_| take_amount(take)).collect::<Option<Vec<Amount>>>()?;
    Some(CodeEnd { time_us, change: 0, held, allocated, sites })
}

pub(crate) fn take_blocks(take: &mut Take<'_>, sites: usize) -> Option<Blocks> {
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

pub(crate) fn take_block(take: &mut Take<'_>, sites: usize) -> Option<Block> {
    let (size, site, born) = (take.number()?, take.small()?, take.small()?);
    ((site as usize) < sites).then_some(Block { size, site, born })
}

pub(crate) fn take_steps(take: &mut Take<'_>) -> Option<StepClock> {
    let mut steps = StepClock::default();
    steps.count = take.number()?;
    steps.backward_thread = take.small()?.checked_sub(1);
    steps.stride = take.number()?;
    let mut last = 0;
    let count = take.number()?;
    // To find growth each pair is looked at.
    for _ in 0..Some(count).filter(|count| *count <= MOST_STEPS as u64)? {
        let (step, bytes) = (take.number()?, take.number()?);
        last = Some(step).filter(|step| *step > last)?;
        steps.points.push((step, bytes));
    }
    Some(steps)
}

fn take_amount(take: &mut Take<'_>) -> Option<Amount> {
    Some(Amount { bytes: take.number()?, count: take.number()? })
}

fn take_key(take: &mut Take<'_>) -> Option<SiteKey> {
    Some(SiteKey { python: take.small()?, native: take.small()?, thread: take.small()?, kind: take.byte()? })
}
