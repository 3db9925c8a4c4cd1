//! Man pages and shell completions: what the wheel installs (crates/manual), looked at by the programs that read it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use stormlog_cli::{Exit, Program, definition};
use stormlog_manual::files;

fn text(path: &str) -> String {
    let mut files = files::all().unwrap();
    let found = files.remove(path).unwrap_or_else(|| panic!("no {path} in {:#?}", files.keys()));
    String::from_utf8(found).unwrap()
}

/// Standard output and error of a program that reads `input`; `None` where it is not installed.
fn piped(program: &[&str], input: &[u8]) -> Option<(bool, String)> {
    let mut child = Command::new(program[0])
        .args(&program[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut pipe = child.stdin.take().unwrap();
    let bytes = input.to_owned();
    let writer = std::thread::spawn(move || pipe.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    let both = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&both).into_owned()))
}

#[test]
fn every_visible_command_has_a_man_page() {
    let files = files::all().unwrap();
    for command in definition(Program::Stormlog).get_subcommands() {
        let path = format!("share/man/man1/stormlog-{}.1", command.get_name());
        assert_eq!(files.contains_key(&path), !command.is_hide_set(), "{path}");
    }
    for program in Program::ALL {
        assert!(files.contains_key(&format!("share/man/man1/{}.1", program.name())));
    }
    // The other programs have pages of their own only where they differ.
    assert!(files.contains_key("share/man/man1/tfmemprof-monitor.1"));
    assert!(!files.contains_key("share/man/man1/tfmemprof-convert.1"));
    assert!(!files.contains_key("share/man/man1/gpumemprof-run.1"));
}

#[test]
fn man_pages_are_the_same_at_every_build_and_name_their_version() {
    let (one, other) = (files::all().unwrap(), files::all().unwrap());
    assert!(one == other);
    for (path, page) in one.iter().filter(|(path, _)| path.starts_with("share/man")) {
        let page = std::str::from_utf8(page).unwrap();
        let head = page.lines().find(|line| line.starts_with(".TH")).unwrap();
        let end = concat!(" 1 \"\" \"stormlog ", env!("CARGO_PKG_VERSION"), "\" Stormlog");
        assert!(head.ends_with(end), "{path}: {head}");
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(page.contains(section), "{path} has no {section}");
        }
    }
}

#[test]
fn man_pages_are_formatted_without_a_warning() {
    for page in ["stormlog", "stormlog-run", "gpumemprof"] {
        let page = text(&format!("share/man/man1/{page}.1"));
        let Some((succeeded, shown)) = piped(&["groff", "-man", "-ww", "-z", "-T", "utf8"], page.as_bytes())
        else {
            return; // no groff here
        };
        assert!(succeeded && shown.trim().is_empty(), "{shown}");
    }
}

#[test]
fn pages_that_a_man_page_names_exist() {
    let files = files::all().unwrap();
    let mut named = 0;
    for (path, page) in files.iter().filter(|(path, _)| path.starts_with("share/man")) {
        let page = String::from_utf8(page.clone()).unwrap().replace("\\-", "-");
        for before in page.split("\\fR(1)").filter(|before| before.contains("\\fB")) {
            let name = before.rsplit("\\fB").next().unwrap();
            assert!(files.contains_key(&format!("share/man/man1/{name}.1")), "{path} names {name}(1)");
            named += 1;
        }
    }
    assert!(named > 100, "{named}");
}

#[test]
fn page_of_a_program_has_examples_exit_codes_and_environment() {
    for program in Program::ALL {
        let page = text(&format!("share/man/man1/{}.1", program.name()));
        for section in ["COMMANDS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"] {
            assert!(page.contains(&format!(".SH {section}\n")), "{} has no {section}", program.name());
        }
    }
    let run = text("share/man/man1/stormlog-run.1");
    assert!(run.contains("\\fBSTORMLOG_DIR\\fR environment variable"), "{run}");
}

#[test]
fn exit_codes_have_one_text_in_the_man_page_and_in_the_reference() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/exit-codes.md");
    let page = fs::read_to_string(page).unwrap().replace('`', "");
    for exit in Exit::ALL {
        let row = format!("| {} |", exit.code());
        let line = page.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("no {row}"));
        assert!(line.ends_with(&format!("| {} |", exit.meaning())), "{line}");
    }
}

/// What bash offers after `words`, the last of which is being typed.
fn offered(program: Program, words: &[&str]) -> Vec<String> {
    let script = text(&format!("share/bash-completion/completions/{}", program.name()));
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let (last, before) = (quoted.last().unwrap(), &quoted[quoted.len() - 2]);
    let call = format!(
        "\nCOMP_WORDS=({words})\nCOMP_CWORD={at}\n_{name} {name} {last} {before}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words = quoted.join(" "),
        at = quoted.len() - 1,
        name = program.name(),
    );
    let (succeeded, shown) = piped(&["bash", "--norc"], format!("{script}{call}").as_bytes()).unwrap();
    assert!(succeeded, "{shown}");
    shown.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    assert_eq!(offered(Program::Stormlog, &["stormlog", "ru"]), ["run", "runs", "rules"]);
    assert_eq!(offered(Program::Stormlog, &["stormlog", "run", "--bund"]), ["--bundle"]);
    assert_eq!(offered(Program::Stormlog, &["stormlog", "run", "--bundle", ""]), ["oom", "crash", "always"]);
    assert_eq!(offered(Program::Tfmemprof, &["tfmemprof", "tra"]), ["transform", "track"]);
    let all = offered(Program::Stormlog, &["stormlog", ""]);
    assert!(!all.iter().any(|one| one == "finish-captures"), "a hidden command is offered");
}

#[test]
fn completions_of_every_shell_are_valid_where_the_shell_is_installed() {
    for program in Program::ALL {
        for (shell, path) in [
            ("bash", format!("share/bash-completion/completions/{}", program.name())),
            ("zsh", format!("share/zsh/site-functions/_{}", program.name())),
            ("fish", format!("share/fish/vendor_completions.d/{}.fish", program.name())),
        ] {
            let script = text(&path);
            assert!(script.contains(program.name()) && script.contains("flamegraph"), "{path}");
            if let Some((succeeded, shown)) = piped(&[shell, "-n"], script.as_bytes()) {
                assert!(succeeded, "{path}: {shown}");
            }
        }
    }
}
