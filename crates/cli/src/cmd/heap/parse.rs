//! `stormlog parse`: every record of a capture as a line of text.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use stormlog_heap_report::Shape;

use super::choose;
use crate::exit::{CtrlC, Exit};
use crate::progress::Progress;

pub(crate) struct Options {
    pub(crate) capture: PathBuf,
    pub(crate) pid: Option<u32>,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let chosen = choose(&options.capture, options.pid, None)?;
    let ctrl_c = CtrlC::watch();
    let mut progress = Progress::new("records");
    let mut out = BufWriter::new(io::stdout().lock());
    let shape = if options.json { Shape::Json } else { Shape::Text };
    let count = stormlog_heap_report::parse::<anyhow::Error>(&chosen.path, shape, &mut out, |count| {
        (0..count).for_each(|_| progress.step());
        Ok(ctrl_c.check()?)
    })?;
    out.flush()?;
    if count == 0 {
        let why = "nothing was recorded, or only sums were kept (--aggregate, --max-size)";
        writeln!(io::stderr(), "Note: {}: individual records are not stored: {why}.", chosen.path.display())?;
    }
    Ok(Exit::Ok)
}
