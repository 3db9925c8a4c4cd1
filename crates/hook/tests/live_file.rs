//! The live file as the program and its disk see it: how large it gets, and which descriptor it takes.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use common::{capture, captures, directory, preloaded, prepare, python};
use stormlog_capture::layout::{DIRECTORY, SLOT_SIZE, flags, header, slot_state};

/// 800,000 blocks of their own, each freed at once.
const MANY: &str = "for _ in range(800_000): bytearray(600)";

#[test]
fn a_bounded_live_file_stays_bounded_without_a_compactor() {
    let Some(python) = python() else { return };
    let place = directory();
    let done = preloaded(Command::new(python).args(["-c", MANY]), place.path(), ";max=5000000");
    assert!(done.status.success());
    let capture = capture(place.path());
    let on_disk = capture.path.metadata().unwrap().blocks() * 512;
    assert!(on_disk < 3_000_000, "{on_disk} bytes");
    assert!(capture.lost > 10_000, "{} are counted as lost", capture.lost);
    assert_ne!(capture.flags & flags::BOUNDED, 0, "it is marked as bounded");
    assert!(capture.of_size(657).len() + capture.of_size(601).len() > 10_000, "what came before is there");
}

/// Hands full slots back as a compactor does that waits until nearly all are full; the number of slots that exist.
fn hand_back(live: &Path) -> usize {
    let file = std::fs::File::options().read(true).write(true).open(live).unwrap();
    // The program is just making it: it has a name before it has a size.
    if file.metadata().unwrap().len() < DIRECTORY as u64 {
        return 0;
    }
    let mut count = [0; 4];
    file.read_exact_at(&mut count, header::SLOT_COUNT as u64).unwrap();
    let mut states = vec![0; u32::from_le_bytes(count) as usize];
    file.read_exact_at(&mut states, DIRECTORY as u64).unwrap();
    let full: Vec<usize> = (0..states.len()).filter(|index| states[*index] == slot_state::FULL).collect();
    if full.len() > 36 {
        for index in full {
            file.write_all_at(&[slot_state::FREE], (DIRECTORY + index) as u64).unwrap();
        }
    }
    states.len()
}

#[test]
fn a_bounded_live_file_loses_nothing_to_a_compactor_that_lags() {
    let Some(python) = python() else { return };
    let place = directory();
    let mut command = Command::new(python);
    prepare(command.args(["-c", MANY]), place.path(), ";max=5000000", &[]);
    let mut child = command.spawn().unwrap();
    let live = place.path().join(format!("heap-{}.bin.live", child.id()));
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        if live.exists() {
            most = most.max(hand_back(&live));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut lost = [0; 8];
    std::fs::File::open(&live).unwrap().read_exact_at(&mut lost, header::LOST_EVENTS as u64).unwrap();
    assert_eq!(u64::from_le_bytes(lost), 0);
    assert!(most * SLOT_SIZE < 3_000_000 && most > 36, "{most} slots");
}

#[test]
fn the_descriptor_is_at_no_number_the_program_can_get() {
    let Some(python) = python() else { return };
    // Under a limit that was lowered permanently, as `ulimit -n` does, every number can be opened, and what is open at the start is the same.
    let script = "
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
os.execv(sys.executable, [sys.executable, '-c', '''
import os
first = os.open('/', os.O_RDONLY)
numbers = [first]
try:
    while True: numbers.append(os.open('/', os.O_RDONLY))
except OSError as error:
    numbers.append(error.errno)
for number in range(first, 48): os.dup2(0, number)
print(numbers)
'''])
";
    let bare = Command::new(&python).args(["-c", script]).output().unwrap();
    let place = directory();
    let done = preloaded(Command::new(&python).args(["-c", script]), place.path(), "");
    assert_eq!(String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&bare.stdout));
    assert!(done.stdout.starts_with(b"[3, 4, 5"), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn a_program_that_closes_every_descriptor_is_recorded_on() {
    let Some(python) = python() else { return };
    let place = directory();
    let script = format!(
        "import os, resource
os.closerange(3, 100_000)
{MANY}
kept = bytearray(7_777_003)
assert os.open('/', os.O_RDONLY) == 3
"
    );
    let done = preloaded(Command::new(python).args(["-c", &script]), place.path(), "");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let all = captures(place.path());
    assert_eq!((all.len(), all[0].lost), (1, 0));
    assert_eq!(all[0].of_size(7_777_004).len() + all[0].of_size(7_777_003).len(), 1);
}
