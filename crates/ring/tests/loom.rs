//! Every interleaving of the two protocols, at a size the model checker can exhaust.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p stormlog-ring --release --test loom`
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use stormlog_ring::frames::{Cursor, Frame, Frames, Full, Step};
use stormlog_ring::slots::{SlotState, Slots};

/// Words and one counter, as a mapped file has them.
struct Area {
    words: Vec<AtomicU64>,
    counter: AtomicU64,
}

impl Area {
    fn new(words: usize) -> Arc<Self> {
        Arc::new(Area { words: (0..words).map(|_| AtomicU64::new(0)).collect(), counter: AtomicU64::new(0) })
    }

    fn frames(&self) -> Frames<'_> {
        Frames::new(&self.words, &self.counter)
    }

    fn slots(&self, stride: usize) -> Slots<'_> {
        Slots::new(&self.words, stride, &self.counter)
    }
}

/// Two payload words that only belong together.
fn pair(value: u64) -> Vec<u8> {
    [value.to_le_bytes(), (value * 3).to_le_bytes()].concat()
}

fn frame(kind: u8) -> Frame {
    Frame { kind, definition: false, pid: u32::from(kind) }
}

/// Reads all there is; returns the kinds in order and how many frames were unfinished. Nothing may be torn.
fn read_frames(area: &Area) -> (Vec<u8>, usize) {
    let (mut cursor, mut payload) = (Cursor::start(area.words.len()), Vec::new());
    let (mut kinds, mut unfinished) = (Vec::new(), 0);
    loop {
        match area.frames().step(&mut cursor, &mut payload) {
            Step::Frame(frame) => {
                assert_eq!(payload, pair(u64::from(frame.kind)), "torn");
                kinds.push(frame.kind);
            }
            Step::Reserved { next, .. } => {
                unfinished += 1;
                cursor.skip_to(next);
            }
            Step::Damaged => panic!("damaged"),
            Step::Empty | Step::End => return (kinds, unfinished),
        }
    }
}

fn sorted(mut kinds: Vec<u8>) -> Vec<u8> {
    kinds.sort_unstable();
    kinds
}

#[test]
fn two_writers_and_a_reader_of_frames() {
    loom::model(|| {
        let area = Area::new(9);
        let writers = [1u8, 2].map(|kind| {
            let area = area.clone();
            thread::spawn(move || area.frames().append(frame(kind), &pair(u64::from(kind))).unwrap())
        });
        let (seen, _) = read_frames(&area);
        for writer in writers {
            writer.join().unwrap();
        }
        let (all, unfinished) = read_frames(&area);
        assert_eq!((sorted(all.clone()), unfinished), (vec![1, 2], 0));
        assert!(seen.iter().all(|kind| all.contains(kind)));
    });
}

#[test]
fn writer_that_stops_after_its_reservation_hides_no_record() {
    loom::model(|| {
        let area = Area::new(13);
        let dying = area.clone();
        let dead = thread::spawn(move || drop(dying.frames().reserve(frame(1), 16)));
        let writing = area.clone();
        let writer = thread::spawn(move || {
            for kind in [2, 3] {
                writing.frames().append(frame(kind), &pair(u64::from(kind))).unwrap();
                let (seen, _) = read_frames(&writing);
                assert!(seen.contains(&kind), "an append that returned is not there");
            }
        });
        dead.join().unwrap();
        writer.join().unwrap();
        assert_eq!(read_frames(&area), (vec![2, 3], 1));
    });
}

#[test]
fn sealing_loses_no_append_that_returned() {
    loom::model(|| {
        let area = Area::new(9);
        let writing = area.clone();
        let writer = thread::spawn(move || writing.frames().append(frame(1), &pair(1)));
        let sealing = area.clone();
        let sealer = thread::spawn(move || sealing.frames().seal());
        let appended = writer.join().unwrap();
        let used = sealer.join().unwrap();
        let (kinds, unfinished) = read_frames(&area);
        assert!(area.frames().is_sealed());
        assert_eq!(unfinished, 0);
        match appended {
            Ok(()) => assert_eq!((kinds, used), (vec![1], 5)),
            Err(Full) => assert_eq!((kinds, used), (vec![], 1)),
        }
    });
}

const STRIDE: usize = 3;

/// Reads the window once; the values found, in ticket order.
fn read_slots(area: &Area) -> Vec<u8> {
    let (slots, mut payload, mut kinds) = (area.slots(STRIDE), Vec::new(), Vec::new());
    let head = slots.head();
    let mut ticket = head.saturating_sub(slots.count() as u64);
    while ticket < head {
        ticket += match slots.read(ticket, &mut payload) {
            SlotState::Record { kind, slots, .. } => {
                let words: Vec<u8> = if slots == 1 { vec![kind; 8] } else { pair(u64::from(kind)) };
                assert_eq!(payload, words, "torn");
                kinds.push(kind);
                slots as u64
            }
            SlotState::Damaged => panic!("damaged"),
            SlotState::Unfinished | SlotState::Overwritten | SlotState::Nothing => 1,
        };
    }
    kinds
}

/// Bounded, since the sequence locks have too many interleavings to exhaust within a minute.
fn bounded(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(check);
}

#[test]
fn two_writers_lapping_and_a_reader_of_slots() {
    bounded(3, || {
        let area = Area::new(4 * STRIDE);
        let slots = area.slots(STRIDE);
        for kind in 10..13 {
            slots.append(1, kind, &[kind; 8], |_| false).unwrap();
        }
        let writers = [1u8, 2].map(|kind| {
            let area = area.clone();
            // Single slots: the writer that gets the later ticket laps the oldest record.
            thread::spawn(move || {
                area.slots(STRIDE).append(u32::from(kind), kind, &[kind; 8], |_| false).is_ok()
            })
        });
        let seen = read_slots(&area);
        assert!(seen.windows(2).all(|two| two[0] < two[1] || two[1] < 10), "out of order: {seen:?}");
        let done = writers.map(|writer| writer.join().unwrap());
        let kinds = read_slots(&area);
        for (kind, done) in [(1, done[0]), (2, done[1])] {
            assert_eq!(kinds.contains(&kind), done, "returned and lost, or lost and returned: {kinds:?}");
        }
        assert_eq!(kinds[..2], [11, 12]);
    });
}

#[test]
fn a_record_of_two_slots_is_read_whole_or_not_at_all() {
    bounded(3, || {
        // Room for 8 slots, so that two make the largest record; it straddles the wrap.
        let area = Area::new(8 * STRIDE);
        let slots = area.slots(STRIDE);
        for kind in 10..17 {
            slots.append(1, kind, &[kind; 8], |_| false).unwrap();
        }
        let writing = area.clone();
        let writer = thread::spawn(move || {
            writing.slots(STRIDE).append(2, 1, &pair(1), |_| false).unwrap();
            writing.slots(STRIDE).append(2, 2, &[2; 8], |_| false).unwrap();
        });
        let seen = read_slots(&area);
        assert!(!seen.contains(&2) || seen.contains(&1), "{seen:?}");
        writer.join().unwrap();
        assert_eq!(read_slots(&area), [12, 13, 14, 15, 16, 1, 2]);
    });
}

#[test]
fn the_slot_of_a_dead_writer_is_taken_over_once() {
    bounded(3, || {
        let area = Area::new(4 * STRIDE);
        let slots = area.slots(STRIDE);
        let stuck = slots.take(1);
        slots.claim(9, stuck, 0, |_| false).unwrap();
        slots.take(3); // the next ticket comes round to the dead writer's slot
        let writers = [1u8, 2].map(|kind| {
            let area = area.clone();
            thread::spawn(move || area.slots(STRIDE).append(1, kind, &[kind; 8], |pid| pid == 9).is_ok())
        });
        read_slots(&area);
        let done = writers.map(|writer| writer.join().unwrap());
        assert_eq!(done, [true, true]);
        assert_eq!(sorted(read_slots(&area)), [1, 2]);
    });
}

#[test]
fn lapped_writer_does_not_overwrite_the_newer_record() {
    loom::model(|| {
        let area = Area::new(4 * STRIDE);
        let late = area.slots(STRIDE).take(1);
        area.slots(STRIDE).take(3);
        let claiming = area.clone();
        let lapped = thread::spawn(move || claiming.slots(STRIDE).claim(1, late, 0, |_| false).is_ok());
        let done = area.slots(STRIDE).append(2, 7, &[7; 8], |_| false).is_ok();
        let claimed = lapped.join().unwrap();
        assert_ne!(done, claimed, "one of the two is in the other's way");
        assert_eq!(read_slots(&area), if done { vec![7] } else { vec![] });
    });
}
