//! Real processes, reaped by another process than the holder of the pidfd.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use stormlog_pidfd::Pidfd;

/// Whether this kernel remembers exit codes; before 6.15 it does not, which is not an error.
fn remembers() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 15)
}

#[test]
fn an_exit_code_outlives_its_reaping() {
    let mut shell = Command::new("sh");
    let mut child = shell.args(["-c", "read wait; exit 7"]).stdin(Stdio::piped()).spawn().unwrap();
    let held = Pidfd::open(child.id()).unwrap();
    assert_eq!(held.exit_status(), None);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(held.exit_status().map(|status| status.code()), remembers().then_some(Some(7)));
}

#[test]
fn signal_is_distinguished_from_an_exit() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let held = Pidfd::open(child.id()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(held.exit_status().map(|status| status.signal()), remembers().then_some(Some(9)));
}

#[test]
fn unused_pid_is_an_error() {
    assert!(Pidfd::open(0).is_err());
    assert!(Pidfd::open(u32::MAX).is_err());
    assert!(Pidfd::open(i32::MAX as u32).is_err());
}
