//! Programs with the runtime of a sanitizer: they start and end as without us.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::process::Command;

use common::{captures, directory, preloaded};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern char **environ;
int main(int count, char **arguments) {
    for (char **at = environ; *at; at++)
        if (!strncmp(*at, "LD_PRELOAD", 10) || !strncmp(*at, "STORMLOG_HEAP=", 14)) puts(*at);
    char *block = calloc(10, 1);
    printf("%s %s\n", arguments[0], count > 1 ? arguments[1] : "");
    fflush(stdout);
    volatile char value = block[count > 1 ? 10 : 0];
    return value == 1000;
}
"#;

#[test]
fn an_address_sanitizer_build_starts_and_reports_as_without_us() {
    let place = directory();
    let source = place.path().join("program.c");
    std::fs::write(&source, PROGRAM).unwrap();
    for runtime in ["-shared-libasan", "-static-libasan"] {
        let program = place.path().join(format!("asan{runtime}"));
        let flags: &[&str] = if runtime == "-static-libasan" { &["-static-libasan"] } else { &[] };
        let built = Command::new("gcc")
            .args(["-fsanitize=address", "-g", "-o"])
            .arg(&program)
            .args(flags)
            .arg(&source)
            .status()
            .unwrap();
        if !built.success() {
            eprintln!("{runtime}: no such runtime here");
            continue;
        }
        for arguments in [&[][..], &["beyond"][..]] {
            let bare = Command::new(&program).args(arguments).output().unwrap();
            let done = preloaded(Command::new(&program).args(arguments), place.path(), "");
            assert_eq!(done.status.code(), bare.status.code(), "{runtime}: {done:?}");
            assert_eq!(done.stdout, bare.stdout, "{runtime}");
            let found = |text: &[u8]| String::from_utf8_lossy(text).contains("heap-buffer-overflow");
            assert_eq!(found(&done.stderr), found(&bare.stderr), "{runtime}: {done:?}");
            assert_eq!(found(&done.stderr), !arguments.is_empty());
        }
        assert!(captures(place.path()).is_empty(), "nothing is recorded of it");
    }
}
