//! Runs a recording's requests through the model: first under its own settings, to prove the model, then under others.

use serde::Serialize;

use crate::model::{AddressSpace, Allocator, Request, Totals};
use crate::program::{LimitBounds, Op, Program};
use crate::recording::Recording;
use crate::settings::AllocatorSettings;

/// How many recorded addresses the model chose as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SelfMatch {
    /// Predicted exactly.
    pub matched: u64,
    /// Recorded.
    pub total: u64,
}

impl SelfMatch {
    /// Good enough to believe what the model says about other settings.
    pub fn is_sound(&self) -> bool {
        self.matched * 100 >= self.total * 99
    }
}

/// What would have happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The text for `PYTORCH_CUDA_ALLOC_CONF`; empty for the defaults.
    pub settings: String,
    /// Peak held from the driver.
    pub peak_reserved_bytes: u64,
    /// Peak in the program's hands.
    pub peak_allocated_bytes: u64,
    /// Peak of what was in use, pending frees included.
    pub peak_active_bytes: u64,
    /// Whether a request fails.
    pub oom: bool,
    /// The event whose request fails.
    pub oom_event: Option<u32>,
    /// How often everything cached had to be given back for a request.
    pub retries: u64,
    /// A warning about the settings themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caution: Option<&'static str>,
}

/// Peaks as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// Peak held from the driver.
    pub peak_reserved_bytes: u64,
    /// Peak in the program's hands.
    pub peak_allocated_bytes: u64,
    /// Peak of what was in use.
    pub peak_active_bytes: u64,
    /// Whether a request failed.
    pub oom: bool,
}

/// The best first.
pub(crate) fn sort(predictions: &mut [Prediction]) {
    predictions.sort_by_key(|prediction| {
        (prediction.oom, prediction.peak_reserved_bytes, prediction.settings.len())
    });
}

/// A recording, ready to be replayed.
#[derive(Debug, Clone)]
pub struct Replayer<'a> {
    recording: &'a Recording<'a>,
    program: Program,
}

/// Settings worth trying on any recording.
const GRID: [&str; 14] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "expandable_segments:True,roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:True,roundup_power2_divisions:16",
];

/// A replayed peak of more than this many times the recorded one means growth at every step, not a worse fit.
const RUNS_AWAY: u64 = 3;

impl<'a> Replayer<'a> {
    /// Reads the requests out of a recording.
    pub fn new(recording: &'a Recording<'a>) -> Self {
        Replayer { recording, program: Program::new(recording) }
    }

    /// The same program, had it never called `empty_cache()`.
    pub(crate) fn without_empty_cache(&self) -> Self {
        let mut calmer = self.clone();
        calmer.program.ops.retain(|op| !matches!(op, Op::EmptyCache(_)));
        calmer
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// The peaks the recording itself reached.
    pub fn recorded(&self) -> Recorded {
        Recorded {
            peak_reserved_bytes: self.program.recorded.reserved,
            peak_allocated_bytes: self.program.recorded.allocated,
            peak_active_bytes: self.program.recorded.active,
            oom: self.program.ops.iter().any(|op| matches!(op, Op::Oom { .. })),
        }
    }

    /// What the recording says about the memory there was.
    pub fn limit_bounds(&self) -> LimitBounds {
        self.program.limit
    }

    /// Replays under the recorded settings and compares address by address. Without a limit, what the allocator gave
    /// back on its own is taken from the recording; with one, the model must decide that too.
    pub fn self_check(&self, limit: Option<u64>) -> (SelfMatch, Prediction) {
        let mut run = Run::new(self, &self.recording.settings, limit, true);
        run.all();
        (run.matched, run.finish())
    }

    /// Replays under other settings, with as much memory as `limit` says.
    pub fn predict(&self, settings: &AllocatorSettings, limit: Option<u64>) -> Prediction {
        let mut run = Run::new(self, settings, limit, false);
        run.all();
        run.finish()
    }

    /// Replays under every setting worth trying, on all cores; best first.
    pub fn search(&self, limit: Option<u64>) -> Vec<Prediction> {
        let mut predictions = self.predict_all(&self.worth_trying(), limit);
        sort(&mut predictions);
        predictions
    }

    /// The settings worth trying.
    pub(crate) fn worth_trying(&self) -> Vec<AllocatorSettings> {
        let plain = AllocatorSettings {
            garbage_collection_threshold: self.recording.settings.garbage_collection_threshold,
            ..AllocatorSettings::default()
        };
        GRID.iter().filter_map(|text| plain.with(text).ok()).collect()
    }

    /// Several settings at once, on all cores, in the order given.
    pub fn predict_all(&self, settings: &[AllocatorSettings], limit: Option<u64>) -> Vec<Prediction> {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(settings.len());
        let work = || {
            let mut done = Vec::new();
            loop {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(settings) = settings.get(index) else { return done };
                done.push((index, self.predict(settings, limit)));
            }
        };
        let mut all: Vec<(usize, Prediction)> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
            let mut all = work();
            all.extend(others.into_iter().filter_map(|worker| worker.join().ok()).flatten());
            all
        });
        all.sort_by_key(|(index, _)| *index);
        all.into_iter().map(|(_, prediction)| prediction).collect()
    }
}

struct Run<'a> {
    replayer: &'a Replayer<'a>,
    allocator: Allocator,
    /// Model block of each numbered block; none while it is not live.
    blocks: Vec<Option<u32>>,
    check: bool,
    matched: SelfMatch,
    peak: Totals,
    oom: Option<u32>,
}

impl<'a> Run<'a> {
    fn new(
        replayer: &'a Replayer<'a>,
        settings: &AllocatorSettings,
        limit: Option<u64>,
        check: bool,
    ) -> Self {
        let recording = replayer.recording;
        let mut address_space = AddressSpace::new(replayer.program.segments.iter().copied());
        let tracker = recording.tracker();
        let mut run = if settings.expandable_segments == recording.settings.expandable_segments {
            for segment in recording.start.segments.iter().filter(|segment| !segment.expandable) {
                address_space.occupy(segment.addr, segment.size);
            }
            let blocks = tracker.start_blocks();
            let mut allocator = Allocator::new(settings.clone(), limit, address_space);
            allocator.heap = tracker.heap;
            allocator.heap.settings = settings.clone();
            Run::with(replayer, allocator, blocks, check)
        } else {
            let allocator = Allocator::new(settings.clone(), limit, address_space);
            let mut run = Run::with(replayer, allocator, Vec::new(), check);
            run.lay_out_start();
            run
        };
        run.note_peak();
        run
    }

    fn with(replayer: &'a Replayer<'a>, allocator: Allocator, blocks: Vec<Option<u32>>, check: bool) -> Self {
        let matched = SelfMatch { matched: 0, total: 0 };
        Run { replayer, allocator, blocks, check, matched, peak: Totals::default(), oom: None }
    }

    /// The start state under settings that would have built it differently: its blocks, live and free, asked for
    /// again in the order of their addresses, and the free ones given back.
    fn lay_out_start(&mut self) {
        let start = &self.replayer.recording.start;
        let mut blocks = start.blocks.iter().enumerate().peekable();
        let mut cached = Vec::new();
        self.blocks = vec![None; start.blocks.len()];
        for segment in &start.segments {
            let mut at = segment.addr;
            let end = segment.addr + segment.size;
            let piece = if segment.home.small { 1 << 20 } else { u64::MAX };
            let request =
                |size| Request { size, stream: segment.home.stream, pool: segment.home.pool, owner: 0 };
            while at < end {
                let live = blocks.next_if(|(_, block)| block.addr == at);
                let until = blocks.peek().map_or(end, |(_, next)| next.addr.min(end));
                match live {
                    Some((number, block)) => {
                        self.blocks[number] =
                            self.allocator.allocate(request(block.requested.min(block.size)));
                        at += block.size;
                    }
                    None if until > at => {
                        let size = piece.min(until - at);
                        cached.extend(self.allocator.allocate(request(size)));
                        at += size;
                    }
                    None => break,
                }
            }
        }
        for block in cached {
            self.allocator.heap.complete_free(block);
        }
    }

    fn note_peak(&mut self) {
        let now = self.allocator.heap.totals;
        self.peak.reserved = self.peak.reserved.max(now.reserved);
        self.peak.active = self.peak.active.max(now.active);
        self.peak.allocated = self.peak.allocated.max(now.allocated);
    }

    fn all(&mut self) {
        for &op in &self.replayer.program.ops {
            match op {
                Op::Alloc { event, pool } => {
                    if !self.alloc(event, pool) {
                        self.oom = Some(event);
                        return;
                    }
                    self.note_peak();
                }
                Op::FreeRequested(number) => {
                    if let Some(&Some(block)) = self.blocks.get(number as usize) {
                        self.allocator.heap.request_free(block);
                    }
                }
                Op::FreeCompleted(number) => {
                    if let Some(block) = self.blocks.get_mut(number as usize).and_then(Option::take) {
                        self.allocator.heap.complete_free(block);
                    }
                }
                Op::EmptyCache(run) => {
                    self.allocator.release_cached();
                    self.release_recorded(run);
                }
                Op::Pressure(run) => {
                    if self.check && self.allocator.limit.is_none() {
                        self.release_recorded(run);
                    }
                }
                Op::Oom { event } => {
                    // With no limit to meet, whether it fails cannot be said.
                    if self.allocator.limit.is_some() && !self.try_refused(event) {
                        self.oom = Some(event);
                        return;
                    }
                }
            }
        }
    }

    fn alloc(&mut self, event: u32, pool: u16) -> bool {
        let program = &self.replayer.program;
        let recording = self.replayer.recording;
        let Some(recorded) = recording.snapshot.event(recording.device, event as usize) else { return true };
        let stream = recording.snapshot.context(&recorded).stream;
        let pool = program.pools.get(usize::from(pool)).copied().unwrap_or((0, 0));
        self.allocator.address_space.hint = program.hints.get(&event).copied();
        let Some(block) =
            self.allocator.allocate(Request { size: recorded.size, stream, pool, owner: event })
        else {
            return false;
        };
        let mut block = block;
        if self.check {
            self.matched.total += 1;
            if self.allocator.heap.block(block).addr == recorded.addr {
                self.matched.matched += 1;
            } else if let Some(right) = self.allocator.free_at(pool, stream, recorded.addr) {
                // One wrong guess shall not be counted again in everything that follows from it.
                let rounded = self.allocator.heap.settings.round(recorded.size);
                if self.allocator.heap.block(right).size >= rounded {
                    self.allocator.heap.complete_free(block);
                    if let Some(right) = self.allocator.free_at(pool, stream, recorded.addr) {
                        self.allocator.heap.unset_free(right);
                        self.allocator.heap.hand_out(right, rounded, recorded.size, event);
                        block = right;
                    }
                }
            }
        }
        self.blocks.push(Some(block));
        true
    }

    /// A request that failed in the recording: if it fits now, it is granted and taken back at once, because the
    /// recorded program never used it.
    fn try_refused(&mut self, event: u32) -> bool {
        let recording = self.replayer.recording;
        let Some(recorded) = recording.snapshot.event(recording.device, event as usize) else { return true };
        let stream = recording.snapshot.context(&recorded).stream;
        let pool = recording.snapshot.context(&recorded).pool.unwrap_or((0, 0));
        match self.allocator.allocate(Request { size: recorded.size, stream, pool, owner: event }) {
            Some(block) => {
                self.note_peak();
                self.allocator.heap.complete_free(block);
                true
            }
            None => false,
        }
    }

    /// Gives back what the recording gave back, where the model still has it and it is free.
    fn release_recorded(&mut self, run: u32) {
        if !self.check {
            return;
        }
        let program = &self.replayer.program;
        let addresses =
            program.released.get(run as usize).and_then(|range| program.addresses.get(range.clone()));
        for &addr in addresses.unwrap_or(&[]) {
            let free = self.allocator.heap.pools.iter().flat_map(|pool| pool.free.iter());
            let found = free.map(|entry| entry.3).find(|&index| {
                let block = self.allocator.heap.block(index);
                block.addr == addr && block.is_whole() && !block.expandable
            });
            if let Some(index) = found {
                self.allocator.address_space.release(addr);
                self.allocator.heap.remove_segment(index);
            }
        }
    }

    /// Why a setting is not a good idea, whatever its peak.
    fn caution(&self) -> Option<&'static str> {
        let settings = &self.allocator.heap.settings;
        settings.max_split_size?;
        if settings.expandable_segments {
            return Some(
                "max_split_size_mb together with expandable_segments lets reserved memory grow without bound",
            );
        }
        let recorded = self.replayer.program.recorded.reserved;
        (self.peak.reserved > recorded.saturating_mul(RUNS_AWAY)).then_some(
            "max_split_size_mb keeps what was joined to that size from smaller requests: here reserved memory grows with every step",
        )
    }

    fn finish(self) -> Prediction {
        let settings = &self.allocator.heap.settings;
        Prediction {
            settings: settings.to_string(),
            peak_reserved_bytes: self.peak.reserved,
            peak_allocated_bytes: self.peak.allocated,
            peak_active_bytes: self.peak.active,
            oom: self.oom.is_some(),
            oom_event: self.oom,
            retries: self.allocator.retries,
            caution: self.caution(),
        }
    }
}
