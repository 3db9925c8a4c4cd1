//! One memory as the records so far leave it: living blocks, what each allocation site holds, the peak. One record at a time.
//!
//! The peak's composition costs nothing per record: a site's figures at the peak are written down only when it is touched for the first
//! time after the heap fell from one. Must give the same result for the same records, whatever the chunks they came in.

use stormlog_capture::op::Op;
use stormlog_capture::record::kind;

use crate::blocks::Blocks;
use crate::code_end::CodeEnd;
use crate::curve::{Curve, Point};
use crate::failure::AtFailure;
use crate::ids::Ids;
use crate::level::{Amount, Level};
use crate::lifetimes::Lives;
use crate::locate::Locate;
use crate::mappings::{Mapping, Mappings, end_of};
use crate::read_options::HeapReadOptions;
use crate::sample::Weights;
use crate::site_history::SiteHistory;
use crate::stream::{REMEMBERED, Stream, StreamSite};

/// What allocated: stacks, thread and allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SiteKey {
    pub(crate) python: u32,
    pub(crate) native: u32,
    pub(crate) thread: u32,
    pub(crate) kind: u8,
}

#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) key: SiteKey,
    pub(crate) now: Amount,
    pub(crate) total: Amount,
    pub(crate) temporary: Amount,
    pub(crate) peak: Amount,
    pub(crate) epoch: u32,
}

/// A living block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) size: u64,
    pub(crate) site: u32,
    /// The thread's allocations when it was made (or the moments that were past), times 2, plus 1 when that was within the selected span.
    pub(crate) born: u32,
}

/// A request that got no memory.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) site: SiteKey,
    pub(crate) errno: u32,
    pub(crate) bytes: u64,
    pub(crate) time_us: u64,
    /// On the host: limit of the address space, address space in use, resident bytes. On a device: allocated, reserved, all ones.
    pub(crate) limits: Option<[u64; 3]>,
}

/// What is left of the memory that is older than the recording.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OlderMemory {
    pub(crate) site: u32,
    /// Moments that were past when it was first known.
    pub(crate) step: u32,
    pub(crate) bytes: u64,
}

/// Most failed requests kept one by one; a program may retry for ever.
const MAX_FAILURES: usize = 1000;

/// What one memory holds and held.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) weights: Weights,
    pub(crate) sites: Vec<Site>,
    site_ids: Ids,
    /// By address, whichever allocator they came from: `free` may end what CPython's allocator began, and the other way round.
    pub(crate) blocks: Blocks,
    pub(crate) mappings: Mappings,
    pub(crate) before: Option<OlderMemory>,
    pub(crate) level: Level,
    pub(crate) peak: Amount,
    pub(crate) peak_time_us: u64,
    pub(crate) epoch: u32,
    pub(crate) rising: bool,
    pub(crate) time_us: u64,
    pub(crate) lives: Option<Lives>,
    next_moment: u64,
    pub(crate) curve: Curve,
    /// Requests by bits of their size.
    pub(crate) sizes: [Amount; 65],
    pub(crate) failures: Vec<Failure>,
    pub(crate) failed: u64,
    /// The memory at the last of them.
    pub(crate) failure: Option<Box<AtFailure>>,
    pub(crate) unknown_frees: u64,
    pub(crate) forced: u64,
    /// Sum of squares for the standard error of a sampled capture.
    pub(crate) variance: f64,
    at_us: Option<u64>,
    span_us: Option<(u64, u64)>,
    temporary_threshold: u32,
    pub(crate) at: Option<Vec<Amount>>,
    pub(crate) span: Option<Vec<Amount>>,
    pub(crate) span_peak: Option<(u64, u64)>,
    pub(crate) in_span: bool,
    /// The memory when the program's own code had ended.
    pub(crate) code_end: Option<CodeEnd>,
    /// What sites held over time, where records are folded.
    pub(crate) history: Option<SiteHistory>,
    locate: Option<Locate>,
    /// Addresses and their sites, once that moment has come.
    pub(crate) located: Option<Vec<(u64, u32)>>,
}

impl Ledger {
    /// One whose first record comes at `time_us`. `moments`: see [`HeapReadOptions::moments`].
    pub(crate) fn new(options: &HeapReadOptions, moments: &[u64], sample_bytes: u64, time_us: u64) -> Self {
        Ledger {
            weights: Weights::new(sample_bytes),
            curve: Curve::new(options.curve_points),
            in_span: options.span_us.is_some_and(|(from, to)| (from..=to).contains(&time_us)),
            next_moment: moments.first().copied().unwrap_or(u64::MAX),
            lives: (!moments.is_empty()).then(|| Lives::new(moments)),
            at_us: options.at_us,
            span_us: options.span_us,
            temporary_threshold: options.temporary_threshold,
            sites: Vec::new(),
            site_ids: Ids::default(),
            blocks: Blocks::default(),
            mappings: Mappings::default(),
            before: None,
            level: Level::default(),
            peak: Amount::default(),
            peak_time_us: 0,
            epoch: 1,
            rising: false,
            time_us,
            sizes: [Amount::default(); 65],
            failures: Vec::new(),
            failed: 0,
            failure: None,
            unknown_frees: 0,
            forced: 0,
            variance: 0.0,
            at: None,
            span: None,
            span_peak: None,
            code_end: None,
            history: options.keeps_history.then(SiteHistory::default),
            locate: options.locate.clone(),
            located: None,
        }
    }

    /// Whether anything was recorded of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.sites.is_empty() && self.failed == 0
    }

    /// The tick so far.
    fn point(&self) -> Point {
        let Level { bytes, tick_max: max_bytes, tick_max_change: max_change, .. } = self.level;
        Point { time_us: self.time_us, bytes, max_bytes, max_change }
    }

    /// The clock moves on; all records before it are in.
    pub(crate) fn advance(&mut self, time_us: u64) {
        self.curve.push(self.point());
        if self.at.is_none() && self.at_us.is_some_and(|at| time_us > at) {
            self.at = Some(self.snapshot());
        }
        self.locate_at(time_us);
        if let Some(history) = self.history.as_mut().filter(|history| time_us >= history.next_us) {
            history.look(self.time_us, &self.sites);
        }
        if let Some((from, to)) = self.span_us {
            if self.span.is_none() && time_us > to {
                self.span = Some(self.span_snapshot());
                self.in_span = false;
            } else if time_us >= from && self.span.is_none() && !self.in_span {
                self.in_span = true;
                self.span_peak = Some((self.level.bytes, time_us));
            }
        }
        self.time_us = time_us;
        self.level.tick_max = self.level.bytes;
        self.level.tick_max_change = self.level.changes;
    }

    /// Nothing more comes: what was asked for and never reached is how things are now.
    pub(crate) fn end(&mut self) {
        self.curve.push(self.point());
        if self.at_us.is_some() && self.at.is_none() {
            self.at = Some(self.snapshot());
        }
        self.locate_at(u64::MAX);
        if self.span_us.is_some() && self.span.is_none() {
            self.span = Some(self.span_snapshot());
        }
        if self.rising {
            self.epoch = self.epoch.wrapping_add(1);
            self.rising = false;
        }
        for site in &mut self.sites {
            touch(site, self.epoch);
        }
        self.settle_code_end();
        self.site_ids = Ids::default();
        if self.lives.is_none() {
            self.blocks = Blocks::default();
        }
    }

    fn locate_at(&mut self, time_us: u64) {
        if let Some(locate) = self.locate.take_if(|locate| time_us > locate.at_us) {
            self.located = Some(locate.find(self));
        }
    }

    fn snapshot(&self) -> Vec<Amount> {
        self.sites.iter().map(|site| site.now).collect()
    }

    fn span_snapshot(&self) -> Vec<Amount> {
        let mut amounts = vec![Amount::default(); self.sites.len()];
        let blocks = self.blocks.iter().map(|(_, block)| block);
        for block in blocks.filter(|block| block.born & 1 == 1) {
            amounts[block.site as usize].gain(self.weights.amount(block.size));
        }
        for mapping in self.mappings.ranges.values().filter(|mapping| mapping.in_span) {
            amounts[mapping.site as usize].gain(Amount { bytes: mapping.bytes, count: mapping.count });
        }
        amounts
    }

    /// Whether the fast path applies: no sampling, no lifetimes to collect, no failed request so far. True for most captures.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.weights.is_exact() && self.lives.is_none() && self.failure.is_none()
    }

    #[inline(always)]
    fn amount<const SIMPLE: bool>(&self, size: u64) -> Amount {
        if SIMPLE { Amount { bytes: size, count: 1 } } else { self.weights.amount(size) }
    }

    /// Records an allocation. `SIMPLE` is the result of [`is_simple`](State::is_simple).
    #[inline(always)]
    pub(crate) fn allocate<const SIMPLE: bool>(&mut self, stream: &mut Stream, op: &Op) {
        let site = self.site(stream, op, u32::from(op.kind));
        stream.taken = None;
        stream.allocations = stream.allocations.wrapping_add(1);
        self.insert::<SIMPLE>(site, op, stream.allocations);
    }

    /// A block of a site comes, the thread's allocation of this number.
    #[inline(always)]
    pub(crate) fn insert<const SIMPLE: bool>(&mut self, site: u32, op: &Op, number: u32) {
        let step = if SIMPLE { None } else { self.step() };
        let age = step.unwrap_or(number);
        let born = (age << 1) | u32::from(self.in_span);
        let block = Block { size: op.size, site, born };
        if let Some(old) = self.blocks.insert(op.address, block) {
            self.force(old);
        }
        let amount = self.amount::<SIMPLE>(op.size);
        self.came::<SIMPLE>(site, op.size, amount);
    }

    /// A block is freed.
    #[inline(always)]
    pub(crate) fn free<const SIMPLE: bool>(&mut self, stream: &mut Stream, op: &Op) {
        let block = self.remove::<SIMPLE>(op.address, stream.thread, stream.allocations);
        if block.is_none() && self.weights.is_exact() {
            self.unknown_frees = self.unknown_frees.saturating_add(1);
        }
        stream.taken =
            if op.kind == kind::REALLOC_TAKE { block.map(|block| (op.address, block)) } else { None };
    }

    /// Ends a block, freed by `thread` after `allocations` allocations of its own; returns it, where it is known.
    #[inline(always)]
    pub(crate) fn remove<const SIMPLE: bool>(
        &mut self,
        address: u64,
        thread: u32,
        allocations: u32,
    ) -> Option<Block> {
        let block = self.blocks.remove(address)?;
        let amount = self.amount::<SIMPLE>(block.size);
        let age = (allocations << 1).wrapping_sub(block.born & !1) >> 1;
        let is_short = (age <= self.temporary_threshold) & (SIMPLE || self.lives.is_none());
        let site = self.lose::<SIMPLE>(block.site, amount);
        // Added or not without a branch, which could not be foretold.
        let is_temporary = u64::from(is_short & (site.key.thread == thread));
        site.temporary
            .gain(Amount { bytes: amount.bytes * is_temporary, count: amount.count * is_temporary });
        if !SIMPLE && let Some(lives) = &mut self.lives {
            lives.end(block.site, block.born >> 1, amount);
        }
        Some(block)
    }

    /// Ends a block whose free is in no record: it was lost, or happened outside the recording.
    #[cold]
    fn force(&mut self, old: Block) {
        self.forced = self.forced.saturating_add(1);
        self.lose::<false>(old.site, self.weights.amount(old.size));
    }

    /// A block that comes and goes many times: after the first time nothing is new but the counts.
    pub(crate) fn pairs(&mut self, stream: &mut Stream, op: &Op) {
        let [born, freed] = op.both();
        let mut left = op.times;
        while left > 0 {
            self.allocate::<false>(stream, &born);
            self.free::<false>(stream, &freed);
            left -= 1;
            // A requested moment may be anywhere.
            let end = self.level.changes.saturating_add(2 * u64::from(left));
            if self.lives.is_none() || self.next_moment > end {
                break;
            }
        }
        let times = u64::from(left);
        let site = self.site(stream, &born, u32::from(born.kind));
        let Amount { bytes, count } = self.weights.amount(op.size);
        let amount = Amount { bytes: bytes.wrapping_mul(times), count: count.wrapping_mul(times) };
        self.sites[site as usize].total.gain(amount);
        self.sizes[(64 - op.size.leading_zeros()) as usize].gain(amount);
        if self.lives.is_none() {
            self.sites[site as usize].temporary.gain(amount);
        }
        if !self.weights.is_exact() {
            self.variance += self.weights.variance(op.size) * times as f64;
        }
        stream.allocations = stream.allocations.wrapping_add(left);
        self.level.changes += 2 * times;
    }

    pub(crate) fn map(&mut self, stream: &mut Stream, op: &Op, may_wait: bool) -> bool {
        let end = end_of(op.address, op.size);
        if may_wait && self.mappings.overlaps(op.address, end) {
            return false;
        }
        self.cut(op.address, end);
        let site = self.site(stream, op, u32::from(op.kind));
        stream.allocations = stream.allocations.wrapping_add(1);
        stream.taken = None;
        let amount = self.weights.amount(op.size);
        let Amount { bytes, count } = amount;
        let step = self.step().unwrap_or(0);
        self.mappings.insert(op.address, Mapping { end, site, count, bytes, in_span: self.in_span, step });
        self.came::<false>(site, op.size, amount);
        true
    }

    pub(crate) fn unmap(&mut self, op: &Op, may_wait: bool) -> bool {
        let end = end_of(op.address, op.size);
        if !self.mappings.overlaps(op.address, end) {
            if may_wait {
                return false;
            }
            self.unknown_frees = self.unknown_frees.saturating_add(1);
            return true;
        }
        self.cut(op.address, end);
        true
    }

    fn cut(&mut self, start: u64, end: u64) {
        let mut mappings = std::mem::take(&mut self.mappings);
        mappings.cut(start, end, |site, bytes, count, step| {
            let amount = Amount { bytes, count };
            self.lose::<false>(site, amount);
            if let Some(lives) = &mut self.lives {
                lives.end(site, step, amount);
            }
        });
        self.mappings = mappings;
    }

    /// A request failed.
    pub(crate) fn fail(&mut self, site: SiteKey, errno: u32, bytes: u64, limits: Option<[u64; 3]>) {
        self.failed = self.failed.saturating_add(1);
        self.begin_failure();
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(Failure { site, errno, bytes, time_us: self.time_us, limits });
        }
    }

    /// `realloc` failed: the block never went. Neither a new allocation nor a new peak.
    pub(crate) fn put_back(&mut self, address: u64, mut block: Block) {
        if let Some(step) = self.step() {
            block.born = (step << 1) | (block.born & 1);
        }
        self.blocks.insert(address, block);
        self.gain(block.site, self.weights.amount(block.size));
    }

    /// Moments that are past when the next change happens, where moments are looked out for.
    #[inline]
    pub(crate) fn step(&mut self) -> Option<u32> {
        let lives = self.lives.as_mut()?;
        if self.level.changes >= self.next_moment {
            self.next_moment = lives.pass(self.level.changes + 1);
        }
        Some(lives.step)
    }

    /// Memory comes that was not asked for now.
    pub(crate) fn gain(&mut self, site: u32, amount: Amount) {
        self.touch_after_failure(site);
        let site = &mut self.sites[site as usize];
        touch(site, self.epoch);
        site.now.gain(amount);
        self.grow(amount);
    }

    /// What was asked for comes.
    #[inline(always)]
    fn came<const SIMPLE: bool>(&mut self, site: u32, size: u64, amount: Amount) {
        if !SIMPLE {
            self.touch_after_failure(site);
        }
        let site = &mut self.sites[site as usize];
        touch(site, self.epoch);
        site.now.gain(amount);
        site.total.gain(amount);
        self.sizes[(64 - size.leading_zeros()) as usize].gain(amount);
        if !SIMPLE && !self.weights.is_exact() {
            self.variance += self.weights.variance(size);
        }
        self.grow(amount);
    }

    #[inline]
    fn touch_after_failure(&mut self, site: u32) {
        if let Some(failure) = &mut self.failure {
            failure.touch(site, self.sites[site as usize].now);
        }
    }

    #[inline(always)]
    fn grow(&mut self, amount: Amount) {
        let level = &mut self.level;
        level.bytes = level.bytes.wrapping_add(amount.bytes);
        level.count = level.count.wrapping_add(amount.count);
        level.changes += 1;
        if level.bytes > level.tick_max {
            level.tick_max = level.bytes;
            level.tick_max_change = level.changes;
            if level.bytes > self.peak.bytes {
                self.peak = level.now();
                self.peak_time_us = self.time_us;
                self.rising = true;
            }
            if self.in_span && self.span_peak.is_none_or(|(bytes, _)| level.bytes > bytes) {
                self.span_peak = Some((level.bytes, self.time_us));
            }
        }
    }

    /// Memory goes; gives the site it was from.
    #[inline(always)]
    pub(crate) fn lose<const SIMPLE: bool>(&mut self, site: u32, amount: Amount) -> &mut Site {
        if self.rising {
            self.epoch = self.epoch.wrapping_add(1);
            self.rising = false;
        }
        self.level.bytes = self.level.bytes.wrapping_sub(amount.bytes);
        self.level.count = self.level.count.wrapping_sub(amount.count);
        if !SIMPLE {
            self.step();
            self.touch_after_failure(site);
        }
        self.level.changes += 1;
        let site = &mut self.sites[site as usize];
        touch(site, self.epoch);
        site.now.lose(amount);
        site
    }

    /// The site of an allocation. `kind` tells the sites of a stream apart: the allocator, and for a device its number too.
    #[inline(always)]
    pub(crate) fn site(&mut self, stream: &mut Stream, op: &Op, kind: u32) -> u32 {
        let place = op.python.wrapping_mul(3).wrapping_add(op.native) as usize % REMEMBERED;
        if let Some(own) = stream.sites.get(place)
            && (own.python == op.python) & (own.native == op.native) & (own.kind == kind)
        {
            return own.site;
        }
        self.look_up(stream, op, kind, place)
    }

    #[inline(never)]
    fn look_up(&mut self, stream: &mut Stream, op: &Op, kind: u32, place: usize) -> u32 {
        let site = self.site_of(stream.key(op.python, op.native, op.kind));
        stream.sites.resize(REMEMBERED, StreamSite::default());
        stream.sites[place] = StreamSite { python: op.python, native: op.native, kind, site };
        site
    }

    pub(crate) fn site_of(&mut self, key: SiteKey) -> u32 {
        let site = self.site_ids.place(&self.sites, key, |site| site.key);
        if site as usize == self.sites.len() {
            let none = Amount::default();
            self.sites.push(Site {
                key,
                now: none,
                total: none,
                temporary: none,
                peak: none,
                epoch: self.epoch,
            });
        }
        site
    }
}

/// Before the first change after a peak: what the site held at it.
#[inline]
fn touch(site: &mut Site, epoch: u32) {
    if site.epoch != epoch {
        site.peak = site.now;
        site.epoch = epoch;
    }
}
