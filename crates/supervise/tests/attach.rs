//! A Python that does not allow `sys.remote_exec` is attached to with the debugger.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stormlog_supervise::{AttachError, AttachMethod, Call, attach};

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
fn disabled_remote_exec_falls_back_to_the_debugger() {
    // Where no one else may write: a program elsewhere is not executed.
    let place = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
    let python = locked_python(&place.path().canonicalize().unwrap());
    let pid = python.0.id();
    let spec = std::ffi::OsString::from("path=/nowhere");
    let try_by = |method| {
        attach(pid, Path::new("/not/there.so"), Call::Start(&spec), method, place.path()).unwrap_err()
    };
    let closed = try_by(AttachMethod::RemoteExec);
    assert!(matches!(closed, AttachError::Closed { .. }), "{closed}");
    assert!(closed.to_string().contains("Remote debugging is not enabled"), "{closed}");
    let otherwise = try_by(AttachMethod::Auto);
    let debugger = try_by(AttachMethod::Debugger);
    if matches!(debugger, AttachError::NoDebugger) {
        assert!(matches!(otherwise, AttachError::Closed { .. }), "{otherwise}");
    } else {
        // It went in, and the library is not there (or, where tracing is not allowed, it said so).
        assert_eq!(otherwise.to_string(), debugger.to_string());
    }
}

#[test]
fn attach_never_executes_an_interpreter_that_others_could_write() {
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
    let spec = std::ffi::OsString::from("path=/nowhere");
    for method in [AttachMethod::RemoteExec, AttachMethod::Auto] {
        let refused =
            attach(evil.0.id(), Path::new("/not/there.so"), Call::Start(&spec), method, place.path())
                .unwrap_err();
        assert!(
            method != AttachMethod::RemoteExec || matches!(refused, AttachError::Untrusted(_)),
            "{refused}"
        );
        assert!(!proof.exists(), "it was executed");
    }
}
