//! After a panic the terminal is as it was, and the panic's message can be read.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use stormlog_tui::LiveTarget;

const CHILD: &str = "STORMLOG_TEST_PANICS";

/// Only as a child of the test below: a view whose caller panics once it is on screen.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        let asked = std::cell::Cell::new(0);
        let is_over = || {
            asked.set(asked.get() + 1);
            assert!(asked.get() < 3, "as the test wants it");
            false
        };
        let _ = stormlog_tui::live_until(&LiveTarget::Process(std::process::id()), &is_over);
    }
}

#[test]
fn a_panic_gives_the_terminal_back() {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs: OwnedFd = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let before = tcgetattr(&theirs).unwrap();
    let end = || Stdio::from(theirs.try_clone().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
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
    assert!(!child.wait().unwrap().success());
    let after = tcgetattr(&theirs).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
    assert_eq!(after.input_modes, before.input_modes);
    assert_eq!(after.output_modes, before.output_modes);
    drop(theirs);
    let shown = reader.join().unwrap();
    let taken = shown.find("\x1b[?1049h").expect("the alternate screen was taken");
    let left = shown.rfind("\x1b[?1049l").expect("the alternate screen was left");
    let cursor = left + shown[left..].find("\x1b[?25h").expect("the cursor is back");
    let message = shown.rfind("as the test wants it").expect("the message is there");
    assert!(taken < left && left < message && cursor < message, "{shown:?}");
}
