//! A test of this program as a child on a pseudo-terminal of its own.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

/// Set in the child alone.
pub const CHILD: &str = "STORMLOG_TEST_CHILD";

/// Runs the test `name` of this program on a terminal with the key presses `keys`, and checks that the terminal is as it was before:
/// how the child ended, and all it wrote.
pub fn on_a_terminal(name: &str, keys: &str) -> (ExitStatus, String) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap();
    let theirs: OwnedFd = open(path.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let before = tcgetattr(&theirs).unwrap();
    let end = || Stdio::from(theirs.try_clone().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env("TERM", "xterm-256color")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    let mut keyboard = std::fs::File::from(ours.try_clone().unwrap());
    keyboard.write_all(keys.as_bytes()).unwrap();
    let reader = std::thread::spawn({
        let mut ours = std::fs::File::from(ours.try_clone().unwrap());
        move || {
            let mut all = Vec::new();
            let mut piece = [0; 4096];
            // The last end of the terminal that closes is an error to the reader.
            while let Ok(count @ 1..) = ours.read(&mut piece) {
                all.extend_from_slice(&piece[..count]);
            }
            String::from_utf8_lossy(&all).into_owned()
        }
    });
    let status = child.wait().unwrap();
    let after = tcgetattr(&theirs).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
    assert_eq!(after.input_modes, before.input_modes);
    assert_eq!(after.output_modes, before.output_modes);
    drop(theirs);
    (status, reader.join().unwrap())
}
