//! A Python whose own door is locked is entered through the debugger.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stormlog_supervise::{Call, Door, EnterError, enter};

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
    // Where no one else may write: a program elsewhere is not executed.
    let place = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
    let python = locked_python(&place.path().canonicalize().unwrap());
    let pid = python.0.id();
    let order = std::ffi::OsString::from("path=/nowhere");
    let try_by =
        |door| enter(pid, Path::new("/not/there.so"), Call::Start(&order), door, place.path()).unwrap_err();
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

#[test]
fn a_python_that_others_could_have_put_there_is_never_executed() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap(); // below a directory that anyone may write to
    let (program, proof) = (place.path().join("python-evil"), place.path().join("executed"));
    // A copy of a shell under the name of an interpreter; executed with `-c`, it would leave the proof.
    let source = place.path().join("evil.c");
    let text = format!(
        "#include <fcntl.h>\n#include <unistd.h>\nint main(int n, char **a) {{ if (n > 1) {{ close(creat(\"{}\", 0600)); return 0; }} for (;;) pause(); }}",
        proof.display()
    );
    std::fs::write(&source, text).unwrap();
    assert!(Command::new("gcc").arg(source).arg("-o").arg(&program).status().unwrap().success());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o777)).unwrap();
    let evil = Running(Command::new(&program).stdin(Stdio::null()).spawn().unwrap());
    let order = std::ffi::OsString::from("path=/nowhere");
    for door in [Door::RemoteExec, Door::Auto] {
        let refused = enter(evil.0.id(), Path::new("/not/there.so"), Call::Start(&order), door, place.path())
            .unwrap_err();
        assert!(door != Door::RemoteExec || matches!(refused, EnterError::Untrusted(_)), "{refused}");
        assert!(!proof.exists(), "it was executed");
    }
}
