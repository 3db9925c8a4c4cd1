//! What the memory of the recorded processes is made of, looked at now and then by a thread of its own.
//!
//! The kernel walks page tables for it, milliseconds per gigabyte, so a look is asked for only when a process grew by a
//! tenth since its last one or the limit is near, and after each look a hundred times its duration must pass: at most a
//! hundredth of one core, however large the program. Sampling must never wait for it.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use stormlog_collect::process::{MapGroup, MapLimits, MapSummary, ProcessReader};
use stormlog_postmortem::bundle::MapRow;

/// Files named one by one.
const FILES: usize = 12;
/// Mappings read of one process; at about a microsecond each this bounds a look even at a shredded address space.
const MAPPINGS: u64 = 200_000;
/// Never more often than this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// The share of one core that looking may cost: one part in this many.
const SHARE: u32 = 100;
/// Near the limit, even without growth.
const PRESSED_PAUSE: Duration = Duration::from_secs(2);

/// What is known of one process's memory.
#[derive(Default)]
pub(crate) struct Mapped {
    pub(crate) rows: Vec<MapRow>,
    /// Resident bytes when it was looked at.
    rss: u64,
    at: Option<Instant>,
}

impl Mapped {
    /// How much there is to gain from a look; `None` when there is nothing.
    pub(crate) fn worth(&self, rss: u64, is_pressed: bool) -> Option<u64> {
        let is_old = self.at.is_none_or(|at| at.elapsed() >= PRESSED_PAUSE);
        let has_grown = rss > self.rss.saturating_add(self.rss / 10);
        (has_grown || (is_pressed && is_old)).then(|| rss.abs_diff(self.rss))
    }
}

/// A process by number and start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    pub(crate) rss: u64,
}

struct MapsResult {
    subject: Subject,
    rows: Vec<MapRow>,
    took: Duration,
}

/// Asks and hears from the thread that looks.
pub(crate) struct MapLooks {
    ask: SyncSender<Subject>,
    results: Receiver<MapsResult>,
    is_busy: bool,
    next: Instant,
}

impl MapLooks {
    /// Starts the thread, which ends with this. `None` when there can be none.
    pub(crate) fn start() -> Option<Self> {
        let (ask, asked) = sync_channel::<Subject>(1);
        let (sender, results) = sync_channel(1);
        let look = move || {
            for subject in asked {
                let began = Instant::now();
                let rows = look_at(subject).unwrap_or_default();
                if sender.send(MapsResult { subject, rows, took: began.elapsed() }).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new().name("stormlog-maps".into()).spawn(look).ok()?;
        Some(MapLooks { ask, results, is_busy: false, next: Instant::now() })
    }

    /// Whether a look may be asked for now.
    pub(crate) fn is_free(&self) -> bool {
        !self.is_busy && Instant::now() >= self.next
    }

    /// Asks for a look at a process.
    pub(crate) fn ask(&mut self, subject: Subject) {
        self.is_busy = self.ask.try_send(subject).is_ok();
    }

    /// What was found since the last call.
    pub(crate) fn hear(&mut self) -> Option<(Subject, Mapped)> {
        match self.results.try_recv() {
            Ok(MapsResult { subject, rows, took }) => {
                self.is_busy = false;
                self.next = Instant::now() + SHORTEST_PAUSE.max(took * SHARE);
                Some((subject, Mapped { rows, rss: subject.rss, at: Some(Instant::now()) }))
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

fn look_at(subject: Subject) -> Option<Vec<MapRow>> {
    let reader = ProcessReader::open(subject.pid).ok()?;
    if reader.start_time() != subject.start_time {
        return None;
    }
    let limits = MapLimits { top_files: FILES, mappings: MAPPINGS };
    reader.map_summary(limits).ok().map(rows)
}

/// The kinds first, then the largest files, which are parts of them; each by what is resident.
fn rows(summary: MapSummary) -> Vec<MapRow> {
    let kinds = [
        ("[heap]", summary.heap),
        ("[anon]", summary.anonymous),
        ("[stack]", summary.stack),
        ("[shared]", summary.shared_memory),
        ("[devices]", summary.devices),
        ("[files]", summary.files),
    ];
    let mut rows: Vec<MapRow> = kinds
        .into_iter()
        .filter(|(_, group)| group.mappings > 0)
        .map(|(name, group)| row(name.to_owned(), &group))
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.rss_bytes));
    rows.extend(summary.top_files.into_iter().map(|file| row(file.path, &file.group)));
    rows
}

fn row(name: String, group: &MapGroup) -> MapRow {
    MapRow {
        name,
        mappings: group.mappings,
        size_bytes: Some(group.size),
        rss_bytes: group.rss,
        swap_bytes: group.swap,
        pss_bytes: group.pss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stormlog_catalog::run::memory_map;

    #[test]
    fn our_own_memory_is_found_by_kind_and_by_file() {
        let mut reader = ProcessReader::this().unwrap();
        let subject = Subject {
            pid: std::process::id(),
            start_time: reader.start_time(),
            rss: reader.memory().unwrap().rss,
        };
        let mut looks = MapLooks::start().unwrap();
        assert!(looks.is_free());
        looks.ask(subject);
        assert!(!looks.is_free());
        let (_, mapped) = loop {
            match looks.hear() {
                Some(heard) => break heard,
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        assert!(!looks.is_free(), "the next one must wait");
        let of = |name: &str| mapped.rows.iter().find(|row| row.name == name).and_then(|row| row.rss_bytes);
        assert!(of("[anon]").unwrap() > 0 && of("[files]").unwrap() > 0);
        assert!(mapped.rows.iter().any(|row| row.name.starts_with('/')), "{:?}", mapped.rows);
        let directory = tempfile::tempdir().unwrap();
        memory_map::write(directory.path(), &mapped.rows);
        assert_eq!(memory_map::read(directory.path()), mapped.rows);
        memory_map::discard(directory.path());
        assert_eq!(memory_map::read(directory.path()), []);
    }

    #[test]
    fn another_process_of_the_same_number_is_not_looked_at() {
        assert_eq!(look_at(Subject { pid: std::process::id(), start_time: 1, rss: 1 }), None);
    }

    #[test]
    fn growth_by_a_tenth_is_worth_a_look_and_pressure_now_and_then() {
        let mapped = Mapped { rows: Vec::new(), rss: 1000, at: Some(Instant::now()) };
        assert_eq!(mapped.worth(1100, false), None);
        assert_eq!(mapped.worth(1101, false), Some(101));
        assert_eq!(mapped.worth(900, true), None, "one look is new enough");
        assert_eq!(Mapped::default().worth(0, true), Some(0));
    }
}
