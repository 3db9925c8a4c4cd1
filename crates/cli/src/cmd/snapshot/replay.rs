//! `stormlog replay`: what a snapshot's requests would have taken under other allocator settings.

use std::io::{self, Write};
use std::path::PathBuf;

use stormlog_model::alloc_conf::setting;
use stormlog_model::format_bytes;
use stormlog_torch::{AllocatorSettings, ReplayReport};

use crate::cmd::snapshot::report::{load, write_table};
use crate::exit::{Exit, Wrong};
use crate::table::Table;

pub(crate) struct Options {
    pub(crate) file: PathBuf,
    pub(crate) settings: Vec<AllocatorSettings>,
    pub(crate) search: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) device: usize,
    pub(crate) json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<Exit> {
    let snapshot = load(&options.file)?;
    if let Some(problem) = snapshot.replay_problem(options.device) {
        return Err(Wrong(format!("{}: {problem}", options.file.display())).into());
    }
    let report = stormlog_torch::replay_report(
        &snapshot,
        options.device,
        &options.settings,
        options.limit,
        options.search,
    );
    let mut out = io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write_page(&mut out, &report)?;
    }
    Ok(Exit::Ok)
}

fn write_page(out: &mut impl Write, report: &ReplayReport) -> io::Result<()> {
    let name =
        |settings: &str| if settings.is_empty() { "(defaults)".to_owned() } else { settings.to_owned() };
    if let Some(warning) = &report.warning {
        writeln!(out, "WARNING: {warning}\n")?;
    }
    let matched = report.self_match;
    let percent = 100.0 * matched.matched as f64 / matched.total.max(1) as f64;
    writeln!(
        out,
        "Model: {} of {} recorded addresses predicted ({percent:.1} %) under {}",
        matched.matched,
        matched.total,
        name(&report.settings)
    )?;
    let recorded = report.recorded;
    let failed = if recorded.oom { ", then out of memory" } else { "" };
    writeln!(
        out,
        "Recorded: {} reserved, {} allocated at the peak{failed}",
        format_bytes(recorded.peak_reserved_bytes),
        format_bytes(recorded.peak_allocated_bytes)
    )?;
    if let Some(limit) = report.limit_bytes {
        writeln!(out, "Limit: {}", format_bytes(limit))?;
    }
    writeln!(out)?;
    let mut table = Table::new(&["RESERVED", "CHANGE", "RETRIES", "FITS", "SETTINGS"], &[0, 1, 2]);
    for prediction in &report.predictions {
        let before = recorded.peak_reserved_bytes.max(1) as f64;
        let change = (prediction.peak_reserved_bytes as f64 - before) / before * 100.0;
        let fits = match (prediction.oom, report.limit_bytes) {
            (true, _) => "no",
            (false, Some(_)) => "yes",
            (false, None) => "–",
        };
        table.row([
            format_bytes(prediction.peak_reserved_bytes),
            // What had been reached when it failed says nothing about what it would have taken.
            if prediction.oom { "–".to_owned() } else { format!("{change:+.1} %") },
            prediction.retries.to_string(),
            fits.to_owned(),
            name(&prediction.settings),
        ]);
    }
    write_table(out, &table)?;
    for prediction in &report.predictions {
        if let Some(caution) = prediction.caution {
            writeln!(out, "\nCaution, {}: {caution}", prediction.settings)?;
        }
    }
    match &report.best {
        Some(best) => writeln!(out, "\nBest: {}", setting(best, None))?,
        None if report.limit_bytes.is_some() => {
            writeln!(out, "\nNone of these fits, or is better than what was recorded.")?
        }
        None => writeln!(out, "\nNone of these is better than what was recorded.")?,
    }
    writeln!(out, "Assumed: {}.", report.assumptions.join("; "))
}
