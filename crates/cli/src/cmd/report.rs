//! `stormlog report`: everything about a run as one page, in a file or on loopback.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use stormlog_render::report::PAGE_BYTES;
use stormlog_serve::PageServer;
use stormlog_story::captures::CaptureReader;
use stormlog_story::judge;
use stormlog_story::report::{Recorded, page, report, timelines};

use crate::cmd::heap::Output;
use crate::cmd::snapshot::analyze::Snapshots;
use crate::cmd::telemetry::recordings;
use crate::exit::{CtrlC, Exit, MissingInput};

/// What a browser draws in reasonable time.
const SERVED_BYTES: usize = 200 << 20;

pub(crate) struct Options {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) against: Option<PathBuf>,
    pub(crate) output: Output,
    pub(crate) serve: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let ctrl_c = CtrlC::watch();
    let name = "report.html";
    if !options.serve {
        options.output.check(&options.paths[0], name)?;
    }
    let recorded = read(options.paths.clone(), &ctrl_c)?;
    let before = options.against.clone().map(|path| read(vec![path], &ctrl_c)).transpose()?;
    let report = report(&recorded, before.as_ref());
    if report.lanes.is_empty() && report.graphs.is_empty() && report.processes.is_empty() {
        let problem = report.notes.first().cloned();
        let nothing = || {
            format!(
                "{}: nothing was recorded here; give a run, a session or a capture",
                options.paths[0].display()
            )
        };
        return Err(MissingInput(problem.unwrap_or_else(nothing)).into());
    }
    if !options.serve {
        let page = page(&report, PAGE_BYTES);
        options.output.write(&options.paths[0], name, page.as_bytes())?;
        return Ok(Exit::Ok);
    }
    let server = PageServer::bind(page(&report, SERVED_BYTES))?;
    writeln!(io::stdout(), "{}", server.url())?;
    writeln!(io::stderr(), "The link works in one browser on this machine. Ctrl-C stops the server.")?;
    server.run(&|| ctrl_c.check().is_ok())?;
    Ok(Exit::Ok)
}

/// The page of one run, as `stormlog report` writes it.
pub(crate) fn page_of(path: &Path) -> anyhow::Result<String> {
    let recorded = read(vec![path.to_owned()], &CtrlC::watch())?;
    Ok(page(&report(&recorded, None), PAGE_BYTES))
}

fn read(paths: Vec<PathBuf>, ctrl_c: &CtrlC) -> anyhow::Result<Recorded> {
    let captures = CaptureReader::default();
    let (snapshots, others) = Snapshots::among(&paths);
    let mut loaded = recordings::load_with(&others, &captures, ctrl_c)?;
    let snapshots = Snapshots::read(&snapshots, others.is_empty(), &mut loaded);
    let timelines = timelines(&loaded.recording);
    let mut analysis = judge(loaded);
    snapshots.judge(&mut analysis);
    captures.explain_ranks(&paths, &mut analysis);
    Ok(Recorded { paths, timelines, analysis, captures })
}
