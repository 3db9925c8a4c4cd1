//! Once a screen is left, signals do again what they did before.

mod common;

use std::os::unix::process::ExitStatusExt;

use common::{CHILD, on_a_terminal};
use rustix::process::{Signal, getpid, kill_process};
use stormlog_tui::state::reading::Wish;
use stormlog_tui::{Left, LiveTarget};

/// Only as a child of the test below: shows two screens one after the other, and then is asked to end.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_some() {
        let target = LiveTarget::Process(std::process::id());
        assert_eq!(stormlog_tui::live(&target, Wish::default()).unwrap(), Left::Quit);
        assert_eq!(stormlog_tui::live(&target, Wish::default()).unwrap(), Left::Quit);
        kill_process(getpid(), Signal::TERM).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
}

#[test]
fn no_signal_is_swallowed_afterwards() {
    // The first screen may read both keys at once.
    let (status, shown) = on_a_terminal("child", "qqqq");
    assert_eq!(status.signal(), Some(15), "{shown}");
    assert_eq!(shown.matches("\x1b[?1049h").count(), 2);
    assert_eq!(shown.matches("\x1b[?1049l").count(), 2);
}
