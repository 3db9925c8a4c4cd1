//! What a recording's requests would have taken under other settings: what `stormlog replay` prints and the terminal UI shows.

use std::io::{self, Write};

use stormlog_model::alloc_conf::setting;
use stormlog_model::format_bytes;
use stormlog_model::text::Table;

use crate::{Prediction, ReplayReport};

/// The page of `stormlog replay`.
pub fn write_replay_page(out: &mut impl Write, report: &ReplayReport) -> io::Result<()> {
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
        settings_name(&report.settings)
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
        table.row([
            format_bytes(prediction.peak_reserved_bytes),
            report.change(prediction).map_or_else(|| "–".to_owned(), |change| format!("{change:+.1} %")),
            prediction.retries.to_string(),
            report.fits(prediction).to_owned(),
            settings_name(&prediction.settings).to_owned(),
        ]);
    }
    write!(out, "{table}")?;
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

/// Settings as a text, also the default ones.
#[must_use]
pub fn settings_name(settings: &str) -> &str {
    if settings.is_empty() { "(defaults)" } else { settings }
}

impl ReplayReport {
    /// How much more is reserved than was recorded, in per cent. What had been reached when a request failed says nothing about what
    /// it would have taken.
    #[must_use]
    pub fn change(&self, prediction: &Prediction) -> Option<f64> {
        let before = self.recorded.peak_reserved_bytes.max(1) as f64;
        (!prediction.oom).then(|| (prediction.peak_reserved_bytes as f64 - before) / before * 100.0)
    }

    /// Whether every request is served within the limit.
    #[must_use]
    pub fn fits(&self, prediction: &Prediction) -> &'static str {
        match (prediction.oom, self.limit_bytes) {
            (true, _) => "no",
            (false, Some(_)) => "yes",
            (false, None) => "–",
        }
    }
}
