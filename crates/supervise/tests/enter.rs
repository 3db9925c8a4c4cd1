//! A Python whose own door is locked is entered through the debugger.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stormlog_supervise::{Door, EnterError, enter};

/// What a Python 3.14 with `PYTHON_DISABLE_REMOTE_DEBUG` does, as far as this is about it: it has `sys.remote_exec`, which says no.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        if (strstr(arguments[i], "hasattr(sys, 'remote_exec')")) return 0;
        if (strstr(arguments[i], "sys.remote_exec(")) {
            fputs("RuntimeError: Remote debugging is not enabled in the remote process\n", stderr);
            return 1;
        }
    }
    for (;;) pause();
}
"#;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn locked_python(place: &Path) -> Running {
    let (source, program): (_, PathBuf) = (place.join("python.c"), place.join("python3.14"));
    std::fs::write(&source, PROGRAM).unwrap();
    assert!(Command::new("gcc").arg(source).arg("-o").arg(&program).status().unwrap().success());
    Running(Command::new(program).stdin(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_locked_door_leads_to_the_debugger() {
    let place = tempfile::tempdir().unwrap();
    let python = locked_python(place.path());
    let pid = python.0.id();
    let order = std::ffi::OsString::from("path=/nowhere");
    let try_by = |door| enter(pid, Path::new("/not/there.so"), Some(&order), door, place.path()).unwrap_err();
    let closed = try_by(Door::RemoteExec);
    assert!(matches!(closed, EnterError::Closed { .. }), "{closed}");
    assert!(closed.to_string().contains("Remote debugging is not enabled"), "{closed}");
    let otherwise = try_by(Door::Auto);
    let debugger = try_by(Door::Debugger);
    if matches!(debugger, EnterError::NoDebugger) {
        assert!(matches!(otherwise, EnterError::Closed { .. }), "{otherwise}");
    } else {
        // It went in, and the library is not there (or, where nobody may trace, it said so).
        assert_eq!(otherwise.to_string(), debugger.to_string());
    }
}
