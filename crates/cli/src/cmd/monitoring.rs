//! `stormlog rules` and `stormlog dashboard`: files for other systems, printed.

use std::io::{self, Write};

use stormlog_monitoring::{RuleFormat, dashboard, rules};

use crate::exit::Exit;

pub(crate) enum MonitoringFile {
    Rules(RuleFormat),
    Dashboard,
}

pub(crate) fn run(file: &MonitoringFile) -> anyhow::Result<Exit> {
    let text = match file {
        MonitoringFile::Rules(format) => rules(*format),
        MonitoringFile::Dashboard => dashboard(),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Ok)
}
