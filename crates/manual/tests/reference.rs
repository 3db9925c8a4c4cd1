//! The pages of docs/reference/commands are what clap says: every command and every option of every program is on them.
//!
//! `STORMLOG_BLESS=1 cargo test -p stormlog-manual --test reference` rewrites them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use stormlog_manual::markdown;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands")
}

fn on_disk() -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn reference_of_commands_is_current() {
    let pages = markdown::pages();
    if std::env::var_os("STORMLOG_BLESS").is_some() {
        let _ = fs::remove_dir_all(directory());
        fs::create_dir_all(directory()).unwrap();
        for (name, page) in &pages {
            fs::write(directory().join(name), page).unwrap();
        }
    }
    let found = on_disk();
    let hint = "run: STORMLOG_BLESS=1 cargo test -p stormlog-manual --test reference";
    assert_eq!(found.keys().collect::<Vec<_>>(), pages.keys().collect::<Vec<_>>(), "{hint}");
    for (name, page) in &pages {
        let differs = page.lines().zip(found[name].lines()).find(|(new, old)| new != old);
        assert!(page == &found[name], "docs/reference/commands/{name} is stale: {differs:?}; {hint}");
    }
}

#[test]
fn every_option_has_a_help_text_and_its_own_heading() {
    let mut bare = Vec::new();
    for program in stormlog_cli::Program::ALL {
        markdown::each_command(program, &mut |path, command| {
            let arguments = command.get_arguments().filter(|one| !one.is_hide_set());
            let without = arguments.filter(|one| one.get_help().is_none());
            bare.extend(without.map(|one| format!("{path}: {}", one.get_id())));
            // A heading of the options before it would take it in.
            let misplaced = command
                .get_positionals()
                .filter(|one| !matches!(one.get_help_heading(), None | Some("Arguments")));
            bare.extend(
                misplaced.map(|one| format!("{path}: {} is under a heading of options", one.get_id())),
            );
            if command.get_about().is_none() {
                bare.push(path.to_owned());
            }
        });
    }
    assert!(bare.is_empty(), "without a help text, or under a wrong heading: {bare:#?}");
}

/// Options that no page lists, with the reason.
const HIDDEN: [(&str, &str); 5] = [
    ("native_history", "0.4.3's, taken and refused with a sentence: `diagnose` is another process"),
    ("native_history_max_entries", "of the one before"),
    ("follow_fork", "Memray's name of what is always done"),
    ("temporary_allocations", "Memray's name of an option that is listed"),
    ("temporary_allocation_threshold", "Memray's name of an option that is listed"),
];

#[test]
fn no_option_is_hidden_without_a_reason() {
    let mut hidden = BTreeSet::new();
    for program in stormlog_cli::Program::ALL {
        markdown::each_command(program, &mut |_, command| {
            let arguments = command.get_arguments().filter(|one| one.is_hide_set());
            hidden.extend(arguments.map(|one| one.get_id().to_string()));
        });
    }
    assert_eq!(hidden, HIDDEN.iter().map(|(id, _)| (*id).to_owned()).collect());
}

#[test]
fn every_program_has_pages() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let built: BTreeSet<&str> = manifest
        .split("[[bin]]")
        .skip(1)
        .filter_map(|program| program.split("name = \"").nth(1)?.split('"').next())
        .collect();
    let described: BTreeSet<&str> = stormlog_cli::Program::ALL.map(stormlog_cli::Program::name).into();
    assert_eq!(built, described, "left: the programs of crates/cli; right: `Program::ALL`");
}
