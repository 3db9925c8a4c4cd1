//! Builds the shared library of `stormlog-hook`, always optimized, in a target directory of its own: the outer build may be a debug build, may
//! be for tests, and holds the lock of its own directory.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What goes into the library.
const CRATES: [&str; 4] = ["hook", "capture", "scrub", "stack"];
/// What the outer build says about itself and must not say about this one.
const OUTER: [&str; 9] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_MAKEFLAGS",
    "MAKEFLAGS",
    "CARGO_INCREMENTAL",
];

fn main() -> ExitCode {
    match build() {
        Ok(image) => {
            println!("cargo::rustc-env=STORMLOG_HOOK_IMAGE={}", image.display());
            ExitCode::SUCCESS
        }
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<PathBuf, String> {
    let variable = |name: &str| env::var(name).map_err(|_| format!("{name} is not set: build with cargo"));
    let crates = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("..");
    for name in CRATES {
        for part in ["src", "Cargo.toml", "build.rs"] {
            let path = crates.join(name).join(part);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    println!("cargo::rerun-if-changed=build.rs");

    let out = PathBuf::from(variable("OUT_DIR")?);
    let image = out.join("libstormlog_hook.so");
    let supported = [
        ("CARGO_CFG_TARGET_OS", "linux"),
        ("CARGO_CFG_TARGET_ARCH", "x86_64"),
        ("CARGO_CFG_TARGET_ENV", "gnu"),
    ];
    if supported.iter().any(|(name, value)| env::var(name).as_deref() != Ok(value)) {
        std::fs::write(&image, []).map_err(|error| format!("cannot write {}: {error}", image.display()))?;
        return Ok(image);
    }

    let target = variable("TARGET")?;
    let directory = out.join("target");
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        .arg("rustc")
        .arg("--manifest-path")
        .arg(crates.join("hook/Cargo.toml"))
        .args(["--lib", "--release", "--crate-type", "cdylib", "--target", &target, "--target-dir"])
        .arg(&directory)
        // The workspace's choices for `release` apply; only what a preloaded library needs is said here.
        // What is hot is inlined as it is, so optimizing across crates would only cost time.
        .args(["--config", "profile.release.panic=\"abort\"", "--config", "profile.release.lto=\"off\""])
        .args(["--config", "profile.release.codegen-units=1"]);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let of_the_crate = text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_CFG_")
            || text.starts_with("CARGO_FEATURE_");
        let of_a_profile = text.starts_with("CARGO_PROFILE_") || text.starts_with("CARGO_TARGET_");
        if OUTER.contains(&text.as_ref()) || of_the_crate || of_a_profile {
            cargo.env_remove(&name);
        }
    }
    let output = cargo.output().map_err(|error| format!("cannot run cargo for stormlog-hook: {error}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("stormlog-hook does not build: {}", text.trim().replace('\n', " | ")));
    }
    let built = directory.join(&target).join("release/libstormlog_hook.so");
    std::fs::copy(&built, &image).map_err(|error| format!("cannot copy {}: {error}", built.display()))?;
    Ok(image)
}
