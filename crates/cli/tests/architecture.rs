//! ARCHITECTURE.md is held to the code: dependency edges, where `unsafe` may be, what its notes say, and how large the front-ends may become.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn page() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

/// The words between backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The cells of the rows of the table under a heading, without the two rows of its head.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = page.split_once(heading).unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n## ").next().unwrap();
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2)
        .map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Each crate of ours with those of ours it is built with.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let short = |name: &Value| name.as_str().unwrap().strip_prefix("stormlog-").map(str::to_owned);
    let of = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|one| one["kind"].is_null()).filter_map(|one| short(&one["name"])).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.filter_map(|package| Some((short(&package["name"])?, of(package)))).collect()
}

#[test]
fn every_dependency_edge_is_in_the_table() {
    let page = page();
    let table: BTreeMap<String, BTreeSet<String>> = rows(&page, "## The crates")
        .into_iter()
        .map(|cells| (quoted(&cells[0]).into_iter().next().unwrap(), quoted(&cells[2])))
        .collect();
    let edges = edges();
    let named: Vec<&String> = table.keys().collect();
    assert_eq!(
        named,
        edges.keys().collect::<Vec<_>>(),
        "the table names other crates than the workspace has"
    );
    for (name, uses) in &edges {
        assert_eq!(uses, &table[name], "`{name}`: left what it uses, right what ARCHITECTURE.md says");
    }
}

#[test]
fn dependencies_point_down_the_table() {
    let page = page();
    let order: Vec<String> = rows(&page, "## The crates")
        .iter()
        .map(|cells| quoted(&cells[0]).into_iter().next().unwrap())
        .collect();
    let place = |name: &String| order.iter().position(|known| known == name).unwrap();
    for (name, uses) in edges() {
        for used in uses {
            assert!(place(&used) > place(&name), "`{name}` uses `{used}`, which is above it in the table");
        }
    }
}

#[test]
fn only_the_named_crates_may_contain_unsafe() {
    let page = page();
    let line = page.lines().find(|line| line.starts_with("- `unsafe` is allowed in")).unwrap();
    let allowed = quoted(line.split(". ").next().unwrap());
    for name in edges().keys() {
        let library = fs::read_to_string(root().join("crates").join(name).join("src/lib.rs")).unwrap();
        let forbids = library.contains("#![forbid(unsafe_code)]");
        assert_eq!(
            forbids,
            !allowed.contains(name),
            "`{name}`: does its lib.rs forbid unsafe code, and is it named?"
        );
    }
}

#[test]
fn every_safety_note_names_its_invariant() {
    const VAGUE: [&str; 7] = [
        "as above",
        "see above",
        "as before",
        "as in `",
        "the caller's.",
        "the caller's;",
        "the caller's promise",
    ];
    let mut notes = 0;
    for path in rust_files(&root().join("crates")) {
        for (line, number) in fs::read_to_string(&path).unwrap().lines().zip(1..) {
            let Some((_, note)) = line.split_once("// SAFETY: ") else { continue };
            notes += 1;
            let vague = VAGUE.iter().find(|vague| note.trim_start().starts_with(**vague));
            assert!(
                vague.is_none(),
                "{}:{number}: {note:?} refers to something else; name the invariant and what keeps it",
                path.display()
            );
        }
    }
    assert!(notes > 300, "{notes} notes: are they found?");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn the_front_ends_stay_below_their_sizes() {
    for cells in rows(&page(), "## Sizes") {
        let folder = quoted(&cells[0]).into_iter().next().unwrap();
        let most: usize = cells[1].replace(',', "").parse().unwrap();
        let lines = lines_below(&root().join(&folder));
        assert!(
            lines <= most,
            "{folder}: {lines} lines where ARCHITECTURE.md allows {most}; move logic into a library"
        );
        assert!(
            lines * 5 >= most * 4,
            "{folder}: {lines} lines; lower the size in ARCHITECTURE.md from {most}"
        );
    }
}

fn lines_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => lines_below(&path),
            Some("rs" | "py") => fs::read_to_string(&path).unwrap().lines().count(),
            _ => 0,
        })
        .sum()
}
