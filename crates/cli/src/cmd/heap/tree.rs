//! `stormlog tree`: the biggest stacks, callers above what they call; on a terminal a tree to walk through.

use std::io::{self, IsTerminal, Write};

use stormlog_heap_report::{Reading, rows, tree};
use stormlog_model::stacks::StackProfile;

use super::{CaptureSelection, export, head, read, warn_of_cut};
use crate::cmd::record::live;
use crate::exit::Exit;

pub(crate) struct Options {
    pub(crate) selection: CaptureSelection,
    pub(crate) biggest: usize,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let (reading, held) = read(&options.selection)?;
    let is_screen = stormlog_tui::has_screen() && io::stdin().is_terminal();
    if is_screen && !options.json && !held.rows.is_empty() {
        let mut title = Vec::new();
        head(&mut title, &reading, &held)?;
        return live::left(stormlog_tui::tree(held, &String::from_utf8_lossy(&title))?);
    }
    let mut out = io::stdout().lock();
    if options.json {
        warn_of_cut(&reading.end)?;
        out.write_all(&export::json(&rows::stacks(&held))?)?;
        return Ok(Exit::Ok);
    }
    print(&mut out, &reading, &held, options.biggest)?;
    Ok(Exit::Ok)
}

fn print(out: &mut impl Write, reading: &Reading, held: &StackProfile, biggest: usize) -> io::Result<()> {
    head(out, reading, held)?;
    if !held.rows.is_empty() {
        for line in tree::lines(held, biggest) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}
