//! `stormlog sql`: handed to the Python package, which has DuckDB.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use crate::exit::UsageError;
use crate::interpreter;

/// The module that answers.
const MODULE: &str = "stormlog._sql";

pub(crate) struct Options {
    pub(crate) path: Option<PathBuf>,
    pub(crate) statement: Option<String>,
    pub(crate) json: bool,
    pub(crate) csv: bool,
}

/// Becomes the interpreter; gives an exit code only where this process is one already.
pub(crate) fn run(options: &Options) -> anyhow::Result<u8> {
    let Some(python) = interpreter::with_package() else {
        let path = options.path.as_ref().map_or_else(|| "PATH".to_owned(), |path| path.display().to_string());
        return Err(UsageError(format!(
            "SQL needs the Python package with DuckDB: pip install 'stormlog[sql]', then the same command. Without it: \
             stormlog query events {path}, or stormlog convert {path} events.parquet for any SQL engine"
        ))
        .into());
    };
    let mut asking = python.module(MODULE);
    asking.args(options.json.then_some("--json")).args(options.csv.then_some("--csv")).arg("--");
    asking.args(&options.path).args(&options.statement);
    let error = if interpreter::this_process().is_some() {
        match asking.status() {
            Ok(status) => return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
            Err(error) => error,
        }
    } else {
        asking.exec()
    };
    Err(UsageError(format!("{} could not be started: {error}", python.program().display())).into())
}
