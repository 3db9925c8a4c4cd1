//! `stormlog rules` and `stormlog dashboard`: files for other systems, printed.

use std::io::{self, Write};

use stormlog_monitoring::{RuleFormat, dashboard, rules};

use crate::exit::Exit;

pub(crate) enum Asked {
    Rules(RuleFormat),
    Dashboard,
}

pub(crate) fn run(asked: &Asked) -> anyhow::Result<Exit> {
    let text = match asked {
        Asked::Rules(format) => rules(*format),
        Asked::Dashboard => dashboard(),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Exit::Ok)
}
