//! Forks: a child must neither hang on its parent's locks, nor write its parent's records again, nor into its files.
//!
//! One test in this file, so that no other test's threads run while it forks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use stormlog_store::sink::{Sink, SinkConfig, segment_paths};

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
}

/// Runs `child` in a forked process. False when it failed or had not ended after ten seconds.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs test code and leaves by `_exit`, without returning to the harness. It may allocate: glibc
    // makes its allocator usable after a fork.
    let pid = unsafe { fork() };
    if pid == 0 {
        let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: ends the child here; nothing of the parent's is torn down.
        unsafe { _exit(i32::from(!ok)) };
    }
    let pid = Pid::from_raw(pid).expect("fork");
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG).unwrap() {
            return status.exit_status() == Some(0);
        }
        thread::sleep(Duration::from_millis(2));
    }
    let _ = kill_process(pid, Signal::KILL);
    let _ = waitpid(Some(pid), WaitOptions::empty());
    false
}

#[test]
fn a_forked_child_writes_its_own() {
    let root = tempfile::tempdir().unwrap();
    let config = SinkConfig {
        write_rollups: false,
        flush_every_events: 1000,
        flush_every_seconds: 0.05,
        retention_max_files: 1000,
        ..SinkConfig::new(root.path())
    };
    let sink = Sink::open(config, "h").unwrap();
    sink.append(r#"{"who": "parent"}"#, Some("s")).unwrap();
    sink.flush(true).unwrap();
    sink.append(r#"{"who": "parent, buffered"}"#, Some("s")).unwrap();
    assert!(in_child(|| {
        // The child's own thread flushes it without a request.
        sink.append(r#"{"who": "child"}"#, Some("s")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while sink.failure_diagnostics().buffered_records > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        sink.failure_diagnostics().buffered_records == 0
            && sink.current_session().is_some_and(|session| session.session_id == "s")
    }));
    sink.flush(true).unwrap();

    // The same while other threads of the parent are inside the sink all the time.
    let stop = AtomicBool::new(false);
    let mut forks = 0;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    sink.append(r#"{"who": "thread"}"#, Some("s")).unwrap();
                    sink.flush(true).unwrap();
                }
            });
        }
        while forks < 40 {
            let fine = in_child(|| {
                sink.append(r#"{"who": "grandchild"}"#, Some("s")).unwrap();
                sink.flush(true).unwrap();
                true
            });
            if !fine {
                break;
            }
            forks += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(forks, 40, "a child hung or failed");
    sink.flush(true).unwrap();

    let text: String =
        segment_paths(root.path()).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let count = |who: &str| text.lines().filter(|line| *line == format!(r#"{{"who": "{who}"}}"#)).count();
    assert_eq!(
        [count("parent"), count("parent, buffered"), count("child"), count("grandchild")],
        [1, 1, 1, 40],
        "every record once"
    );
    assert_eq!(text.lines().count(), 43 + count("thread"), "no line is torn");
}
