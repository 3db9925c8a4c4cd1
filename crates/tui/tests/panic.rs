//! After a panic the terminal is as it was, and the panic's message can be read.

mod common;

use common::{CHILD, on_a_terminal};
use stormlog_tui::LiveTarget;

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
    let (status, shown) = on_a_terminal("child", "");
    assert!(!status.success());
    let taken = shown.find("\x1b[?1049h").expect("the alternate screen was taken");
    let left = shown.rfind("\x1b[?1049l").expect("the alternate screen was left");
    let cursor = left + shown[left..].find("\x1b[?25h").expect("the cursor is back");
    let message = shown.rfind("as the test wants it").expect("the message is there");
    assert!(taken < left && left < message && cursor < message, "{shown:?}");
}
