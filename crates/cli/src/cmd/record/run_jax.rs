//! What `stormlog run` prints about a JAX program: the pool of each device and what of it was in use, the compiled program that needs most, and where
//! memory by line is.

use std::io::{self, Write};
use std::path::Path;

use stormlog_catalog::frameworks::jax_records;
use stormlog_model::format_bytes;

/// Processes and devices that are named.
const MOST: usize = 4;

pub(crate) fn say(out: &mut impl Write, run: &Path) -> io::Result<()> {
    for record in jax_records(run).into_iter().take(MOST) {
        for device in record.devices.iter().take(MOST) {
            writeln!(out, "  {:<9} JAX {}", format!("cuda:{}", device.number), device.words())?;
        }
        if let Some(program) = record.programs.first() {
            let place = program.place.as_ref().map(|place| format!(", compiled at {place}"));
            writeln!(
                out,
                "  compiled  {} needs {} ({} temporaries){}",
                program.name,
                format_bytes(program.peak_bytes),
                format_bytes(program.temp_bytes),
                place.unwrap_or_default()
            )?;
        }
        if let Some(profile) = &record.profile {
            writeln!(out, "  by line   stormlog stats {}", profile.display())?;
        }
    }
    Ok(())
}
