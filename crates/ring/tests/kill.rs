//! Kills real writers, several hundred times, at random moments, and asks the files what they know.
//!
//! The writing program is this test binary started again. Its threads and forked children each own a *lane*: they append the
//! numbers 0, 1, 2… and, after each append that returned, say so in a mapping of their own.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::collections::BTreeMap;
use std::env;
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use common::{SharedWords, fork, wait};
use stormlog_ring::{
    AppendError, DefId, Definition, Definitions, Log, LogConfig, LogReader, LogWriter, Ring, RingConfig,
    RingReader, RingWriter, Status,
};

const KILLS: u64 = 160; // whole programs of each kind, beside the children these kill themselves
const LANES: usize = 6;
/// From this lane on, writers are killed while the others continue; their successor may repeat the one number that was
/// appended and not yet acknowledged.
const MORTAL: usize = 4;
/// Counts the killed children, after the lanes' words.
const CHILDREN: usize = LANES;
const ROLE: &str = "STORMLOG_TEST_KILL_ROLE";
const PLACE: &str = "STORMLOG_TEST_KILL_DIR";
const RING_SLOTS: u64 = 512;
/// Slots that may have been claimed after the last whole record: the largest record of each writer, and of the children that were killed just before.
const MOST_UNFINISHED: u64 = 8 * 2 * LANES as u64;

/// A small generator of its own, so that a failing round can be run again.
fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn definition(lane: u64, number: u64) -> Definition {
    Definition::new(format!("lane {lane}, hundred {}", number / 100).as_bytes())
}

/// The only payload record `number` of a lane can have: every byte follows from the two.
fn payload(lane: u64, number: u64) -> Vec<u8> {
    let seed = mix(lane << 48 ^ number);
    let mut bytes = [lane, number, definition(lane, number).id().0].map(u64::to_le_bytes).concat();
    let filler = if seed.is_multiple_of(50) { 1500 } else { seed % 90 };
    bytes.extend((0..filler).map(|at| (seed >> (at % 57)) as u8));
    bytes
}

/// Checks one record and returns its lane and number.
fn verify(payload_read: &[u8], definitions: &Definitions) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(payload_read[at..at + 8].try_into().unwrap());
    let (lane, number) = (word(0), word(8));
    assert_eq!(payload_read, payload(lane, number), "torn: lane {lane}, number {number}");
    let expected = format!("lane {lane}, hundred {}", number / 100);
    assert_eq!(definitions.get(DefId(word(16))), Some(expected.as_bytes()), "definition not in reach");
    (lane, number)
}

trait Append: Send + Clone {
    fn put(&mut self, payload: &[u8], definition: &Definition) -> Result<(), AppendError>;
}

impl Append for LogWriter {
    fn put(&mut self, payload: &[u8], definition: &Definition) -> Result<(), AppendError> {
        self.append(1, payload, &[definition])
    }
}

impl Append for RingWriter {
    fn put(&mut self, payload: &[u8], definition: &Definition) -> Result<(), AppendError> {
        self.append(1, payload, &[definition])
    }
}

fn write_lane(mut writer: impl Append, acknowledged: &SharedWords, lane: usize) {
    let mut number = acknowledged[lane].load(Ordering::Relaxed);
    let mut definition_now = definition(lane as u64, number);
    loop {
        if number.is_multiple_of(100) {
            definition_now = definition(lane as u64, number);
        }
        // A ring may refuse a record whose slot a live writer still holds; it is then not there, and is tried again.
        if writer.put(&payload(lane as u64, number), &definition_now).is_ok() {
            number += 1;
            acknowledged[lane].store(number, Ordering::Release);
        }
    }
}

/// The program that gets killed: two threads, two children that stay, and children that it kills itself, over and over.
fn run(
    first: impl Append,
    another: impl Fn() -> Box<dyn FnOnce(&SharedWords, usize)>,
    acknowledged: &SharedWords,
) {
    thread::scope(|scope| {
        for lane in [0, 1] {
            let writer = first.clone();
            scope.spawn(move || write_lane(writer, acknowledged, lane));
        }
        while acknowledged[0].load(Ordering::Relaxed) < 20 {
            thread::yield_now();
        }
        fork(|| write_lane(first.clone(), acknowledged, 2));
        fork(|| another()(acknowledged, 3));
        for round in 0.. {
            let lane = MORTAL + round as usize % (LANES - MORTAL);
            let child = fork(|| write_lane(first.clone(), acknowledged, lane));
            thread::sleep(Duration::from_micros(mix(round) % 3000));
            // SAFETY: our own child, not waited for yet.
            unsafe { libc::kill(child, libc::SIGKILL) };
            wait(child);
            acknowledged[CHILDREN].fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Not a test but the program, when this binary is started by one of the tests below.
#[test]
fn program() {
    let (Ok(role), Some(place)) = (env::var(ROLE), env::var_os(PLACE)) else { return };
    let place = Path::new(&place);
    let file = OpenOptions::new().read(true).write(true).open(place.join("acknowledged")).unwrap();
    let acknowledged = SharedWords::new(&file, LANES + 1);
    if role == "log" {
        let config = LogConfig { segment_bytes: 32 << 10, ..LogConfig::default() };
        let log = Log::create(place.join("log"), config).unwrap();
        let fresh = || {
            let log = log.clone();
            Box::new(move |acknowledged: &SharedWords, lane| {
                write_lane(log.writer().unwrap(), acknowledged, lane);
            }) as Box<dyn FnOnce(&SharedWords, usize)>
        };
        run(log.writer().unwrap(), fresh, &acknowledged);
    } else {
        let config = RingConfig { slots: RING_SLOTS, definition_bytes: 4 << 20, ..RingConfig::default() };
        let ring = Ring::create(place.join("ring"), config).unwrap();
        let fresh = || {
            let ring = ring.clone();
            Box::new(move |acknowledged: &SharedWords, lane| {
                write_lane(ring.writer().unwrap(), acknowledged, lane);
            }) as Box<dyn FnOnce(&SharedWords, usize)>
        };
        run(ring.writer().unwrap(), fresh, &acknowledged);
    }
}

/// Starts the program in `place`, kills it and all its children after a while, and returns what was acknowledged.
fn start_and_kill(role: &str, place: &Path, round: u64) -> Vec<u64> {
    let file = File::create_new(place.join("acknowledged")).unwrap();
    drop(file);
    let file = OpenOptions::new().read(true).write(true).open(place.join("acknowledged")).unwrap();
    let acknowledged = SharedWords::new(&file, LANES + 1);
    let mut program = Command::new(env::current_exe().unwrap())
        .args(["--exact", "program"])
        .env(ROLE, role)
        .env(PLACE, place)
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while acknowledged[0].load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < deadline, "the program does not write");
        assert!(program.try_wait().unwrap().is_none(), "the program ended by itself");
        thread::sleep(Duration::from_micros(200));
    }
    thread::sleep(Duration::from_micros(mix(round) % 25_000));
    // SAFETY: the group was made for the program and holds it and its children only.
    assert_eq!(unsafe { libc::kill(-(program.id() as i32), libc::SIGKILL) }, 0);
    program.wait().unwrap();
    // A killed child may take a moment to go; what it still acknowledges must be there too.
    let status = || match role {
        "log" => LogReader::open(place.join("log")).unwrap().status(),
        _ => RingReader::open(place.join("ring")).unwrap().status(),
    };
    while !matches!(status(), Status::Died { .. }) {
        assert!(Instant::now() < deadline, "the program does not die: {:?}", status());
        thread::sleep(Duration::from_micros(200));
    }
    acknowledged.iter().map(|word| word.load(Ordering::Acquire)).collect()
}

#[test]
fn a_killed_log_holds_every_append_that_returned() {
    let (mut records, mut unfinished, mut segments, mut children) = (0, 0, 0, 0);
    for round in 0..KILLS {
        let place = tempfile::tempdir().unwrap();
        let acknowledged = start_and_kill("log", place.path(), round);
        let mut reader = LogReader::open(place.path().join("log")).unwrap();
        let mut next = [0; LANES];
        while let Some(record) = reader.next() {
            let (lane, number) = verify(record.payload, record.definitions);
            let lane = lane as usize;
            let again = lane >= MORTAL && number + 1 == next[lane];
            assert!(
                again || number == next[lane],
                "round {round}, lane {lane}: {number} after {}",
                next[lane]
            );
            next[lane] = number + 1;
        }
        for (lane, &count) in acknowledged[..LANES].iter().enumerate() {
            assert!(
                next[lane] >= count,
                "round {round}, lane {lane}: {count} acknowledged, {} found",
                next[lane]
            );
            assert!(next[lane] <= count + 1, "round {round}, lane {lane}: more found than begun");
        }
        let stats = reader.stats();
        assert_eq!(
            (stats.damaged, stats.missing_segments, reader.loss().records),
            (0, 0, 0),
            "round {round}"
        );
        assert!(
            stats.unfinished <= LANES as u64 + acknowledged[CHILDREN] + 1,
            "at most one for each that was killed"
        );
        children += acknowledged[CHILDREN];
        records += stats.records;
        unfinished += stats.unfinished;
        segments += std::fs::read_dir(place.path().join("log")).unwrap().count();
    }
    println!(
        "{KILLS} + {children} kills, {segments} segments, {records} records, {unfinished} found unfinished"
    );
}

#[test]
fn a_killed_ring_holds_the_newest_appends_that_returned() {
    let (mut records, mut unfinished, mut wrapped, mut children) = (0, 0, 0, 0);
    for round in 0..KILLS {
        let place = tempfile::tempdir().unwrap();
        let acknowledged = start_and_kill("ring", place.path(), round);
        let mut reader = RingReader::open(place.path().join("ring")).unwrap();
        let mut lanes: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let (mut window, mut end) = (reader.records(), 0);
        while let Some(record) = window.next() {
            let (lane, number) = verify(record.payload, record.definitions);
            lanes.entry(lane).or_default().push(number);
            end = record.position;
        }
        let stats = window.stats();
        // What was claimed overwrites the oldest records too, whole or not.
        let full = end + MOST_UNFINISHED >= RING_SLOTS;
        for (lane, &count) in acknowledged[..LANES].iter().enumerate() {
            // A lane may be missing when others have gone round since its last record; what is there has no gap and goes up
            // to the last acknowledged.
            let found = lanes.get(&(lane as u64)).map_or(&[][..], Vec::as_slice);
            let follows = |a: u64, b: u64| b == a + 1 || (lane >= MORTAL && b == a);
            assert!(
                found.windows(2).all(|two| follows(two[0], two[1])),
                "round {round}, lane {lane}: {found:?}"
            );
            match found.last() {
                Some(&last) => {
                    assert!((count..=count + 1).contains(&(last + 1)), "round {round}, lane {lane}: {last}")
                }
                None => assert!(
                    full || count == 0,
                    "round {round}, lane {lane}: {count} acknowledged, none found"
                ),
            }
            assert!(full || found.first().is_none_or(|&first| first == 0), "round {round}, lane {lane}");
        }
        assert_eq!(stats.damaged, 0, "round {round}");
        records += stats.records;
        unfinished += stats.unfinished;
        wrapped += u64::from(full);
        children += acknowledged[CHILDREN];
    }
    println!(
        "{KILLS} + {children} kills, {wrapped} wrapped, {records} records, {unfinished} found unfinished"
    );
}
