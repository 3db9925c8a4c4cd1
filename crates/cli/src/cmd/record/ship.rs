//! `run --ship`, `stormlog ship` and `stormlog fetch`: options to `stormlog-ship`, one line a run.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stormlog_model::format_bytes;
use stormlog_model::text::{inert_lines, inert_text};
use stormlog_push::read_token;
use stormlog_ship::{
    FetchedRun, Settings, ShipError, ShippedRun, ShippingStatus, State, fetch, ship_run, ship_stored,
};
use stormlog_supervise::{Shipper, Shipping};

use crate::exit::{Exit, UsageError};
use crate::interpreter::secure_post;

/// The variable with the token, where no file is given.
const TOKEN: &str = "STORMLOG_SHIP_TOKEN";
/// As the first process of a container, nothing outlives us.
const GRACE_OF_INIT: Duration = Duration::from_secs(45);

/// A destination as it was typed.
pub(crate) struct TransferOptions {
    pub(crate) to: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) is_shared: bool,
    pub(crate) rate: u64,
    pub(crate) wait: Duration,
}

impl TransferOptions {
    fn settings(&self) -> anyhow::Result<Settings> {
        let token = match &self.token_file {
            Some(path) => Some(read_token(path).map_err(|error| UsageError(error.to_string()))?),
            None => std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
        };
        let settings =
            Settings::new(&self.to, self.endpoint.as_deref(), token, secure_post(), self.is_shared);
        let mut settings = settings.map_err(|error| UsageError(error.to_string()))?;
        (settings.rate, settings.wait) = (self.rate, self.wait);
        Ok(settings)
    }

    /// The process of `run` that ships. `ourselves` starts this program again.
    pub(crate) fn shipper(&self, ourselves: &[OsString]) -> anyhow::Result<Shipper> {
        let settings = serde_json::to_string(&self.settings()?)?;
        let mut command = ourselves.to_vec();
        command.push("ship-run".into());
        Ok(Shipper { command, settings })
    }
}

/// What that process does: settings come on standard input, which ends with the run.
pub(crate) fn follow(run: &Path) -> Exit {
    let input = io::stdin();
    let mut line = String::new();
    let settings = input.lock().read_line(&mut line).ok().and_then(|_| serde_json::from_str(&line).ok());
    let Some(settings) = settings else { return Exit::Usage };
    match ship_run(run, &settings, input) {
        Ok(status) if status.state == State::Complete => Exit::Ok,
        _ => Exit::Error,
    }
}

/// What the end of `run` has to say about it. Waits only where it was asked to, or where nothing outlives this process.
pub(crate) fn at_end(
    run: &Path,
    shipping: Option<Shipping>,
    waits: bool,
    transfer: &TransferOptions,
) -> Option<String> {
    let mut shipping = shipping?;
    let most = match (waits, std::process::id()) {
        (true, _) => transfer.wait + Duration::from_secs(1),
        (_, 1) => GRACE_OF_INIT,
        _ => Duration::ZERO,
    };
    let has_ended = shipping.wait(most);
    let status = ShippingStatus::read(run).unwrap_or_default();
    let again = format!("stormlog ship {} --to …", inert_path(run));
    Some(match status.state {
        State::Complete => format!("shipped {} to {}", format_bytes(status.bytes_sent), status.to),
        _ if !status.error.is_empty() && has_ended => {
            format!("not shipped: {}; later: {again}", status.error)
        }
        _ if !status.error.is_empty() => format!("shipping failed and is retried: {}", status.error),
        _ if has_ended => format!("not all of the run was shipped; later: {again}"),
        _ => "the rest of the run is being shipped in the background".to_owned(),
    })
}

pub(crate) struct ShipOptions {
    pub(crate) runs: Vec<PathBuf>,
    pub(crate) transfer: TransferOptions,
}

/// `stormlog ship`.
pub(crate) fn ship(options: &ShipOptions) -> anyhow::Result<Exit> {
    let settings = options.transfer.settings()?;
    let (mut out, mut exit) = (io::stdout().lock(), Exit::Ok);
    let mut report = |run: &Path, shipped: Result<ShippedRun, ShipError>| match shipped {
        Ok(ShippedRun { name, bytes, is_complete, .. }) => {
            let state = if is_complete { "complete" } else { "still running" };
            writeln!(out, "{}  {state}, {} sent", inert_text(&name), format_bytes(bytes))
        }
        Err(error) => {
            exit = Exit::Error;
            writeln!(io::stderr(), "Error: {}: {}", inert_path(run), inert_lines(&error.to_string()))
        }
    };
    ship_stored(&options.runs, &settings, &mut report)?;
    Ok(exit)
}

pub(crate) struct FetchOptions {
    pub(crate) into: PathBuf,
    pub(crate) transfer: TransferOptions,
}

/// `stormlog fetch`.
pub(crate) fn fetch_runs(options: &FetchOptions) -> anyhow::Result<Exit> {
    let settings = options.transfer.settings()?;
    let (mut out, mut exit, mut count) = (io::stdout().lock(), Exit::Ok, 0);
    let mut report = |fetched: Result<FetchedRun, ShipError>| {
        count += 1;
        match fetched {
            Ok(FetchedRun { run, bytes, is_complete }) => {
                let state = if is_complete { "complete" } else { "not all of it was shipped yet" };
                writeln!(out, "{}  {state}, {} fetched", inert_path(&run), format_bytes(bytes))
            }
            Err(error) => {
                exit = Exit::Error;
                writeln!(io::stderr(), "Error: {}", inert_lines(&error.to_string()))
            }
        }
    };
    fetch(&settings, &options.into, options.transfer.is_shared, &mut report)?;
    if count == 0 {
        writeln!(io::stderr(), "There are no runs at {}.", settings.shown())?;
    }
    Ok(exit)
}

/// A path that a receiver or a directory gave, without what would steer the terminal.
fn inert_path(path: &Path) -> String {
    inert_text(&path.display().to_string()).into_owned()
}
