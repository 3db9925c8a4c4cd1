//! Man pages and completions of all programs, from their clap definitions. The same sources give the same bytes: no date is in them.

use std::collections::BTreeMap;
use std::io;

use clap::Command;
use clap_complete::Shell;
use stormlog_cli::{Program, definition};

use crate::man;

const MAN: &str = "share/man/man1";
/// Each shell with the directory it looks in and what stands around the program's name there.
const SHELLS: [(Shell, &str, &str, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions", "", ""),
    (Shell::Zsh, "share/zsh/site-functions", "_", ""),
    (Shell::Fish, "share/fish/vendor_completions.d", "", ".fish"),
];

/// Every file, by its path below the prefix.
pub fn all() -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for program in Program::ALL {
        let command = visible(program);
        for (shell, folder, before, after) in SHELLS {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command.clone(), program.name(), &mut script);
            files.insert(format!("{folder}/{before}{}{after}", program.name()), script);
        }
        let mut own = pages(command.clone())?;
        // Of the other programs only the commands that differ have pages: `man stormlog-run` is right for all.
        let main = if program == Program::Stormlog { BTreeMap::new() } else { pages_as(program)? };
        own.retain(|name, page| main.get(name) != Some(page));
        let first = first_page(program, command, |name| own.contains_key(&format!("{name}.1")))?;
        own.insert(format!("{}.1", program.name()), first);
        files.extend(own.into_iter().map(|(name, page)| (format!("{MAN}/{name}"), page)));
    }
    Ok(files)
}

/// The page of a program: its commands in their groups, and what holds for all of them.
fn first_page(
    program: Program,
    mut command: Command,
    has_page: impl Fn(&str) -> bool,
) -> io::Result<Vec<u8>> {
    command.build();
    let man = manual(&command);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    Ok(undated(&page, &(man::commands(&command, has_page) + &man::end_of_program(program))))
}

/// The pages that `stormlog` has, as if it were called `program`. The page of the program itself is left out: it is always wanted.
fn pages_as(program: Program) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let command = visible(Program::Stormlog).name(program.name()).bin_name(program.name());
    let mut pages = pages(command)?;
    pages.remove(&format!("{}.1", program.name()));
    Ok(pages)
}

/// A page for the command and for each of its subcommands, by file name.
fn pages(mut command: Command) -> io::Result<BTreeMap<String, Vec<u8>>> {
    fn add(command: &Command, pages: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
        for subcommand in command.get_subcommands() {
            add(subcommand, pages)?;
        }
        let man = manual(command);
        let mut page = Vec::new();
        man.render(&mut page)?;
        pages.insert(man.get_filename(), undated(&page, &man::end_of_command()));
        Ok(())
    }
    command.build();
    let mut pages = BTreeMap::new();
    add(&command, &mut pages)?;
    Ok(pages)
}

fn manual(command: &Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command.clone())
        .source(concat!("stormlog ", env!("CARGO_PKG_VERSION")))
        .manual("Stormlog")
}

/// A page with its end. The date is left out, so that every build gives the same page; as an empty word without quotes it would be no
/// argument at all.
fn undated(page: &[u8], end: &str) -> Vec<u8> {
    let page = String::from_utf8_lossy(page).replacen(" 1  \"", " 1 \"\" \"", 1);
    (page + end).into_bytes()
}

/// The definition without the commands that are only for `stormlog run` itself; clap_complete would offer them.
fn visible(program: Program) -> Command {
    let command = definition(program);
    let subcommands = command.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    Command::new(program.name())
        .bin_name(program.name())
        .version(env!("CARGO_PKG_VERSION"))
        .about(command.get_about().cloned().unwrap_or_default())
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .args(command.get_arguments().cloned())
        .subcommands(subcommands.collect::<Vec<_>>())
}
