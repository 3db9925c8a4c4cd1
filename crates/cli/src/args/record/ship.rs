//! What can be typed to ship runs elsewhere: with `run`, `ship` and `fetch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stormlog_catalog::run::layout::{RUNS_DIRECTORY, RUNS_VARIABLE};
use stormlog_ship::{DEFAULT_RATE, DEFAULT_WAIT};

use crate::args::any_size;
use crate::cmd::record::ship::{FetchOptions, ShipOptions, TransferOptions};

#[derive(Debug, Args)]
#[command(next_help_heading = "Shipping")]
pub(crate) struct RunShip {
    /// Ship the run while it is recorded
    ///
    /// The target is a shared directory, http(s)://host/path or s3://bucket/prefix.
    #[arg(long, env = "STORMLOG_SHIP", hide_env_values = true, value_name = "DIR|URL")]
    ship: Option<String>,
    /// Maximum transfer rate per second; 0 is unlimited
    #[arg(long, env = "STORMLOG_SHIP_RATE", default_value = "8MiB", value_parser = any_size, value_name = "SIZE")]
    ship_rate: u64,
    /// Seconds to keep shipping in the background after the program has ended
    #[arg(long, default_value_t = DEFAULT_WAIT.as_secs(), value_name = "SECONDS")]
    ship_wait: u64,
    /// URL of an S3-compatible store other than Amazon's (or AWS_ENDPOINT_URL)
    #[arg(long, value_name = "URL", requires = "ship")]
    ship_endpoint: Option<String>,
    /// File with the receiver's bearer token, mode 0600 (or STORMLOG_SHIP_TOKEN)
    #[arg(long, value_name = "FILE", requires = "ship")]
    ship_token: Option<PathBuf>,
}

impl RunShip {
    pub(crate) fn transfer(self, is_shared: bool) -> Option<TransferOptions> {
        let to = self.ship.filter(|to| !to.is_empty())?;
        Some(TransferOptions {
            to,
            endpoint: self.ship_endpoint,
            token_file: self.ship_token,
            is_shared,
            rate: self.ship_rate,
            wait: Duration::from_secs(self.ship_wait),
        })
    }
}

/// Ship runs to a shared directory or an object store
///
/// Sends what is not at the target yet. If interrupted, the same command continues.
#[derive(Debug, Args)]
pub(crate) struct Ship {
    /// Run directories, or directories of them
    #[arg(env = RUNS_VARIABLE, default_value = RUNS_DIRECTORY, value_name = "RUNS")]
    runs: Vec<PathBuf>,
    /// A shared directory, http(s)://host/path or s3://bucket/prefix
    #[arg(long, env = "STORMLOG_SHIP", hide_env_values = true, value_name = "DIR|URL")]
    to: String,
    /// Maximum transfer rate per second; 0 is unlimited
    #[arg(long, default_value = "0", value_parser = any_size, value_name = "SIZE")]
    rate: u64,
    /// URL of an S3-compatible store other than Amazon's (or AWS_ENDPOINT_URL)
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// File with the receiver's bearer token, mode 0600 (or STORMLOG_SHIP_TOKEN)
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Make the copies readable by their group (default: private)
    #[arg(long)]
    share: bool,
}

impl From<Ship> for ShipOptions {
    fn from(typed: Ship) -> Self {
        let transfer = TransferOptions {
            to: typed.to,
            endpoint: typed.endpoint,
            token_file: typed.token,
            is_shared: typed.share,
            rate: typed.rate,
            wait: DEFAULT_WAIT,
        };
        ShipOptions { runs: typed.runs, transfer }
    }
}

/// Rebuild run directories from an object store
///
/// Reads what `run --ship` or `ship` stored.
#[derive(Debug, Args)]
pub(crate) struct Fetch {
    /// http(s)://host/path/RUN, s3://bucket/prefix/RUN or s3://bucket/prefix (all runs)
    url: String,
    /// Directory for the run directories; created if missing
    directory: PathBuf,
    /// URL of an S3-compatible store other than Amazon's (or AWS_ENDPOINT_URL)
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// File with the receiver's bearer token, mode 0600 (or STORMLOG_SHIP_TOKEN)
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Open the directories to their group (default: private)
    #[arg(long)]
    share: bool,
}

impl From<Fetch> for FetchOptions {
    fn from(typed: Fetch) -> Self {
        let transfer = TransferOptions {
            to: typed.url,
            endpoint: typed.endpoint,
            token_file: typed.token,
            is_shared: typed.share,
            rate: DEFAULT_RATE,
            wait: DEFAULT_WAIT,
        };
        FetchOptions { into: typed.directory, transfer }
    }
}
