//! What is known of a process beside its numbers, as metadata of its events: swap, stalls, file-backed memory, its share of shared pages.
//!
//! Changes rarely: every change makes the metadata of the next sample another one, and a recording has room for few.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use stormlog_collect::process::ProcessReader;
use stormlog_model::Record;
use stormlog_model::page_facts::{
    ANONYMOUS, FILE_BACKED, FORKED, MINOR_FAULTS, PRIVATE_DIRTY, PSS, PSS_FILE, SHARED_DIRTY, SHARED_MEMORY,
    USS,
};

/// How long what is swapped out is taken for current: reading it costs more than the sample itself.
pub(crate) const FACT_AGE: Duration = Duration::from_secs(1);
/// The kernel walks the page tables of the process for it: between two readings pass this many times the processor time that one took, and this at least.
const PSS_SHARE: u32 = 100;
const PSS_AGE: Duration = Duration::from_secs(10);
/// The first pause of a fork, whose pages are copied in its first seconds; it doubles with each reading.
const FORK_AGE: Duration = Duration::from_secs(2);
/// Of a larger process it is not read: a walk of tens of milliseconds would delay the samples.
const PSS_MOST_RSS: u64 = 8 << 30;

/// Facts of one process.
#[derive(Debug)]
pub(crate) struct ProcessFacts {
    known: Record,
    is_changed: bool,
    shortage: Shortage,
    file_backed: Reported,
    shared_memory: Reported,
    since: Instant,
    swap_read_at: Option<Instant>,
    pss: Reported,
    private_dirty: Reported,
    pss_readings: u32,
    next_pss: Option<Instant>,
}

impl ProcessFacts {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        ProcessFacts {
            known: Record::new(),
            is_changed: false,
            shortage: Shortage::default(),
            file_backed: Reported::default(),
            shared_memory: Reported::default(),
            since: Instant::now(),
            swap_read_at: None,
            pss: Reported::default(),
            private_dirty: Reported::default(),
            pss_readings: 0,
            next_pss: None,
        }
    }

    /// All that is known.
    pub(crate) fn known(&self) -> &Record {
        &self.known
    }

    /// The same when it is not what the last call gave.
    pub(crate) fn changed(&mut self) -> Option<&Record> {
        std::mem::take(&mut self.is_changed).then_some(&self.known)
    }

    /// A fact that the caller found.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.is_changed = true;
        self.known.insert(key.to_owned(), value);
    }

    /// How much of it files back: `analyze` uses it to distinguish start-up, in which libraries are mapped and files are read, from work.
    pub(crate) fn note_file_backed(&mut self, bytes: u64) {
        if self.file_backed.update(bytes, self.since.elapsed(), Instant::now()) {
            self.set(FILE_BACKED, bytes.into());
        }
    }

    /// Its resident shared memory, which the cheap reading does not tell from files.
    pub(crate) fn note_shared_memory(&mut self, bytes: Option<u64>) {
        let Some(bytes) = bytes else { return };
        if self.shared_memory.update(bytes, self.since.elapsed(), Instant::now()) {
            self.set(SHARED_MEMORY, bytes.into());
        }
    }

    /// Reads its share of pages that several processes have, where that is due.
    pub(crate) fn read_pss(&mut self, reader: &mut ProcessReader, rss: Option<u64>) {
        let begin = Instant::now();
        let is_small = rss.is_some_and(|rss| rss <= PSS_MOST_RSS);
        if !is_small || self.next_pss.is_some_and(|next| begin < next) {
            return;
        }
        // Not by the clock on the wall: on a busy machine most of that is waiting, which is not a cost.
        let before = processor_time();
        let detail = reader.detail().ok();
        let cost = processor_time().saturating_sub(before);
        let stat = reader.stat().ok();
        let is_fork = stat.as_ref().is_some_and(|stat| stat.is_copy);
        self.next_pss = Some(begin + pss_pause(cost, is_fork.then_some(self.pss_readings)));
        self.pss_readings += 1;
        let share = detail.and_then(|detail| Some((detail, detail.pss?, detail.pss_file?)));
        let Some((detail, all, of_files)) = share else { return };
        let (age, now) = (self.since.elapsed(), Instant::now());
        let is_changed = self.pss.update(all, age, now)
            | detail.private_dirty.is_some_and(|bytes| self.private_dirty.update(bytes, age, now));
        if !is_changed {
            return;
        }
        self.set(PSS, all.into());
        self.set(PSS_FILE, of_files.into());
        let known = [
            (USS, detail.uss),
            (PRIVATE_DIRTY, detail.private_dirty),
            (SHARED_DIRTY, detail.shared_dirty),
            (ANONYMOUS, detail.anonymous),
        ];
        for (key, bytes) in known {
            bytes.into_iter().for_each(|bytes| self.set(key, bytes.into()));
        }
        if let Some(stat) = stat.filter(|stat| stat.is_copy || self.known.contains_key(FORKED)) {
            self.set(FORKED, stat.is_copy.into());
            self.set(MINOR_FAULTS, stat.minor_faults.into());
        }
    }

    /// How short of memory it is: bytes swapped out, and the percent of the time that some, and that all tasks waited.
    pub(crate) fn note_shortage(&mut self, swap: Option<u64>, stalls: [Option<f64>; 2]) {
        // Whole percents: a figure that trembles would make every sample's metadata another one.
        let stalls = stalls.map(|share| share.map_or(0, |share| share.round() as u64));
        let shortage = Shortage { swap: swap.unwrap_or(0), stalls };
        if shortage != self.shortage {
            self.shortage = shortage;
            self.is_changed = true;
            shortage.write(&mut self.known);
        }
    }

    /// The same of a process whose stalls are not followed, read at most once a second.
    pub(crate) fn read_swap(&mut self, reader: &mut ProcessReader) {
        if self.swap_read_at.is_none_or(|at| at.elapsed() >= FACT_AGE) {
            self.swap_read_at = Some(Instant::now());
            let status = reader.status().ok();
            self.note_shared_memory(status.as_ref().and_then(|status| status.rss_shared_memory));
            self.note_shortage(status.and_then(|status| status.swap), [None, None]);
        }
    }
}

/// The time between two readings, of which one took `cost`; of a fork after this many readings.
fn pss_pause(cost: Duration, of_fork: Option<u32>) -> Duration {
    let young = of_fork.map(|readings| FORK_AGE * 2_u32.saturating_pow(readings.min(8)));
    (cost * PSS_SHARE).max(young.map_or(PSS_AGE, |pause| pause.min(PSS_AGE)))
}

/// What this thread has used of the processor.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(used.tv_sec).unwrap_or(0), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// A part of the resident memory, as the metadata last had it. Each change is metadata of its own, for which a ring has little room: every half
/// mebibyte while a program starts (imports of PyTorch are 35 changes), afterwards a thirty-second part within a second, and less within ten.
#[derive(Debug, Clone, Copy, Default)]
struct Reported {
    bytes: u64,
    times: u32,
    at: Option<Instant>,
}

impl Reported {
    /// Takes a reading; whether the metadata is to be changed. `age`: of the process.
    fn update(&mut self, bytes: u64, age: Duration, now: Instant) -> bool {
        const LEAST: u64 = 512 << 10;
        const START: Duration = Duration::from_secs(60);
        const IN_START: u32 = 100;
        const SHORT: Duration = Duration::from_secs(1);
        const LONG: Duration = Duration::from_secs(10);
        let pause = self.at.map_or(LONG, |at| now.saturating_duration_since(at));
        let is_start = self.times < IN_START && age < START;
        let least = match pause {
            _ if is_start || pause >= LONG => LEAST,
            _ if pause >= SHORT => LEAST.max(self.bytes / 32),
            _ => u64::MAX,
        };
        let is_due = bytes.abs_diff(self.bytes) >= least;
        if is_due {
            *self = Reported { bytes, times: self.times + 1, at: Some(now) };
        }
        is_due
    }
}

/// How short of memory a process and its surroundings are; 0 is not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shortage {
    swap: u64,
    stalls: [u64; 2],
}

impl Shortage {
    /// By the names `analyze` judges pressure by. What was reported once is reported until the end, as 0 when it is over.
    fn write(self, map: &mut Record) {
        let [some, full] = self.stalls;
        for (key, value) in
            [("process_swap_bytes", self.swap), ("psi_some_avg10", some), ("psi_full_avg10", full)]
        {
            if value > 0 || map.contains_key(key) {
                map.insert(key.to_owned(), value.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_reported_from_its_first_sign_on_and_as_zero_when_it_is_over() {
        let mut facts = ProcessFacts::new();
        facts.note_shortage(Some(0), [None, Some(0.2)]);
        assert!(facts.known().is_empty());
        facts.note_shortage(Some(1 << 30), [Some(29.6), None]);
        let swap_and_stall = |facts: &ProcessFacts| {
            ["process_swap_bytes", "psi_some_avg10"].map(|key| facts.known()[key].as_u64())
        };
        assert_eq!(swap_and_stall(&facts), [Some(1 << 30), Some(30)]);
        assert!(!facts.known().contains_key("psi_full_avg10"));
        facts.note_shortage(None, [None, None]);
        assert_eq!(swap_and_stall(&facts), [Some(0), Some(0)]);
    }

    #[test]
    fn share_of_a_process_is_read_every_ten_seconds_and_for_a_hundredth_of_the_time() {
        let pause = |cost, of_fork| pss_pause(Duration::from_millis(cost), of_fork).as_secs();
        assert_eq!([pause(2, None), pause(300, None), pause(300, Some(0))], [10, 30, 30]);
        assert_eq!([0, 1, 2, 3, u32::MAX].map(|readings| pause(2, Some(readings))), [2, 4, 8, 10, 10]);
        let mut facts = ProcessFacts::new();
        let mut reader = ProcessReader::open(std::process::id()).unwrap();
        facts.read_pss(&mut reader, Some(PSS_MOST_RSS + 1));
        assert!(facts.known().is_empty() && facts.next_pss.is_none(), "too large");
        facts.read_pss(&mut reader, Some(1));
        let known = |key: &str| facts.known()[key].as_u64().unwrap();
        assert!(known(PSS) > 0 && known(PSS_FILE) <= known(PSS));
        assert!(known(PRIVATE_DIRTY) <= known(USS) && known(ANONYMOUS) > 0);
        assert!(!facts.known().contains_key(FORKED), "the test runner executed this program");
        let next = facts.next_pss;
        facts.read_pss(&mut reader, Some(1));
        assert_eq!(facts.next_pss, next, "not due");
    }

    #[test]
    fn small_changes_of_mapped_files_are_not_reported() {
        let mut facts = ProcessFacts::new();
        facts.note_file_backed(4 << 20);
        facts.note_file_backed((4 << 20) + 4096);
        assert_eq!(facts.known()[FILE_BACKED], 4 << 20);
        facts.note_file_backed(8 << 20);
        assert_eq!(facts.known()[FILE_BACKED], 8 << 20);
    }

    /// How often a reading changes the metadata: `of` gives the bytes at each tenth of a second of a minute and a half.
    fn changes(of: impl Fn(u64) -> u64) -> [u32; 2] {
        let mut reported = Reported::default();
        let begin = Instant::now();
        let mut in_start = 0;
        for tenth in 0..900 {
            let age = Duration::from_millis(100 * tenth);
            reported.update(of(tenth), age, begin + age);
            if age < Duration::from_secs(60) {
                in_start = reported.times;
            }
        }
        [in_start, reported.times - in_start]
    }

    #[test]
    fn metadata_changes_at_most_a_hundred_times_in_a_start_and_once_a_second_after_it() {
        const MI: u64 = 1 << 20;
        assert_eq!(changes(|_| 8 * MI), [1, 0], "what does not change is reported once");
        assert_eq!(changes(|tenth| 8 * MI + (tenth % 2) * 4096), [1, 0], "pages come and go unreported");
        let [in_start, after] = changes(|tenth| (1 + tenth) * MI);
        assert!((100..=152).contains(&in_start), "then one a second: {in_start}");
        assert!(after <= 31, "one a second, as far as it is a thirty-second part: {after}");
        let [_, after] =
            changes(|tenth| if tenth < 600 { 1 << 30 } else { (1 << 30) + (tenth - 600) * MI / 20 });
        assert!((1..=3).contains(&after), "slow growth is reported every ten seconds: {after}");
    }
}
