//! `stormlog compare A B`: what two runs took, where, and what was set differently.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stormlog_analyze::Measures;
use stormlog_analyze::compare::{Comparison, Side};
use stormlog_catalog::recording::settings_of;
use stormlog_story::judge;

use crate::cmd::telemetry::analyze::indented;
use crate::cmd::telemetry::recordings;
use crate::exit::{CtrlC, Exit};

pub(crate) struct Options {
    pub(crate) a: PathBuf,
    pub(crate) b: PathBuf,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let ctrl_c = CtrlC::watch();
    let (a, a_is_whole) = side(&options.a, &ctrl_c)?;
    let (b, b_is_whole) = side(&options.b, &ctrl_c)?;
    // A page against nothing would say that everything is gone.
    let (Some(a), Some(b)) = (a, b) else { return Ok(Exit::InvalidInput) };
    let comparison = Comparison { a, b };
    let mut out = io::stdout().lock();
    if options.json {
        out.write_all(indented(&Value::Object(comparison.to_record())).as_bytes())?;
    } else {
        out.write_all(comparison.text().as_bytes())?;
    }
    Ok(if a_is_whole && b_is_whole { Exit::Ok } else { Exit::InvalidInput })
}

/// One side, unless there is nothing in it, and whether all of it could be read.
fn side(path: &Path, ctrl_c: &CtrlC) -> anyhow::Result<(Option<Side>, bool)> {
    let loaded = recordings::load(&[path.to_owned()], ctrl_c)?;
    for problem in loaded.problems() {
        writeln!(io::stderr(), "Error: {problem}")?;
    }
    let mut settings = settings_of(path);
    for session in &loaded.recording.sessions {
        let Some(rank) = session.ranks.first() else { continue };
        let head = &rank.head;
        settings.insert("collector".to_owned(), head.collector.clone());
        settings.insert("world_size".to_owned(), head.identity.world_size.to_string());
        settings.insert("sampling_interval_ms".to_owned(), head.sampling_interval_ms.to_string());
    }
    let heap_peak = loaded.captures.iter().map(|capture| capture.peak_bytes).max();
    let mut lines = BTreeMap::new();
    for kept in loaded.captures.iter().flat_map(|capture| &capture.kept) {
        *lines.entry(kept.place.clone()).or_insert(0) += kept.bytes;
    }
    let analysis = judge(loaded);
    let mut found = Side { measures: Measures::of(&analysis), settings, heap_peak, lines, ..Side::default() };
    for finding in &analysis.findings {
        *found.findings.entry(finding.kind.clone()).or_insert(0) += 1;
    }
    for (phase, peak) in analysis.sessions.iter().flat_map(|session| &session.phase_peaks) {
        let known = found.phases.entry(phase.clone()).or_insert(0);
        *known = (*known).max(*peak);
    }
    if analysis.event_count == 0 && analysis.captures == 0 {
        // What could not be read has been said.
        if !analysis.is_damaged() {
            writeln!(io::stderr(), "Error: {}: no session or capture to compare", path.display())?;
        }
        return Ok((None, false));
    }
    Ok((Some(found), !analysis.is_damaged()))
}
