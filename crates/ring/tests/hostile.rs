//! What others do to our files while we write them: truncate, delete, fill the disk, take our signal, close our descriptors.
//! Each time the writing program must continue, and what is lost must be known.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "in a test a panic is the report")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{drain, fork, isolated, wait, window};
use stormlog_ring::{
    AppendError, Error, Log, LogConfig, LogReader, LogWriter, LossReason, Ring, RingConfig, RingReader,
    RingWriter,
};

fn log_in(dir: &Path, segment_bytes: u64) -> (Log, LogWriter) {
    let log = Log::create(dir, LogConfig { segment_bytes, ..LogConfig::default() }).unwrap();
    let writer = log.writer().unwrap();
    (log, writer)
}

fn ring_at(path: &Path) -> (Ring, RingWriter) {
    let config = RingConfig { slots: 64, definition_bytes: 4096, ..RingConfig::default() };
    let ring = Ring::create(path, config).unwrap();
    let writer = ring.writer().unwrap();
    (ring, writer)
}

/// Truncates as another process does.
fn truncate(path: &Path, bytes: u64) {
    assert!(Command::new("truncate").arg("-s").arg(bytes.to_string()).arg(path).status().unwrap().success());
}

/// Appends numbered records for as long as `more` says; returns how many appends returned `Ok`.
fn append_while(
    mut append: impl FnMut(&[u8]) -> Result<(), AppendError>,
    mut more: impl FnMut(u64, Result<(), AppendError>) -> bool,
) -> u64 {
    let (mut number, mut done) = (0u64, 0);
    loop {
        let result = append(&[number.to_le_bytes().as_slice(), &[5; 100]].concat());
        done += u64::from(result.is_ok());
        number += 1;
        if !more(number, result) {
            return done;
        }
    }
}

/// Continues until something was lost and then some time longer, in which appends must succeed again.
fn until_recovered() -> impl FnMut(u64, Result<(), AppendError>) -> bool {
    let (start, mut lost_at, mut good) = (Instant::now(), None, 0);
    move |_, result| {
        assert!(start.elapsed() < Duration::from_secs(20), "no recovery");
        if result.is_err() {
            lost_at.get_or_insert_with(Instant::now);
            good = 0;
            thread::sleep(Duration::from_millis(5));
        } else {
            good += u64::from(lost_at.is_some());
        }
        good < 100
    }
}

#[test]
fn log_truncated_while_written_keeps_accepting_appends() {
    isolated("log_truncated_while_written_keeps_accepting_appends", || {
        for keep in [0, 4096, 100_001, 300_000] {
            let dir = tempfile::tempdir().unwrap();
            let (log, mut writer) = log_in(dir.path(), 16 << 20);
            for number in 0..5000u64 {
                writer.append(0, &[&number.to_le_bytes()[..], &[0; 112]].concat(), &[]).unwrap();
            }
            truncate(&dir.path().join("000001.slog"), keep);
            let done = append_while(|payload| writer.append(1, payload, &[]), until_recovered_or_intact());
            let loss = writer.loss();
            assert!(loss.records > 0, "kept {keep}");
            assert_eq!(loss.reason, Some(LossReason::Truncated));
            assert!(dir.path().join("000002.slog").exists());
            let mut reader = LogReader::open(dir.path()).unwrap();
            let found = drain(&mut reader).len() as u64;
            assert!(found + loss.records >= 5000 + done, "kept {keep}: {found} + {loss:?} of {done}");
            assert_eq!(reader.loss(), loss, "the file knows");
            drop(log);
        }
    });
}

/// For truncations that need not fail a single append: continues for some checks' time, and for as many appends as a ring holds
/// and more after that, however long the machine was busy elsewhere.
fn until_recovered_or_intact() -> impl FnMut(u64, Result<(), AppendError>) -> bool {
    let (start, mut good) = (Instant::now(), 0);
    move |_, result| {
        let passed = start.elapsed();
        assert!(passed < Duration::from_secs(20), "no recovery");
        good += u64::from(passed >= Duration::from_millis(150) && result.is_ok());
        good < 200
    }
}

#[test]
fn files_truncated_again_and_again_under_many_threads() {
    isolated("files_truncated_again_and_again_under_many_threads", || {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("log");
        let path = dir.path().join("ring");
        let (log, _) = log_in(&place, 256 << 10);
        let (ring, _) = ring_at(&path);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0u64.. {
                    let newest =
                        fs::read_dir(&place).unwrap().flatten().map(|entry| entry.path()).max().unwrap();
                    for file in [newest, path.clone()] {
                        // In place, not by name: the file may have moved on meanwhile.
                        if let Ok(file) = OpenOptions::new().write(true).open(file) {
                            file.set_len(round * 977 % 200_000).unwrap();
                        }
                    }
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    thread::sleep(Duration::from_millis(round % 15));
                }
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(mut reader) = LogReader::open(&place) {
                        assert!(drain(&mut reader).iter().all(|(_, payload)| payload[8..] == [5; 100]));
                    }
                    if let Ok(mut reader) = RingReader::open(&path) {
                        assert!(window(&mut reader).0.iter().all(|(_, payload)| payload[8..] == [5; 100]));
                    }
                }
            });
            let threads = [0, 1, 2].map(|_| {
                let (mut log, mut ring) = (log.writer().unwrap(), ring.writer().unwrap());
                scope.spawn(move || {
                    let begun = Instant::now();
                    // Until it was hit, which a busy machine may put off.
                    loop {
                        let end = Instant::now() + Duration::from_millis(600);
                        let both = |payload: &[u8]| {
                            let _ = ring.append(1, payload, &[]);
                            log.append(1, payload, &[])
                        };
                        append_while(both, |_, _| Instant::now() < end);
                        let lost = (log.loss().records, ring.loss().records);
                        if (lost.0 > 0 && lost.1 > 0) || begun.elapsed() > Duration::from_secs(20) {
                            return lost;
                        }
                    }
                })
            });
            let lost = threads.map(|thread| thread.join());
            is_over.store(true, Ordering::Relaxed);
            for lost in lost {
                let (log, ring) = lost.unwrap();
                assert!(log > 0 && ring > 0);
            }
        });
        assert!(!drain(&mut LogReader::open(&place).unwrap()).is_empty());
    });
}

#[test]
fn ring_truncated_while_written_is_recreated() {
    isolated("ring_truncated_while_written_is_recreated", || {
        for keep in [0, 5000, 10_000] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("ring");
            let (_ring, mut writer) = ring_at(&path);
            let mut reader = RingReader::open(&path).unwrap();
            writer.append(0, b"before", &[]).unwrap();
            truncate(&path, keep);
            append_while(|payload| writer.append(1, payload, &[]), until_recovered_or_intact());
            assert!(writer.loss().records > 0);
            let (records, stats) = window(&mut RingReader::open(&path).unwrap());
            assert_eq!((records.len(), stats.damaged, stats.truncated), (64, 0, 0), "kept {keep}");
            assert_eq!(RingReader::open(&path).unwrap().loss(), writer.loss());
            assert!(reader.is_stale());
            window(&mut reader); // the old file, now with holes: no signal, and nothing torn
        }
    });
}

#[test]
fn deleted_files_are_recreated() {
    let dir = tempfile::tempdir().unwrap();
    let (_log, mut writer) = log_in(&dir.path().join("log"), 1 << 20);
    writer.append(0, b"gone", &[]).unwrap();
    fs::remove_file(dir.path().join("log/000001.slog")).unwrap();
    append_while(|payload| writer.append(1, payload, &[]), until_recovered_or_intact());
    assert_eq!(writer.loss().reason, Some(LossReason::Removed));
    let mut reader = LogReader::open(dir.path().join("log")).unwrap();
    assert!(drain(&mut reader).len() > 100);
    assert_eq!(reader.loss(), writer.loss());

    let path = dir.path().join("ring");
    let (_ring, mut writer) = ring_at(&path);
    writer.append(0, b"gone", &[]).unwrap();
    fs::remove_file(&path).unwrap();
    append_while(|payload| writer.append(1, payload, &[]), until_recovered_or_intact());
    assert_eq!(writer.loss().reason, Some(LossReason::Removed));
    assert_eq!(window(&mut RingReader::open(&path).unwrap()).0.len(), 64);
}

#[test]
fn a_deleted_directory_costs_records_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("log");
    let (_log, mut writer) = log_in(&place, 1 << 20);
    writer.append(0, b"gone", &[]).unwrap();
    fs::remove_dir_all(&place).unwrap();
    thread::sleep(Duration::from_millis(60));
    assert_eq!(writer.append(1, b"nowhere", &[]), Err(AppendError::Lost(LossReason::Removed)));
    assert_eq!(writer.loss().records, 2);
    fs::create_dir(&place).unwrap();
    append_while(|payload| writer.append(1, payload, &[]), until_recovered());
    assert!(!place.join("000001.slog").exists(), "numbers are not used twice");
    assert_eq!(LogReader::open(&place).unwrap().loss(), writer.loss());
}

/// A small file system of its own, gone when dropped. `None` where mounting is not permitted.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(dir));
        }
        eprintln!("skipped: mounting a tmpfs is not permitted here");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_costs_records_until_there_is_room() {
    let Some(disk) = SmallDisk::new("size=1m") else { return };
    let place = disk.0.path().join("log");
    File::create(disk.0.path().join("other")).unwrap().write_all(&[1; 500_000]).unwrap();
    let (log, mut writer) = log_in(&place, 128 << 10);
    let done = append_while(|payload| writer.append(1, payload, &[]), |_, result| result.is_ok());
    assert!(done > 2000);
    let lost = append_while(|payload| writer.append(1, payload, &[]), |number, _| number < 5000);
    assert_eq!(lost, 0);
    let mut reader = LogReader::open(&place).unwrap();
    assert_eq!(reader.loss(), writer.loss(), "known while the disk is still full");
    assert_eq!((writer.loss().records, writer.loss().reason), (5001, Some(LossReason::NoSpace)));
    assert_eq!(drain(&mut reader).len() as u64, done);
    fs::remove_file(disk.0.path().join("other")).unwrap();
    let again = append_while(|payload| writer.append(2, payload, &[]), until_recovered_after_loss());
    assert_eq!(drain(&mut reader).len() as u64, again, "the same reader follows");
    assert_eq!(reader.loss(), writer.loss());
    assert!(matches!(Ring::create(disk.0.path().join("ring"), RingConfig::default()), Err(Error::Io { .. })));
    assert_eq!(fs::read_dir(disk.0.path()).unwrap().count(), 1, "nothing half-made is left");
    drop(log);
}

/// As `until_recovered`, when the first loss has been already.
fn until_recovered_after_loss() -> impl FnMut(u64, Result<(), AppendError>) -> bool {
    let (start, mut good) = (Instant::now(), 0);
    move |_, result| {
        assert!(start.elapsed() < Duration::from_secs(20), "no recovery");
        good += u64::from(result.is_ok());
        if result.is_err() {
            thread::sleep(Duration::from_millis(5));
        }
        good < 100
    }
}

#[test]
fn a_read_only_disk_is_a_plain_error() {
    let Some(disk) = SmallDisk::new("size=1m,ro") else { return };
    for error in [
        Ring::create(disk.0.path().join("ring"), RingConfig::default()).err(),
        Log::create(disk.0.path().join("log"), LogConfig::default()).err(),
        Log::create(disk.0.path(), LogConfig::default()).err(),
    ] {
        let Some(Error::Io { source, .. }) = error else { panic!("{error:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(Log::create(file.path(), LogConfig::default()), Err(Error::Io { .. })));
}

#[test]
fn a_directory_that_may_no_longer_be_written_costs_records() {
    isolated("a_directory_that_may_no_longer_be_written_costs_records", || {
        const NOBODY: u32 = 65534;
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("log");
        fs::create_dir(&place).unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let root = chown(&place, Some(NOBODY), Some(NOBODY)).is_ok();
        let child = fork(|| {
            // Root may write anywhere, so the writer is not root.
            // SAFETY: changes only this single-threaded child's credentials.
            assert!(!root || unsafe { libc::setuid(NOBODY) } == 0);
            let (_log, mut writer) = log_in(&place, 8 << 10);
            fs::set_permissions(&place, PermissionsExt::from_mode(0o555)).unwrap();
            let done = append_while(|payload| writer.append(1, payload, &[]), |number, _| number < 1000);
            assert_eq!(done + writer.loss().records, 1000);
            assert_eq!(writer.loss().reason, Some(LossReason::NotPermitted));
            fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
            append_while(|payload| writer.append(1, payload, &[]), until_recovered_after_loss());
        });
        assert_eq!(wait(child), 0);
        assert!(LogReader::open(&place).unwrap().loss().records > 900);
    });
}

#[test]
fn file_size_limit_raises_no_signal() {
    isolated("file_size_limit_raises_no_signal", || {
        let dir = tempfile::tempdir().unwrap();
        let (_log, mut writer) = log_in(&dir.path().join("log"), 64 << 10);
        let limit = libc::rlimit { rlim_cur: 16 << 10, rlim_max: 16 << 10 };
        // SAFETY: `limit` is valid for the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        append_while(|payload| writer.append(1, payload, &[]), |number, _| number < 2000);
        assert_eq!(writer.loss().reason, Some(LossReason::NoSpace));
        assert!(Ring::create(dir.path().join("ring"), RingConfig::default()).is_err());
    });
}

static FIRST_HANDLER: AtomicU64 = AtomicU64::new(0);
static SECOND_HANDLER: AtomicU64 = AtomicU64::new(0);
static REPLACED: AtomicU64 = AtomicU64::new(0);

extern "C" fn first_handler(_: libc::c_int) {
    FIRST_HANDLER.fetch_add(1, Ordering::Relaxed);
}

/// Counts, and then calls the handler it replaced, as well-mannered ones do.
extern "C" fn second_handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    SECOND_HANDLER.fetch_add(1, Ordering::Relaxed);
    let replaced = REPLACED.load(Ordering::Relaxed) as usize;
    // SAFETY: the test stored here the handler this one replaced, which has SA_SIGINFO.
    let replaced = unsafe {
        std::mem::transmute::<usize, extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)>(
            replaced,
        )
    };
    replaced(signal, info, context);
}

fn set_handler(handler: usize, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: plain data, valid as zeros; the handlers above have the signatures their flags promise.
    unsafe {
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGBUS, &new, &mut old), 0);
        old
    }
}

#[test]
fn a_stolen_signal_is_taken_back_and_the_thief_still_served() {
    isolated("a_stolen_signal_is_taken_back_and_the_thief_still_served", || {
        set_handler(first_handler as *const () as usize, 0);
        let dir = tempfile::tempdir().unwrap();
        let (_log, mut writer) = log_in(dir.path(), 4 << 20);
        writer.append(0, b"installs ours", &[]).unwrap();
        let ours = set_handler(second_handler as *const () as usize, libc::SA_SIGINFO);
        REPLACED.store(ours.sa_sigaction as u64, Ordering::Relaxed);
        append_while(|payload| writer.append(1, payload, &[]), until_recovered_or_intact());
        let number = fs::read_dir(dir.path()).unwrap().count();
        truncate(&dir.path().join(format!("{number:06}.slog")), 0);
        append_while(|payload| writer.append(1, payload, &[]), until_recovered_or_intact());
        assert!(writer.loss().records > 0);
        assert_eq!(SECOND_HANDLER.load(Ordering::Relaxed), 0, "a fault of ours is ours");
        // A signal that is not ours goes down the line: us, the thief, us as it knew us, the first.
        // SAFETY: sends a signal that is handled.
        unsafe { libc::raise(libc::SIGBUS) };
        assert_eq!(SECOND_HANDLER.load(Ordering::Relaxed), 1);
        assert_eq!(FIRST_HANDLER.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_fault_that_is_not_ours_still_kills() {
    isolated("a_fault_that_is_not_ours_still_kills", || {
        let dir = tempfile::tempdir().unwrap();
        let (_log, _writer) = log_in(dir.path(), 1 << 20);
        let file = tempfile::tempfile().unwrap();
        let foreign = common::SharedWords::new(&file, 512);
        file.set_len(0).unwrap();
        let child = fork(|| _ = foreign[0].load(Ordering::Relaxed));
        let status = wait(child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:#x}");
    });
}

#[test]
fn descriptors_closed_under_us_are_neither_used_nor_closed() {
    isolated("descriptors_closed_under_us_are_neither_used_nor_closed", || {
        let dir = tempfile::tempdir().unwrap();
        let (log, mut writer) = log_in(&dir.path().join("log"), 64 << 10);
        let (ring, mut ring_writer) = ring_at(&dir.path().join("ring"));
        // As a program does that turns itself into a daemon.
        // SAFETY: nothing in this process uses these descriptors but the files under test.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        let mut users: Vec<File> = (0..4)
            .map(|n| {
                let path = dir.path().join(format!("user{n}"));
                OpenOptions::new().create_new(true).read(true).write(true).open(path).unwrap()
            })
            .collect();
        for file in &mut users {
            file.write_all(&[7; 100_000]).unwrap();
        }
        append_while(|payload| ring_writer.append(1, payload, &[]), until_recovered_or_intact());
        let done = append_while(|payload| writer.append(1, payload, &[]), |number, _| number < 5000);
        assert_eq!((done, writer.loss().records, ring_writer.loss().records), (5000, 0, 0));
        drop((log, writer, ring, ring_writer));
        for (number, file) in users.iter_mut().enumerate() {
            file.flush().unwrap();
            let mut content = Vec::new();
            File::open(dir.path().join(format!("user{number}"))).unwrap().read_to_end(&mut content).unwrap();
            assert_eq!(content, [7; 100_000]);
            assert_eq!(file.metadata().unwrap().len(), 100_000, "still open");
        }
        assert_eq!(drain(&mut LogReader::open(dir.path().join("log")).unwrap()).len(), 5000);
    });
}

#[test]
fn file_truncated_under_its_reader_raises_no_signal() {
    isolated("file_truncated_under_its_reader_raises_no_signal", || {
        let dir = tempfile::tempdir().unwrap();
        let (log, mut writer) = log_in(dir.path(), 1 << 20);
        for number in 0..5000u32 {
            writer.append(0, &number.to_le_bytes(), &[]).unwrap();
        }
        let mut reader = LogReader::open(dir.path()).unwrap();
        assert_eq!(reader.next().unwrap().payload, 0u32.to_le_bytes());
        drop((log, writer));
        truncate(&dir.path().join("000001.slog"), 4096 + 8000);
        let rest = drain(&mut reader);
        assert!(rest.len() < 4000);
        assert!(rest.iter().zip(1u32..).all(|((_, payload), number)| payload == &number.to_le_bytes()));
        assert_eq!(reader.stats().truncated, 1);
    });
}
