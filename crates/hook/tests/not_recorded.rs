//! What a recording cannot see is in the capture: the version of a Python whose stacks are not read, and an allocator with a `new` of its own.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{capture, directory, preloaded, preloaded_with};
use stormlog_capture::record::definition;

/// An interpreter older than those whose stacks are read, where there is one.
fn old_python() -> Option<(PathBuf, String)> {
    let versions = Path::new(&std::env::var_os("HOME")?).join(".pyenv/versions");
    let installed = std::fs::read_dir(versions).into_iter().flatten().flatten();
    let candidates = installed.map(|version| version.path().join("bin/python"));
    candidates.chain(["/usr/bin/python3.10".into(), "/usr/bin/python3.9".into()]).find_map(|python| {
        let script = "import sys; assert (3, 6) < sys.version_info < (3, 11); print(sys.version.split()[0])";
        let answer = Command::new(&python).args(["-c", script]).output().ok()?;
        let version = String::from_utf8(answer.stdout).ok()?.trim().to_owned();
        (answer.status.success() && !version.is_empty()).then_some((python, version))
    })
}

#[test]
fn the_version_of_a_python_without_stacks_is_in_the_capture() {
    let Some((python, version)) = old_python() else { return };
    let place = directory();
    let done = preloaded(Command::new(python).args(["-c", "bytearray(7_777_003)"]), place.path(), "");
    assert!(done.status.success());
    let capture = capture(place.path());
    let known = capture.definitions.iter().find(|(sort, _, _)| *sort == definition::PYTHON);
    let text = String::from_utf8(known.unwrap().2.clone()).unwrap();
    assert!(text.starts_with(&version), "{text}");
    assert!(capture.nodes.is_empty());
}

const ALLOCATOR: &str = "
#include <stddef.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
void *malloc(size_t size) { return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
void free(void *block) { __libc_free(block); }
#ifdef NEW
void *_Znwm(size_t size) { return __libc_malloc(size); }
#endif
";

#[test]
fn an_allocator_with_a_new_of_its_own_is_named_in_the_capture() {
    let source = directory();
    let file = source.path().join("allocator.c");
    std::fs::write(&file, ALLOCATOR).unwrap();
    for (flag, is_named) in [("-DNEW", true), ("-DOLD", false)] {
        let place = directory();
        let library = place.path().join("libsome_allocator.so");
        let mut compiler = Command::new("gcc");
        compiler.args(["-shared", "-fPIC", "-fno-builtin", flag, "-o"]).arg(&library).arg(&file);
        assert!(compiler.status().unwrap().success());
        let done = preloaded_with(&mut Command::new("/bin/true"), place.path(), "", &[&library]);
        assert!(done.status.success());
        let capture = capture(place.path());
        let is_there = capture.metadata.contains("\"operator_new\":\"")
            && capture.metadata.contains("libsome_allocator.so");
        assert_eq!(is_there, is_named, "{}", capture.metadata);
    }
}
