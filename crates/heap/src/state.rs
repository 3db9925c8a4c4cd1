//! The heap as the records so far leave it: living blocks, what each allocation site holds, the peak. One record at a time.
//!
//! The peak's composition costs nothing per record: a site's figures at the peak are written down only when it is touched for the first
//! time after the heap fell from one. Must give the same result for the same records, whatever the chunks they came in.

use rustc_hash::FxHashMap;
use stormlog_capture::op::{Op, PAIRS, is_allocation};
use stormlog_capture::record::{definition, kind};

use crate::blocks::Blocks;
use crate::code_end::CodeEnd;
use crate::curve::{Curve, Point};
use crate::define;
use crate::failure::AtFailure;
use crate::ids::{Ids, Known};
use crate::lives::Lives;
use crate::mappings::{Mapping, Mappings, end_of};
use crate::sample::Weights;
use crate::tree::{ROOT, Step, Tree};

/// What to look out for on the way.
#[derive(Debug, Clone)]
pub struct Watch {
    /// Keep the heap as it was at this time (microseconds since the start).
    pub at_us: Option<u64>,
    /// Keep what was allocated from the first to the second time and lived at the second.
    pub span_us: Option<(u64, u64)>,
    /// A block is temporary when it is freed after at most so many other allocations of its thread.
    pub temporary_threshold: u32,
    /// Most points of the curve of memory over time.
    pub curve_points: usize,
    /// Tell when blocks came and went by these changes of the heap ([`Point::max_change`](crate::Point), ascending). Temporary allocations are not
    /// looked for then.
    pub moments: Vec<u64>,
}

impl Default for Watch {
    fn default() -> Self {
        Watch { at_us: None, span_us: None, temporary_threshold: 1, curve_points: 1000, moments: Vec::new() }
    }
}

/// Bytes and blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amount {
    pub(crate) bytes: u64,
    pub(crate) count: u64,
}

impl Amount {
    pub(crate) fn gain(&mut self, other: Amount) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.count = self.count.wrapping_add(other.count);
    }

    fn lose(&mut self, other: Amount) {
        self.bytes = self.bytes.wrapping_sub(other.bytes);
        self.count = self.count.wrapping_sub(other.count);
    }
}

/// How large the heap is, in numbers that nearly every record changes. In this order no two that change together lie side by side: the compiler
/// would add to both at once here and one by one there, and what was written apart cannot be read at once before it is in the cache.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Level {
    bytes: u64,
    /// Most bytes since the clock moved on.
    pub(crate) tick_max: u64,
    count: u64,
    /// The change that made it so large.
    tick_max_change: u64,
    /// Times that memory came or went.
    changes: u64,
}

impl Level {
    pub(crate) fn now(&self) -> Amount {
        Amount { bytes: self.bytes, count: self.count }
    }

    /// Times that memory came or went.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn set(&mut self, now: Amount) {
        (self.bytes, self.count) = (now.bytes, now.count);
    }
}

/// Who allocated: stacks, thread and allocator.
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
    /// The thread's allocations when it was made (or the moments that were past), times 2, plus 1 when that was within the watched span.
    pub(crate) born: u32,
}

/// A request that got no memory.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) site: SiteKey,
    pub(crate) errno: u32,
    pub(crate) bytes: u64,
    pub(crate) time_us: u64,
    pub(crate) limits: Option<[u64; 3]>,
}

/// Sites a stream remembers.
const REMEMBERED: usize = 1024;
/// Most failed requests kept one by one; a program may retry for ever.
const MAX_FAILURES: usize = 1000;

/// A site by a stream's own numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Own {
    python: u32,
    native: u32,
    /// The allocator; 0 where nothing is remembered yet.
    kind: u32,
    site: u32,
}

/// One stream's own state.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// Where it stands: chunk, and records of it that are done.
    pub(crate) sequence: u64,
    pub(crate) done: u64,
    pub(crate) time_us: u64,
    pub(crate) thread: u32,
    pub(crate) allocations: u32,
    pub(crate) nodes: Known,
    pub(crate) taken: Option<(u64, Block)>,
    pub(crate) parts: Vec<u8>,
    pub(crate) limits: Option<[u64; 3]>,
    /// The last sites by the stream's own nodes: saves most look-ups.
    sites: Vec<Own>,
}

impl Stream {
    pub(crate) fn new(id: u32) -> Self {
        Stream { id, ..Stream::default() }
    }

    /// One whose nodes have the tree's own numbers.
    pub(crate) fn in_tree() -> Self {
        Stream { nodes: Known::the_same(), ..Stream::default() }
    }

    pub(crate) fn set_thread(&mut self, thread: u32) {
        if self.thread != thread {
            self.thread = thread;
            self.sites.clear();
        }
    }
}

/// Everything but the streams.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) watch: Watch,
    pub(crate) weights: Weights,
    pub(crate) tree: Tree,
    pub(crate) sites: Vec<Site>,
    site_ids: Ids,
    /// By address, whichever allocator they came from: `free` may end what CPython's allocator began, and the other way round.
    pub(crate) blocks: Blocks,
    pub(crate) mappings: Mappings,
    pub(crate) threads: Vec<u64>,
    pub(crate) thread_names: FxHashMap<u64, String>,
    pub(crate) python: Option<String>,
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
    /// The heap at the last of them.
    pub(crate) failure: Option<Box<AtFailure>>,
    pub(crate) unknown_frees: u64,
    pub(crate) forced: u64,
    /// Sum of squares for the standard error of a sampled capture.
    pub(crate) variance: f64,
    pub(crate) at: Option<Vec<Amount>>,
    pub(crate) span: Option<Vec<Amount>>,
    pub(crate) span_peak: Option<(u64, u64)>,
    pub(crate) in_span: bool,
    /// The heap when the program's own code had ended.
    pub(crate) code_end: Option<CodeEnd>,
    /// Records up to this time were folded: nothing is known of single moments before.
    pub(crate) folded_us: Option<u64>,
}

impl State {
    pub(crate) fn new(watch: Watch, sample_bytes: u64) -> Self {
        State {
            weights: Weights::new(sample_bytes),
            curve: Curve::new(watch.curve_points),
            in_span: watch.span_us.is_some_and(|(from, _)| from == 0),
            next_moment: watch.moments.first().copied().unwrap_or(u64::MAX),
            lives: (!watch.moments.is_empty()).then(|| Lives::new(&watch.moments)),
            watch,
            tree: Tree::default(),
            sites: Vec::new(),
            site_ids: Ids::default(),
            blocks: Blocks::default(),
            mappings: Mappings::default(),
            threads: Vec::new(),
            thread_names: FxHashMap::default(),
            python: None,
            level: Level::default(),
            peak: Amount::default(),
            peak_time_us: 0,
            epoch: 1,
            rising: false,
            time_us: 0,
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

    /// The tick so far.
    fn point(&self) -> Point {
        let Level { bytes, tick_max: max_bytes, tick_max_change: max_change, .. } = self.level;
        Point { time_us: self.time_us, bytes, max_bytes, max_change }
    }

    /// The clock of the whole heap moves on; all records before it are in.
    pub(crate) fn advance(&mut self, time_us: u64) {
        if time_us <= self.time_us {
            return;
        }
        self.curve.push(self.point());
        if self.at.is_none() && self.watch.at_us.is_some_and(|at| time_us > at) {
            self.at = Some(self.snapshot());
        }
        if let Some((from, to)) = self.watch.span_us {
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

    /// Nothing more comes: what was asked for and never reached is how things stand now.
    pub(crate) fn end(&mut self, streams: &mut [Stream]) {
        for stream in streams.iter_mut() {
            // Killed within `realloc`: the block was handed over and nothing says that it went.
            if let Some((address, block)) = stream.taken.take() {
                self.put_back(address, block);
            }
        }
        self.curve.push(self.point());
        if self.watch.at_us.is_some() && self.at.is_none() {
            self.at = Some(self.snapshot());
        }
        if self.watch.span_us.is_some() && self.span.is_none() {
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
        self.tree.close();
        self.site_ids = Ids::default();
        if self.lives.is_none() {
            self.blocks = Blocks::default();
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

    /// Is there a block at this address?
    pub(crate) fn is_live(&self, address: u64) -> bool {
        self.blocks.contains(address)
    }

    /// Takes in one record that concerns memory. False: it is about a mapping, must wait for another stream, and may.
    #[inline]
    pub(crate) fn apply(&mut self, stream: &mut Stream, op: &Op, may_wait: bool) -> bool {
        match op.kind {
            kind::FREE | kind::PY_FREE | kind::REALLOC_TAKE => {
                if self.is_simple() {
                    self.free::<true>(stream, op);
                } else {
                    self.free::<false>(stream, op);
                }
                true
            }
            kind::MUNMAP => self.unmap(op, may_wait),
            kind::MMAP | kind::MREMAP | kind::BRK => self.map(stream, op, may_wait),
            allocator if is_allocation(allocator) => {
                if self.is_simple() {
                    self.allocate::<true>(stream, op);
                } else {
                    self.allocate::<false>(stream, op);
                }
                true
            }
            kind::REALLOC_UNDO => {
                if let Some((address, block)) = stream.taken.take() {
                    self.put_back(address, block);
                }
                true
            }
            kind::FAILED => {
                self.fail(stream, op);
                true
            }
            PAIRS => {
                self.pairs(stream, op);
                true
            }
            _ => true,
        }
    }

    /// Was every block recorded, are no moments looked out for, and did no request fail yet? Most captures are read so.
    #[inline]
    pub(crate) fn is_simple(&self) -> bool {
        self.weights.is_exact() && self.lives.is_none() && self.failure.is_none()
    }

    #[inline(always)]
    fn amount<const SIMPLE: bool>(&self, size: u64) -> Amount {
        if SIMPLE { Amount { bytes: size, count: 1 } } else { self.weights.amount(size) }
    }

    /// A block comes. `SIMPLE` says what [`is_simple`](State::is_simple) said.
    #[inline(always)]
    pub(crate) fn allocate<const SIMPLE: bool>(&mut self, stream: &mut Stream, op: &Op) {
        let site = self.site(stream, op);
        let step = if SIMPLE { None } else { self.step() };
        let age = step.unwrap_or(stream.allocations.wrapping_add(1));
        let born = (age << 1) | u32::from(self.in_span);
        let block = Block { size: op.size, site, born };
        if let Some(old) = self.blocks.insert(op.address, block) {
            self.force(old);
        }
        stream.taken = None;
        stream.allocations = stream.allocations.wrapping_add(1);
        let amount = self.amount::<SIMPLE>(op.size);
        self.came::<SIMPLE>(site, op.size, amount);
    }

    /// A block goes.
    #[inline(always)]
    pub(crate) fn free<const SIMPLE: bool>(&mut self, stream: &mut Stream, op: &Op) {
        let Some(block) = self.blocks.remove(op.address) else {
            if self.weights.is_exact() {
                self.unknown_frees = self.unknown_frees.saturating_add(1);
            }
            stream.taken = None;
            return;
        };
        let amount = self.amount::<SIMPLE>(block.size);
        if op.kind == kind::REALLOC_TAKE {
            stream.taken = Some((op.address, block));
        } else {
            stream.taken = None;
        }
        let age = (stream.allocations << 1).wrapping_sub(block.born & !1) >> 1;
        let is_short = (age <= self.watch.temporary_threshold) & (SIMPLE || self.lives.is_none());
        let site = self.lose::<SIMPLE>(block.site, amount);
        // Added or not without a branch, which could not be foretold.
        let is_temporary = u64::from(is_short & (site.key.thread == stream.thread));
        site.temporary
            .gain(Amount { bytes: amount.bytes * is_temporary, count: amount.count * is_temporary });
        if !SIMPLE && let Some(lives) = &mut self.lives {
            lives.end(block.site, block.born >> 1, amount);
        }
    }

    /// The free of a block was lost, or nobody saw it.
    #[cold]
    fn force(&mut self, old: Block) {
        self.forced = self.forced.saturating_add(1);
        self.lose::<false>(old.site, self.weights.amount(old.size));
    }

    /// A block that comes and goes many times: after the first time nothing is new but the counts.
    fn pairs(&mut self, stream: &mut Stream, op: &Op) {
        let [born, freed] = op.both();
        let mut left = op.times;
        while left > 0 {
            self.allocate::<false>(stream, &born);
            self.free::<false>(stream, &freed);
            left -= 1;
            // A moment that is looked out for may lie anywhere.
            let end = self.level.changes.saturating_add(2 * u64::from(left));
            if self.lives.is_none() || self.next_moment > end {
                break;
            }
        }
        let times = u64::from(left);
        let site = self.site(stream, &born);
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

    fn map(&mut self, stream: &mut Stream, op: &Op, may_wait: bool) -> bool {
        let end = end_of(op.address, op.size);
        if may_wait && self.mappings.overlaps(op.address, end) {
            return false;
        }
        self.cut(op.address, end);
        let site = self.site(stream, op);
        stream.allocations = stream.allocations.wrapping_add(1);
        stream.taken = None;
        let amount = self.weights.amount(op.size);
        let Amount { bytes, count } = amount;
        let step = self.step().unwrap_or(0);
        self.mappings.insert(op.address, Mapping { end, site, count, bytes, in_span: self.in_span, step });
        self.came::<false>(site, op.size, amount);
        true
    }

    fn unmap(&mut self, op: &Op, may_wait: bool) -> bool {
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

    fn fail(&mut self, stream: &mut Stream, op: &Op) {
        self.failed = self.failed.saturating_add(1);
        self.begin_failure();
        let limits = stream.limits.take();
        if self.failures.len() < MAX_FAILURES {
            let site = self.key(stream, op, (op.address & 0xff) as u8);
            let errno = (op.address >> 8) as u32;
            let time_us = self.time_us;
            self.failures.push(Failure { site, errno, bytes: op.size, time_us, limits });
        }
    }

    /// `realloc` failed: the block never went. Neither a new allocation nor a new peak.
    fn put_back(&mut self, address: u64, mut block: Block) {
        if let Some(step) = self.step() {
            block.born = (step << 1) | (block.born & 1);
        }
        self.blocks.insert(address, block);
        self.gain(block.site, self.weights.amount(block.size));
    }

    /// Moments that are past when the next change happens, where moments are looked out for.
    #[inline]
    fn step(&mut self) -> Option<u32> {
        let lives = self.lives.as_mut()?;
        if self.level.changes >= self.next_moment {
            self.next_moment = lives.pass(self.level.changes + 1);
        }
        Some(lives.step)
    }

    /// Memory that nobody asked for comes.
    fn gain(&mut self, site: u32, amount: Amount) {
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
    fn lose<const SIMPLE: bool>(&mut self, site: u32, amount: Amount) -> &mut Site {
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

    #[inline(always)]
    fn site(&mut self, stream: &mut Stream, op: &Op) -> u32 {
        let place = op.python.wrapping_mul(3).wrapping_add(op.native) as usize % REMEMBERED;
        if let Some(own) = stream.sites.get(place)
            && (own.python == op.python) & (own.native == op.native) & (own.kind == u32::from(op.kind))
        {
            return own.site;
        }
        self.look_up(stream, op, place)
    }

    #[inline(never)]
    fn look_up(&mut self, stream: &mut Stream, op: &Op, place: usize) -> u32 {
        let site = self.site_of(self.key(stream, op, op.kind));
        stream.sites.resize(REMEMBERED, Own::default());
        stream.sites[place] = Own { python: op.python, native: op.native, kind: u32::from(op.kind), site };
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

    fn key(&self, stream: &Stream, op: &Op, kind: u8) -> SiteKey {
        let node = |id: u32| stream.nodes.get(id).unwrap_or(ROOT);
        SiteKey { python: node(op.python), native: node(op.native), thread: stream.thread, kind }
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
            _ => {
                if op.size == definition::LIMITS {
                    stream.limits = define::limits(payload);
                } else if let Some(whole) = define::join(&mut stream.parts, payload, op.native == 1) {
                    define::define(self, op.size, op.address, &whole);
                }
                return;
            }
        };
        let node = self.tree.node(parent, step);
        stream.nodes.insert(op.python, node);
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
