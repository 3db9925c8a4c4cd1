//! What is known of a process beside its numbers, as metadata of its events: swap, stalls, file-backed memory, its share of shared pages.
//!
//! Changes rarely: every change makes the metadata of the next sample another one, and a recording has room for few.

use std::time::{Duration, Instant};

use serde_json::Value;
use stormlog_collect::process::ProcessReader;
use stormlog_model::Record;

/// How long what is swapped out is taken for current: reading it costs more than the sample itself.
pub(crate) const FACT_AGE: Duration = Duration::from_secs(1);
/// By these names `analyze` splits resident memory: what files or shared memory back, and what shared memory backs.
const FILE_BACKED: &str = "file_backed_bytes";
const SHARED_MEMORY: &str = "shared_memory_bytes";
/// By these it counts pages that several processes share once: the proportional set size, and the part of it that files back.
const PSS: &str = "pss_bytes";
const PSS_FILE: &str = "pss_file_bytes";
/// The kernel walks the page tables of the process for it: between two readings pass so many times what one took, and this at least.
const PSS_SHARE: u32 = 100;
const PSS_AGE: Duration = Duration::from_secs(10);
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

    /// How much of it files back: by that `analyze` tells a start, in which libraries are mapped, and files that are read, from work.
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
    pub(crate) fn read_pss(&mut self, reader: &ProcessReader, rss: Option<u64>) {
        let begin = Instant::now();
        let is_small = rss.is_some_and(|rss| rss <= PSS_MOST_RSS);
        if !is_small || self.next_pss.is_some_and(|next| begin < next) {
            return;
        }
        let detail = reader.detail().ok();
        self.next_pss = Some(begin + pss_pause(begin.elapsed()));
        let share = detail.and_then(|detail| Some((detail.pss?, detail.pss_file?)));
        if let Some((all, of_files)) = share
            && self.pss.update(all, self.since.elapsed(), Instant::now())
        {
            self.set(PSS, all.into());
            self.set(PSS_FILE, of_files.into());
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

/// The time between two readings, of which one took `cost`.
fn pss_pause(cost: Duration) -> Duration {
    (cost * PSS_SHARE).max(PSS_AGE)
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
        assert_eq!(pss_pause(Duration::from_millis(2)), Duration::from_secs(10));
        assert_eq!(pss_pause(Duration::from_millis(300)), Duration::from_secs(30));
        let mut facts = ProcessFacts::new();
        let reader = ProcessReader::open(std::process::id()).unwrap();
        facts.read_pss(&reader, Some(PSS_MOST_RSS + 1));
        assert!(facts.known().is_empty() && facts.next_pss.is_none(), "too large");
        facts.read_pss(&reader, Some(1));
        let known = |key: &str| facts.known()[key].as_u64().unwrap();
        assert!(known(PSS) > 0 && known(PSS_FILE) <= known(PSS));
        let next = facts.next_pss;
        facts.read_pss(&reader, Some(1));
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
