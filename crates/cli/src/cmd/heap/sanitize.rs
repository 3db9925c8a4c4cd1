//! `stormlog sanitize`: runs a program under compute-sanitizer and shows the device memory that it never freed.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use stormlog_heap::GroupBy;

use super::stats;
use crate::cmd::atomic_write;
use crate::exit::MissingInput;

const TOOL: &str = "compute-sanitizer";
/// Where CUDA's packages put it.
const TOOLKIT: &str = "/usr/local/cuda";

pub(crate) struct Options {
    pub(crate) output: PathBuf,
    pub(crate) command: Vec<OsString>,
}

/// Gives the exit code of the program.
pub(crate) fn run(options: &Options) -> anyhow::Result<u8> {
    let Some(tool) = tool() else {
        let place = "it comes with the CUDA Toolkit; install it, or add its bin directory to PATH";
        return Err(MissingInput(format!("{TOOL} was not found: {place}")).into());
    };
    prepare(&options.output)?;
    let status = Command::new(tool)
        .args(["--tool", "memcheck", "--leak-check", "full", "--log-file"])
        .arg(&options.output)
        .args(&options.command)
        .status()?;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    let code = u8::try_from(code).unwrap_or(1);
    let shown = stats::Options {
        capture: options.output.clone(),
        pid: None,
        memory: None,
        json: false,
        by: GroupBy::Line,
        top: 10,
    };
    if fs::metadata(&options.output).is_ok_and(|report| report.is_file() && report.len() == 0) {
        writeln!(io::stderr(), "{TOOL} wrote no report: it could not start the program, or was killed.")?;
        return Ok(code);
    }
    match stats::run(&shown) {
        Ok(_) => {}
        // Nothing leaked, or the program failed before the tool could look: the sentence says which.
        Err(error) => writeln!(io::stderr(), "{error}")?,
    }
    writeln!(io::stderr(), "The report is {}.", options.output.display())?;
    Ok(code)
}

/// The report has names and addresses of the program: it is private, and never written through a link that was there before. A device or a
/// pipe stays what it is.
fn prepare(output: &Path) -> anyhow::Result<()> {
    if fs::metadata(output).is_ok_and(|there| !there.is_file()) {
        return atomic_write::write(output, "");
    }
    let above = output.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = fs::create_dir_all(above).and_then(|()| fs::canonicalize(above));
    let place = place.with_context(|| above.display().to_string())?;
    let name = output.file_name().with_context(|| format!("{} is not a file name", output.display()))?;
    stormlog_files::replace(&place.join(name), b"").with_context(|| output.display().to_string())
}

fn tool() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let toolkits = homes.chain([Path::new(TOOLKIT).to_owned()]).map(|home| home.join("bin"));
    env::split_paths(&path).chain(toolkits).map(|folder| folder.join(TOOL)).find(|tool| tool.is_file())
}
