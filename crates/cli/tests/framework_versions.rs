//! Versions of frameworks as `tfmemprof info` finds them in the user's interpreter, without importing them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// A distribution that installed these files.
fn distribution(packages: &Path, name: &str, version: &str, files: &[&str]) {
    let about = packages.join(format!("{}-{version}.dist-info", name.replace('-', "_")));
    fs::create_dir_all(&about).unwrap();
    fs::write(about.join("METADATA"), format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"))
        .unwrap();
    let record: String = files.iter().map(|file| format!("{file},,\n")).collect();
    fs::write(about.join("RECORD"), record).unwrap();
    for file in files {
        let path = packages.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "raise SystemExit('imported')\n").unwrap();
    }
}

fn info(binary: &str, packages: &Path) -> String {
    let done = Command::new(binary)
        .arg("info")
        .env("PYTHONPATH", packages)
        .env("STORMLOG_PYTHON", "python3")
        .output()
        .unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr)
}

#[test]
fn tensorflow_on_the_python_path_has_the_version_of_the_distribution_that_installed_it() {
    let packages = tempfile::tempdir().unwrap();
    distribution(packages.path(), "tf-x", "7.0", &["tensorflow/extra.py"]);
    distribution(packages.path(), "tensorflow-cpu", "2.99.0", &["tensorflow/__init__.py"]);
    let text = info(env!("CARGO_BIN_EXE_tfmemprof"), packages.path());
    assert!(text.contains("TensorFlow Version: 2.99.0\n"), "{text}");
    assert!(text.contains("TensorFlow Distribution: tensorflow-cpu\n"), "{text}");
}

#[test]
fn broken_metadata_of_one_framework_leaves_the_other() {
    let packages = tempfile::tempdir().unwrap();
    distribution(packages.path(), "jax", "0.99.0", &["jax/__init__.py"]);
    distribution(packages.path(), "tensorflow", "2.99.0", &["tensorflow/__init__.py"]);
    fs::write(packages.path().join("tensorflow-2.99.0.dist-info/METADATA"), "").unwrap();
    fs::write(packages.path().join("tensorflow-2.99.0.dist-info/RECORD"), [0xff, 0xfe]).unwrap();
    let text = info(env!("CARGO_BIN_EXE_jaxmemprof"), packages.path());
    assert!(text.contains("JAX Version: 0.99.0\n"), "{text}");
    let text = info(env!("CARGO_BIN_EXE_tfmemprof"), packages.path());
    assert!(text.contains("TensorFlow Version: unknown\n"), "{text}");
}

#[test]
fn page_without_tensorflow_has_the_command_that_installs_it() {
    let packages = tempfile::tempdir().unwrap();
    let text = info(env!("CARGO_BIN_EXE_tfmemprof"), packages.path());
    assert!(
        text.contains("TensorFlow Version: Not installed (pip install 'stormlog[tf]')\n")
            || !text.contains("Not installed"),
        "{text}"
    );
}
